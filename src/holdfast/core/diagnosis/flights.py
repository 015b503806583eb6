"""Combines flight records and stacks with the diagnosis of the logs. Pure.

They show which rank the others waited for. A missing rank explains the others' timeouts, closed connections
and final stop. It does not explain a rank's own fault: memory, an exception, a signal, a device. Such a fault
is then the cause, and the records show who waited for it, unless that rank itself was waiting at that time.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.candidates import class_of, kind_of
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.meanings import meaning_of
from holdfast.core.flight import reasons, words
from holdfast.core.flight.gloo_sizes import odd_one
from holdfast.core.flight.graph import is_victim
from holdfast.core.flight.locate import locate
from holdfast.core.flight.members import ranks_of
from holdfast.core.hang.culprits import ranks_named, users_frame, waits_for_others
from holdfast.core.plurals import counted
from holdfast.core.verdict.categories import ADVICE, ADVICE_ZH
from holdfast.model.diagnoses import Diagnosis, Fact, Other
from holdfast.model.flight.digests import Digest, GroupDigest, Located, RankLife
from holdfast.model.flight.scenes import FlightScene, FoundStacks
from holdfast.model.matches import Search
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

NAMED_MAX = 16  # culprits listed
OVER_S = 60.0  # ranks have just failed: the others wait in vain, however short their wait is so far
FACTS_MAX = 16
GROUPS_MAX = 4  # of the same name, as evidence
STACKS_MAX = 4
NOTES_MAX = 6
PROGRESS = Words(en="the progress of each rank in this process group", zh="各 rank 在该通信组中的进度")
IN_RECORDS = Words(en="evidence in the flight records", zh="flight record 所反映的情况")
NOBODY = Words(
    en="the flight records of {ranks}: no rank blocks the others",
    zh="{n} 个 rank 的 flight record：没有 rank 让其他 rank 等待",
)
ODD_SIZE = Words(
    en="rank {odd} passed more bytes to the collective than rank {rank} and the other ranks expect",
    zh="rank {odd} 传入的字节数多于 rank {rank} 及其他 rank 所期望的",
)
DOES = Words(en="what rank {rank} is doing", zh="rank {rank} 正在执行的位置")


def with_flights(
    found: Diagnosis,
    search: Search,
    scene: FlightScene,
    known: KnowledgeBase,
    lives: Mapping[int, RankLife] | None = None,
) -> Diagnosis:
    """Returns the diagnosis of the logs, completed by flight records and stacks.

    `search`: the search in the logs of the same job. `lives`: states of the ranks, if they were observed
    while the ranks ran.
    """
    calls_differ = known.is_of("calls-differ", found.category)
    if not scene.digests and not scene.stacks:
        return _of_sizes(found, scene) if calls_differ else found
    stalled_s = None if lives is None else OVER_S
    lives = ranks_lives(scene, search) if lives is None else lives
    located = None
    if scene.digests:
        located = locate(scene.digests, _world_size(scene), lives, stalled_s=stalled_s)
    is_complaint = found.category != "none" and known.is_of("explained-by-absent-rank", found.category)
    if located is None and not scene.digests and is_complaint:
        located = _by_stacks(lives)
    notes = (*found.notes, *scene.notes[:NOTES_MAX])
    if located is None and calls_differ:
        found = _of_sizes(found, scene)
    if located is None:
        many = len(scene.digests)
        notes += (
            (Words(en=NOBODY.en.format(ranks=counted(many, "rank")), zh=NOBODY.zh.format(n=many)),)
            if many
            else ()
        )
        return replace(found, notes=notes)
    found = replace(found, notes=notes)
    if located.kind in ("killed", "missing", "network_or_device") and calls_differ:
        return _of_sizes(found, scene)  # a rank named its own error, and its death says no more than that
    facts = _facts(located, scene, lives)
    if not outranks(located, found, known):
        fact = Fact(file=_file_of(located.culprits, scene), line=None, text=located.why.en, says=IN_RECORDS)
        return replace(found, evidence=_distinct((*found.evidence[: FACTS_MAX - 1], fact)))
    return _by_location(located, found, facts, search)


def _of_sizes(found: Diagnosis, scene: FlightScene) -> Diagnosis:
    """Returns a diagnosis of mismatched sizes with the rank that passed the different size, if message and
    records show it.
    """
    aborted = next((one.rank for one in found.culprits if one.rank is not None), None)
    said = " ".join(
        [found.first_error.text if found.first_error else "", *(one.text for one in found.evidence)]
    )
    odd = (
        None
        if aborted is None
        else odd_one(aborted, said, scene.digests, scene.usual_bytes, scene.world_size)
    )
    if odd is None or odd == aborted:
        return found
    title = Words(en=ODD_SIZE.en.format(odd=odd, rank=aborted), zh=ODD_SIZE.zh.format(odd=odd, rank=aborted))
    return replace(found, title=title, culprits=(Culprit(rank=odd),))


def outranks(located: Located, found: Diagnosis, known: KnowledgeBase) -> bool:
    """Returns whether the rank that others wait for explains what the logs report, and not the reverse."""
    if not located.culprits and found.category not in ("none", "unknown"):
        return False
    if known.is_of("explained-by-absent-rank", found.category):
        return True
    named = {one.rank for one in found.culprits if one.rank is not None}
    return (
        known.is_of("death-while-waiting", found.category) and bool(named) and named <= set(located.waiting)
    )


def ranks_lives(scene: FlightScene, search: Search) -> dict[int, RankLife]:
    """Returns by rank its known state besides the flight record: its stack, whether it responded, its
    fatal error.
    """
    stacks = _by_rank(scene)
    were_asked = any(one.stacks.source == "faulthandler" and one.stacks.threads for one in scene.stacks)
    lives: dict[int, RankLife] = {}
    for rank, of_rank in sorted(stacks.items()):
        answered = bool(of_rank.get("faulthandler")) if were_asked else None
        shown = _shown(of_rank)
        lives[rank] = RankLife(frames=shown.stacks.threads[0].frames if shown else (), answered=answered)
    for rank, error in _last_errors(search).items():
        life = replace(lives.get(rank, RankLife()), error=error)
        lives[rank] = life if is_victim(life) else replace(life, rank_class="dead")
    return lives


def _by_rank(scene: FlightScene) -> dict[int, dict[str, FoundStacks]]:
    found: dict[int, dict[str, FoundStacks]] = {}
    for one in scene.stacks:
        found.setdefault(one.stacks.rank, {})[one.stacks.source] = one
    return found


def _shown(of_rank: Mapping[str, FoundStacks]) -> FoundStacks | None:
    """Returns the stack dump to use: one made inside the process, with full file names, else one made by
    another process.
    """
    dumps = (of_rank.get(source) for source in ("faulthandler", "py-spy"))
    return next((one for one in dumps if one is not None and one.stacks.threads), None)


def _last_errors(search: Search) -> dict[int, str]:
    """Returns by rank the exception after which it made no more steps."""
    found: dict[int, str] = {}
    for one in search.matches:
        source = search.sources[one.source]
        rank = one.writer.rank if one.writer.rank is not None else source.writer.rank
        last = source.last_step_offset
        if rank is not None and one.error_type and (last is None or one.last_offset >= last):
            found[rank] = one.text
    return found


def _world_size(scene: FlightScene) -> int | None:
    """Returns the number of known ranks; None if a record lists the members of the default process group."""
    for digest in scene.digests:
        if any(group.about == "default_pg" and group.members for group in digest.groups):
            return None
    ranks = [one.rank for one in scene.digests] + [one.stacks.rank for one in scene.stacks]
    return max(ranks, default=-1) + 1 or None


def _by_stacks(lives: Mapping[int, RankLife]) -> Located | None:
    """Returns the missing ranks by stacks alone: a few ranks do something else while the others wait.

    None if no rank, or not a minority, does something else.
    """
    seen = {rank: life for rank, life in lives.items() if life.frames}
    odd = tuple(rank for rank, life in seen.items() if not waits_for_others(life.frames))
    if not odd or 2 * len(odd) >= len(seen):
        return None
    why = reasons.common({rank: reasons.reason(seen[rank], is_absent=False) for rank in odd})
    waiting = tuple(rank for rank in seen if rank not in odd)
    text = words.described(odd, lives, why.kind, frozenset())
    others = Words(
        en=f"{len(waiting)} {'ranks wait' if len(waiting) > 1 else 'rank waits'} for others",
        zh=f"{len(waiting)} 个 rank 在等待其他 rank",
    )
    return Located(
        kind=why.kind,
        category=why.category,
        culprits=odd,
        waiting=waiting,
        confidence=min(why.confidence, 0.7),
        why=words.joined(text, others),
    )


# The diagnosis


def _by_location(located: Located, found: Diagnosis, facts: Sequence[Fact], search: Search) -> Diagnosis:
    is_same = located.category == found.category
    meaning = meaning_of(located.category)
    other = (
        ()
        if is_same or found.category in ("none", "unknown")
        else (Other(category=found.category, confidence=0.1),)
    )
    return replace(
        found,
        category=located.category,
        class_=class_of(located.category),
        confidence=max(located.confidence, found.confidence) if is_same else located.confidence,
        title=located.why,
        explanation=found.explanation if is_same else meaning,
        advice=found.advice if is_same else _advice(located.category),
        action=found.action if is_same else _action(located.category),
        culprits=_culprits(located.culprits[:NAMED_MAX], search),
        culprits_left_out=max(0, len(located.culprits) - NAMED_MAX),
        first_error=found.first_error if is_same else None,
        evidence=_distinct((*facts, *(found.evidence if found.category not in ("none", "unknown") else ()))),
        also=(*other, *(one for one in found.also if one.category != located.category)),
    )


def _action(category: str) -> str:
    action = kind_of(category)[1]
    return "unknown" if action.startswith("by ") else action


def _advice(category: str) -> Words:
    en = ADVICE.get(category) or ADVICE.get(_action(category), "")
    return Words(en=en, zh=ADVICE_ZH.get(category) or ADVICE_ZH.get(_action(category), en))


def _culprits(ranks: Iterable[int], search: Search) -> tuple[Culprit, ...]:
    """Returns the ranks as culprits, with the worker and host that the logs name for them."""
    known: dict[int, tuple[int | None, str | None]] = {}
    writers = [one.writer for one in search.sources] + [one.writer for one in search.matches]
    for writer in writers:
        if writer.rank is not None and (writer.worker is not None or writer.host):
            known.setdefault(writer.rank, (writer.worker, writer.host))
    found = []
    for rank in ranks:
        worker, host = known.get(rank, (None, None))
        found.append(Culprit(rank=rank, worker=worker, host=host))
    return tuple(found)


# Evidence


def _facts(located: Located, scene: FlightScene, lives: Mapping[int, RankLife]) -> tuple[Fact, ...]:
    """Returns evidence lines: the progress of the ranks in the process group, and what the culprits do."""
    facts = [
        Fact(
            file=_file_of(located.culprits, scene),
            line=None,
            text=text,
            says=PROGRESS,
            ranks=ranks,
        )
        for text, ranks in _progress(located, scene.digests)[:GROUPS_MAX]
    ]
    stacks = _by_rank(scene)
    for rank in located.culprits[:STACKS_MAX]:
        life, shown = lives.get(rank), _shown(stacks.get(rank, {}))
        if life is not None and life.frames and shown is not None:
            says = Words(en=DOES.en.format(rank=rank), zh=DOES.zh.format(rank=rank))
            facts.append(
                Fact(
                    file=shown.file,
                    line=None,
                    text=users_frame(life.frames),
                    says=says,
                    ranks=(rank,),
                )
            )
    return tuple(facts)


def _progress(located: Located, digests: Sequence[Digest]) -> list[tuple[str, tuple[int, ...]]]:
    """Returns lines about the progress of ranks in a process group, each with the ranks that it is about.

    Example: `default_pg: ranks 0, 1, 3 enqueued 21, completed 20; rank 2 enqueued 20, completed 20`. Several
    groups may have the same name and different members; those with a culprit come first.
    """
    teams: dict[tuple[int, ...], dict[int, GroupDigest]] = {}
    for digest in digests:
        for group in digest.groups:
            if group.name == located.group and located.group:
                teams.setdefault(ranks_of(group.members), {})[digest.rank] = group
    wanted = set(located.culprits)
    found = []
    for members, groups in sorted(teams.items(), key=lambda team: not wanted & {*team[0], *team[1]}):
        if wanted and not wanted & {*members, *groups}:
            continue
        alike: dict[tuple[int, int], list[int]] = {}
        for rank, group in sorted(groups.items()):
            alike.setdefault((group.enqueued, group.completed), []).append(rank)
        parts = [
            f"{ranks_named(ranks)} enqueued {_number(enqueued)}, completed {_number(completed)}"
            for (enqueued, completed), ranks in sorted(alike.items(), reverse=True)
        ]
        silent = [rank for rank in members if rank not in groups]
        if silent:
            parts.append(f"{ranks_named(silent)} without a record")
        name = located.group if located.about in ("", "undefined") else located.about
        found.append((f"{name}: {'; '.join(parts)}", tuple(sorted(groups))))
    return found


def _number(count: int) -> str:
    return "?" if count < 0 else str(count)


def _file_of(ranks: Sequence[int], scene: FlightScene) -> str:
    files = {one.rank: one.file for one in scene.records}
    return next((files[rank] for rank in ranks if rank in files), next(iter(files.values()), ""))


def _distinct(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    return tuple({(one.text, one.file, one.line): one for one in facts}.values())[:FACTS_MAX]
