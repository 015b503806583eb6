"""Finds what is wrong in logs in which no process is known to have ended: the job stops or stalls. Pure."""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate
from holdfast.core.diagnosis.choice.edges import yields_to_any
from holdfast.model.signatures import SPOKEN, TRACEBACK_START

LAST_BYTES = 1 << 10  # of a log
CUT_OFF_BYTES = 8 << 10  # of a traceback whose end is lost
IGNORED_BYTES = 400  # from the line that announces an ignored exception to its traceback


def last_words(
    seen: Sequence[Candidate], every: Sequence[Candidate], *, made_steps: bool, sizes_bytes: Sequence[int]
) -> list[Candidate]:
    """Returns the lines that show what is wrong, all of one category; empty if nothing is wrong.

    `seen`: the candidates of the last run that count. `every`: all candidates of the job. Other parameters as
    of `choose`.
    """
    return (
        _goes_on_for_nothing(seen)
        or _compared_at_end(seen)
        or _still_waits(seen, sizes_bytes)
        or ([] if made_steps else _only_complaints(seen))
        or ([] if made_steps else _stuck_in_setup(seen))
        or _last_line(seen, sizes_bytes)
        or _cut_off(every, sizes_bytes)
    )


def of_excerpt(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the cause in an excerpt of a few lines that a person copied from a log.

    It is a warning; else a stack dump without an error, which people collect when a job makes no progress.
    """
    if any(candidate.role == "end-ok" for candidate in candidates):
        return []
    warned = [
        candidate
        for candidate in candidates
        if candidate.role == "cause"
        and candidate.severity == "warning"
        and candidate.category != "none"
        and not candidate.survived
        and candidate.signature.id != SPOKEN
    ]
    surest = max((candidate.weight for candidate in warned), default=0.0)
    return [candidate for candidate in warned if candidate.weight == surest]


def _only_complaints(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the only complaint of a job that neither made a step nor finished; empty if there is
    anything else.
    """
    if any(candidate.role == "end-ok" for candidate in candidates):
        return []
    return [
        candidate
        for candidate in candidates
        if candidate.severity == "warning"
        and candidate.category != "none"
        and not candidate.survived
        and candidate.signature.id != SPOKEN
        and (candidate.role == "symptom" or yields_to_any(candidate))
    ]


def _stuck_in_setup(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns lines of ranks that started to set up a communicator and did not finish, if the job made no
    step.
    """
    if any(candidate.role == "end-ok" for candidate in candidates):
        return []
    return [
        candidate
        for candidate in candidates
        if candidate.has("communicator-set-up") and candidate.role == "cause"
    ]


def _goes_on_for_nothing(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns lines of a training whose loss or gradient stays NaN or infinite until its last step."""
    return [
        candidate
        for candidate in candidates
        if candidate.has("nan-in-log")
        and not candidate.survived
        and candidate.match.count > 1
        and not candidate.says("finite-loss")
    ]


def _still_waits(candidates: Sequence[Candidate], sizes_bytes: Sequence[int]) -> list[Candidate]:
    """Returns the last complaints that ranks are waited for, if they end a log without finished work."""
    if any(candidate.role == "end-ok" for candidate in candidates):
        return []
    return [
        candidate
        for candidate in candidates
        if candidate.has("waits-for-ranks")
        and candidate.role == "cause"
        and not candidate.survived
        and _is_near_end(candidate, sizes_bytes, CUT_OFF_BYTES)
    ]


def _compared_at_end(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns lines of ranks or nodes whose last states are incompatible, such as different epochs."""
    return [
        candidate
        for candidate in candidates
        if candidate.ruling is not None
        and candidate.ruling.of_end
        and candidate.role == "cause"
        and candidate.severity == "warning"
    ]


def _last_line(candidates: Sequence[Candidate], sizes_bytes: Sequence[int]) -> list[Candidate]:
    """Returns the last line of a log if it mentions an error and nothing reports finished work."""
    if any(candidate.role == "end-ok" for candidate in candidates):
        return []
    return [
        candidate
        for candidate in candidates
        if candidate.signature.id == SPOKEN
        and candidate.role != "context"
        and not candidate.survived
        and _is_near_end(candidate, sizes_bytes, LAST_BYTES)
    ]


def _cut_off(candidates: Sequence[Candidate], sizes_bytes: Sequence[int]) -> list[Candidate]:
    """Returns the traceback at the end of a log whose last lines are missing, without finished work."""
    if any(candidate.role == "end-ok" for candidate in candidates):
        return []
    return [
        candidate
        for candidate in candidates
        if candidate.signature.id == TRACEBACK_START
        and not candidate.survived
        and _is_near_end(candidate, sizes_bytes, CUT_OFF_BYTES)
        and not any(_closes(other, candidate) for other in candidates)
    ]


def _is_near_end(candidate: Candidate, sizes_bytes: Sequence[int], within_bytes: int) -> bool:
    """Returns whether a candidate is within `within_bytes` of the end of its log, if the size of the log
    is known.
    """
    seen = candidate.match
    return seen.source < len(sizes_bytes) and sizes_bytes[seen.source] - seen.last_offset < within_bytes


def _closes(other: Candidate, begun: Candidate) -> bool:
    """Returns whether a candidate ends a traceback that has begun, or makes it harmless.

    It stands below the last beginning of a traceback, or directly above it.
    """
    if other.signature.id == TRACEBACK_START or other.match.source != begun.match.source:
        return False
    ahead = other.match.last_offset - begun.match.last_offset
    return ahead > 0 or other.has("ignored-exception-header") and -ahead < IGNORED_BYTES
