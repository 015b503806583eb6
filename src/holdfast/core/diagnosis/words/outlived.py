"""Lists what a log contains besides the root cause: errors after which training continued, and earlier runs. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate, filled, first_of, is_cause
from holdfast.core.diagnosis.choice.runs import run_beginnings
from holdfast.model.diagnoses import Diagnosis, Fact
from holdfast.model.matches import Search
from holdfast.model.signatures import Words

FACTS_MAX = 5
PLATFORM_MAX = 4
FILES_MAX = 3
SURVIVED_WEIGHT = 0.5  # of a signature; less sure lines are survived by the hundred


def outlived_facts(known: Sequence[Candidate], search: Search) -> tuple[Fact, ...]:
    """Returns errors after which training continued, each signature once, in order."""
    seen: dict[str, Candidate] = {}
    for candidate in known:
        if (
            is_cause(candidate)
            and candidate.survived
            and candidate.weight >= SURVIVED_WEIGHT
            and candidate.category != "none"
        ):
            seen.setdefault(candidate.signature.id, candidate)
    return tuple(_fact(candidate, search) for candidate in list(seen.values())[:FACTS_MAX])


def notes_on_runs(answer: Diagnosis, known: Sequence[Candidate], search: Search) -> tuple[Words, ...]:
    """Returns, for each log with several runs, which run the diagnosis is about, and how the earlier runs
    ended.
    """
    sizes = [source.size_bytes for source in search.sources]
    by_source: dict[int, list[Candidate]] = defaultdict(list)  # a job can have thousands of logs
    for candidate in known:
        by_source[candidate.match.source].append(candidate)
    notes = []
    for source, begins_at in sorted(run_beginnings(known, sizes).items()):
        before = [
            candidate
            for candidate in by_source[source]
            if candidate.match.last_offset < begins_at and is_cause(candidate)
        ]
        if before and begins_at > 0:
            notes.append(_of_runs(answer, first_of(before), source, begins_at, known, search))
    return tuple(notes[:FILES_MAX])


def notes_on_platform(answer: Diagnosis, known: Sequence[Candidate], search: Search) -> tuple[Words, ...]:
    """Returns what the job's platform, or Holdfast, reported in the logs (slowdown, suspected hang, restart).

    Each report with its title and position, at most PLATFORM_MAX. Those that the diagnosis quotes are left out.
    """
    quoted = {fact.signature for fact in answer.evidence}
    notes: dict[str, Words] = {}
    for candidate in known:
        if candidate.has("platform-report") and candidate.signature.id not in quoted | {*notes}:
            title_en, title_zh = _title(candidate)
            line = f", line {candidate.match.line}" if candidate.match.line else ""
            notes[candidate.signature.id] = Words(
                en=f"{title_en} ({search.sources[candidate.match.source].name}{line})",
                zh=f"{title_zh}（{search.sources[candidate.match.source].name}）",
            )
    return tuple(notes.values())[:PLATFORM_MAX]


def _of_runs(
    answer: Diagnosis,
    ended: Candidate,
    source: int,
    begins_at: int,
    known: Sequence[Candidate],
    search: Search,
) -> Words:
    name = search.sources[source].name
    runs = max(2, _starts(known, source))
    first = answer.first_error
    is_before = first is not None and first.source == source and first.offset < begins_at
    line = f", line {ended.match.line}" if ended.match.line else ""
    line_zh = f"，第 {ended.match.line} 行" if ended.match.line else ""
    title_en, title_zh = _title(ended)
    last_en, last_zh = _last(answer, search, source, runs, is_before=is_before)
    which = "run 1 of 2" if runs == 2 else f"a run before the last of {runs}"
    which_zh = "第 1 次运行（共 2 次）" if runs == 2 else f"最后一次之前的运行（共 {runs} 次）"
    return Words(
        en=f"{name} contains {runs} runs: {which} ended in {title_en}{line}; {last_en}",
        zh=f"{name} 含 {runs} 次运行：{which_zh}以“{title_zh}”结束{line_zh}；{last_zh}",
    )


def _last(answer: Diagnosis, search: Search, source: int, runs: int, *, is_before: bool) -> tuple[str, str]:
    if is_before:
        return "the diagnosis is about the last run", "结论针对该次运行"
    if answer.category != "none":
        return f"the diagnosis is about run {runs}", f"结论针对第 {runs} 次运行"
    if search.sources[source].is_finished:
        return f"run {runs} reached its last step", f"第 {runs} 次运行到达最后一步"
    return f"run {runs} continues beyond the end of this log", f"第 {runs} 次运行仍在继续，日志中未见其结束"


def _starts(known: Sequence[Candidate], source: int) -> int:
    """Returns the number of runs that start in a log, by the signature with most matches."""
    counts: Counter[str] = Counter()
    for candidate in known:
        if candidate.match.source == source and candidate.has("run-starts"):
            counts[candidate.signature.id] += candidate.match.count
    return max(counts.values(), default=0)


def _title(candidate: Candidate) -> tuple[str, str]:
    if candidate.match.error_type:
        return candidate.match.error_type, candidate.match.error_type
    captures = candidate.match.captures
    return filled(candidate.signature.title.en, captures), filled(candidate.signature.title.zh, captures)


def _fact(candidate: Candidate, search: Search) -> Fact:
    title_en, title_zh = _title(candidate)
    return Fact(
        file=search.sources[candidate.match.source].name,
        line=candidate.match.line or None,
        text=candidate.match.text,
        says=Words(
            en=f"survived, training continued after it: {title_en}", zh=f"已度过，其后训练继续：{title_zh}"
        ),
        signature=candidate.signature.id,
        count=candidate.match.count,
    )
