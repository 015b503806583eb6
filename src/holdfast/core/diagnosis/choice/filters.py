"""Removes candidates that do not count: source code lines, ignored exceptions, fallbacks, earlier runs. Pure.

Each filter takes candidates and returns the remaining ones in the same order.
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import BARE, Candidate, is_before, is_cause, stands_below
from holdfast.core.diagnosis.choice.edges import follows_from, yields_to_any
from holdfast.model.signatures import EXCEPTION, SPOKEN, TRACEBACK_START

FELL_BACK_LINES_MAX = 40  # from a failed build or import to the line that names the replacement
IGNORED_LINES_MAX = 60  # of a traceback that is printed and ignored
ANNOUNCED_WEIGHT = 0.75  # of what is known of the error that another one announces
ORPHANED_LINES = (
    1,
    2,
)  # from the line that reads the pipe to its exception; a line of carets may stand between
INDENT = "    "  # of the code that a traceback shows
CHAINED_LINES = (1, 2)  # from an exception to the words that chain the next one to it
ABORT_BYTES = 16 << 10  # of a log, from a watchdog's verdict to the end


def is_code(candidate: Candidate) -> bool:
    """Returns whether a line does not report anything about the job.

    That is the case for a source code line of a traceback, for a line that itself contains a search pattern, for the
    end of a system service that no job needs, and for errors of programs of jobs in lines of the kernel or of a
    program of the operating system.
    """
    if candidate.says("pattern-of-lines"):
        return True
    if candidate.signature.area == "worker" and candidate.says("probe-failed"):
        return (
            True  # what a probe of Kubernetes printed: it is asked again, and tells itself what it leads to
        )
    if candidate.has("ended-unit") and candidate.says("service-no-job-needs"):
        return True
    return candidate.signature.area == "worker" and (
        candidate.says("line-of-code")
        or candidate.says("line-of-the-system")
        and not _concerns_jobs(candidate)
    )


def _concerns_jobs(candidate: Candidate) -> bool:
    """Returns whether a line of the operating system concerns each job: something is wrong with the machine, or a unit
    of systemd ended, which may be a job's.
    """
    return candidate.has("true-of-the-machine") or (
        candidate.has("ended-unit") and candidate.says("line-of-systemd")
    )


def without_ignored(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without exceptions that Python prints and ignores, because they end nothing."""
    heads = [candidate.match for candidate in candidates if candidate.has("ignored-exception-header")]
    starts = {
        (one.source, one.line)
        for one in (candidate.match for candidate in candidates if candidate.signature.id == TRACEBACK_START)
    }
    ignored: set[tuple[int, int]] = set()
    for head in heads:
        after = [
            candidate.match
            for candidate in candidates
            if _is_exception(candidate)
            and candidate.match.source == head.source
            and 0 < candidate.match.line - head.line <= IGNORED_LINES_MAX
        ]
        if after and head.line and (head.source, head.line + 1) in starts:
            ignored.add((head.source, min(one.line for one in after)))
    return [
        candidate
        for candidate in candidates
        if (candidate.match.source, candidate.match.line) not in ignored or not _is_exception(candidate)
    ]


def without_announcing(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without exceptions whose message ends in a colon and announces another known
    error.

    Ray and others quote the traceback of another process in this way; the quoted error was raised first.
    """
    return [
        candidate
        for candidate in candidates
        if not (
            candidate.signature.id == EXCEPTION
            and candidate.match.text.rstrip().endswith(":")
            and any(_is_announced(other, candidate) for other in candidates)
        )
    ]


def _is_announced(candidate: Candidate, head: Candidate) -> bool:
    return (
        is_cause(candidate)
        and candidate.signature.id != EXCEPTION
        and candidate.weight >= ANNOUNCED_WEIGHT
        and candidate.match.source == head.match.source
        and 0 < candidate.match.line - head.match.line <= IGNORED_LINES_MAX
    )


def _is_exception(candidate: Candidate) -> bool:
    """Returns whether a candidate is a cause, or a symptom recognised by its exception, such as a broken
    pipe.
    """
    return candidate.role == "cause" or candidate.role == "symptom" and candidate.says("bare-exception")


def without_harmless(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without further matches on lines that are known to be harmless."""
    nothing = {(one.match.source, one.match.offset) for one in candidates if one.role == "harmless"}
    return [
        candidate
        for candidate in candidates
        if candidate.is_traceback or (candidate.match.source, candidate.match.offset) not in nothing
    ]


def without_orphans(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without broken-pipe errors of child processes whose parent had exited before."""
    heads = [
        candidate.match
        for candidate in candidates
        if candidate.has("orphaned-child-header") and candidate.match.line
    ]
    below = {(one.source, one.line + ahead) for one in heads for ahead in ORPHANED_LINES}
    return [
        candidate
        for candidate in candidates
        if (candidate.match.source, candidate.match.line) not in below
        or not candidate.known.says("exception-of-ended-pipe", candidate.match.error_type.rpartition(".")[2])
    ]


def without_fallen_back(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without failures for which the program used a fallback.

    These are graph breaks of torch.compile, and components that could not be built or imported if a later
    line names the replacement.
    """
    fallbacks = [candidate.match for candidate in candidates if candidate.has("fell-back")]
    return [
        candidate
        for candidate in candidates
        if not candidate.says("left-uncompiled")
        and not (
            candidate.has("replaceable")
            and any(
                one.source == candidate.match.source
                and int(candidate.is_traceback) <= one.line - candidate.match.line <= FELL_BACK_LINES_MAX
                and candidate.match.line
                for one in fallbacks
            )
        )
    ]


def one_for_each_line(
    candidates: Sequence[Candidate], *, keep_exceptions: bool = False, keep_bare: bool = False
) -> list[Candidate]:
    """Returns one cause per line, the one with the highest weight; a traceback without a signature counts
    least.

    `keep_exceptions`: also keep exceptions in lines known to be context. `keep_bare`: also keep lines that
    look like an exception without any traceback.
    """
    best: dict[tuple[int, int], Candidate] = {}
    known: set[tuple[int, int]] = set()
    candidates = _without_vague(_without_shown(_without_spoken(candidates)))
    for candidate in candidates:
        place = (candidate.match.source, candidate.match.offset)
        if candidate.role == "cause" and candidate.signature.id != EXCEPTION:
            held = best.setdefault(place, candidate)
            best[place] = _surer(held, candidate)
        is_known = candidate.signature.id not in (EXCEPTION, TRACEBACK_START)
        if is_known and not (keep_exceptions and candidate.role == "context"):
            known.add(place)
    kept = []
    chained = _chained(candidates)
    for candidate in candidates:
        place = (candidate.match.source, candidate.match.offset)
        if candidate.signature.id == EXCEPTION:
            is_reported = (
                candidate.is_traceback or place in chained or _is_uncaught(candidate, keep_bare=keep_bare)
            )
            if is_reported and place not in known:
                kept.append(candidate)
        elif candidate.role != "cause" or best[place] is candidate:
            kept.append(candidate)
    return without_doubles(kept, candidates)


def _without_spoken(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without mere mentions of an error where a traceback ends, or at the level of a warning.

    The exception itself is more informative, and so is it than the source code line above it. What a library warns of
    in words that no signature knows is no reason for an end.
    """
    raised = {
        (candidate.match.source, candidate.match.offset)
        for candidate in candidates
        if candidate.signature.id == EXCEPTION and candidate.is_traceback
    }
    below = {
        (candidate.match.source, candidate.match.line)
        for candidate in candidates
        if candidate.signature.id == EXCEPTION
    }
    return [
        candidate
        for candidate in candidates
        if candidate.signature.id != SPOKEN
        or (candidate.match.source, candidate.match.offset) not in raised
        and not candidate.known.says("warning-level", candidate.match.text)
        and not (
            candidate.match.text.startswith(INDENT)
            and (candidate.match.source, candidate.match.line + 1) in below
        )
    ]


def _without_vague(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without errors of C++ code whose line another signature knows, if only as context."""
    known = {
        (candidate.match.source, candidate.match.offset)
        for candidate in candidates
        if candidate.signature.id not in (SPOKEN, EXCEPTION) and not candidate.has("vague-native-exception")
    }
    return [
        candidate
        for candidate in candidates
        if not candidate.has("vague-native-exception")
        or (candidate.match.source, candidate.match.offset) not in known
    ]


def _without_shown(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without exceptions in a launcher's report whose original message is known."""
    known = {
        (candidate.match.source, candidate.match.offset)
        for candidate in candidates
        if candidate.role == "symptom"
        and candidate.signature.id != EXCEPTION
        and candidate.category != "none"
    }
    return [
        candidate
        for candidate in candidates
        if not candidate.has("exception-shown-by-launcher")
        or (candidate.match.source, candidate.match.offset) not in known
    ]


def _chained(candidates: Sequence[Candidate]) -> set[tuple[int, int]]:
    """Returns the places, as log and offset, of exceptions that led to another exception in the same
    traceback.

    Only an empty line stands between them and Python's sentence that chains exceptions. Uninformative
    exceptions are left out.
    """
    heads = [
        candidate.match
        for candidate in candidates
        if candidate.has("exception-chain") and candidate.match.line
    ]
    links = {(one.source, one.line - ahead) for one in heads for ahead in CHAINED_LINES}
    return {
        (candidate.match.source, candidate.match.offset)
        for candidate in candidates
        if candidate.signature.id == EXCEPTION
        and (candidate.match.source, candidate.match.line) in links
        and not candidate.says("uninformative-exception")
    }


def without_handled(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without exceptions that were expected and handled, when another one came.

    Such an exception (StopIteration, KeyError) says nothing by itself; the exception that was raised meanwhile
    ended the process. One that was named as the direct cause of another stays.
    """
    heads = [one.match for one in candidates if one.has("exception-chain") and one.says("while-handling")]
    links = {
        (head.source, head.line - ahead): head.line for head in heads if head.line for ahead in CHAINED_LINES
    }
    raised = [one for one in candidates if one.is_traceback and _is_exception(one)]

    def is_handled(one: Candidate) -> bool:
        at = links.get((one.match.source, one.match.line))
        if at is None or not one.has("no-cause-named") or not one.says("uninformative-exception"):
            return False
        return any(
            other.match.source == one.match.source
            and 0 < other.match.line - at <= IGNORED_LINES_MAX
            and not (other.has("no-cause-named") and other.says("uninformative-exception"))
            for other in raised
        )

    return [one for one in candidates if not is_handled(one)]


def _surer(held: Candidate, candidate: Candidate) -> Candidate:
    """Returns the more certain of two candidates on one line.

    That is the one named as the cause by the other, else the one with the higher weight. A specific signature
    always wins over a guess by wording and over a generic signature.
    """
    if SPOKEN in (held.signature.id, candidate.signature.id):
        return candidate if held.signature.id == SPOKEN else held
    if _is_of_family(held) != _is_of_family(candidate):
        return candidate if _is_of_family(held) else held
    if follows_from(held, candidate) != follows_from(candidate, held):
        return candidate if follows_from(held, candidate) else held
    return candidate if candidate.weight > held.weight else held


def without_doubles(kept: Sequence[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without generic matches on lines that also have a specific match.

    A line that later lines show to be harmless loses its generic match too.
    """
    known, named, ends = set(), set(), set()
    for candidate in candidates:
        place = (candidate.match.source, candidate.match.offset)
        if candidate.signature.id not in (SPOKEN, EXCEPTION):
            known.add(place)
            if not _is_of_family(candidate) and (candidate.role != "context" or candidate.ruling is not None):
                named.add(place)
        if candidate.role == "symptom" and candidate.category != "unknown":
            ends.add(place)
    return [candidate for candidate in kept if not _is_double(candidate, known=known, named=named, ends=ends)]


def _is_double(
    candidate: Candidate,
    *,
    known: set[tuple[int, int]],
    named: set[tuple[int, int]],
    ends: set[tuple[int, int]],
) -> bool:
    place = (candidate.match.source, candidate.match.offset)
    if candidate.signature.id == SPOKEN:
        return place in known
    if _is_of_family(candidate):
        return place in named
    return candidate.role == "symptom" and candidate.category == "unknown" and place in ends


def _is_of_family(candidate: Candidate) -> bool:
    """Returns whether a candidate is a complaint that matched only a generic signature."""
    return candidate.severity == "warning" and yields_to_any(candidate)


def _is_uncaught(candidate: Candidate, *, keep_bare: bool) -> bool:
    """Returns whether a line names an exception without any traceback.

    Such lines can be uncaught exceptions, but caught exceptions are logged in this form too.
    """
    text = candidate.match.text
    if candidate.known.says("line-of-rank", text[:200]):
        return candidate.says("bare-exception")
    return keep_bare and candidate.says("bare-exception")


def without_stumbles(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without exceptions of unknown type that follow the termination of a process by a
    scheduler, if no task failed.
    """
    ends = [
        candidate
        for candidate in candidates
        if candidate.role == "symptom" and candidate.signature.area == "scheduler"
    ]
    failed = [
        candidate for candidate in ends if candidate.has("task-exited")
    ]  # srun says so before it ends the others
    killed = [
        candidate
        for candidate in ends
        if candidate.class_ == "process"
        and candidate.weight > BARE
        and all(is_before(one, candidate) is False for one in failed)
    ]
    return [
        candidate
        for candidate in candidates
        if candidate.signature.id != EXCEPTION or not any(stands_below(candidate, one) for one in killed)
    ]


def without_own_aborts(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without crashes of ranks that NCCL's watchdog aborted, because the timeout came
    before.

    Errors of other calls in the aborted communicator are removed too.
    """
    gave_up = [
        candidate
        for candidate in candidates
        if candidate.has("waited-in-vain") and candidate.severity in ("fatal", "error")
    ]
    return [
        candidate
        for candidate in candidates
        if not (
            (
                candidate.has("native-crash")
                and candidate.signature.area == "worker"
                or candidate.has("failed-call-of-library")
            )
            and any(_ends_in(one, candidate) for one in gave_up)
        )
    ]


def _ends_in(wait: Candidate, crash: Candidate) -> bool:
    apart_bytes = crash.match.offset - wait.match.last_offset
    ranks = {wait.writer.rank, crash.writer.rank} - {None}
    return stands_below(crash, wait) and apart_bytes < ABORT_BYTES and len(ranks) <= 1
