"""What is the matter where nothing is known to have ended: logs that just stop, or go on for nothing. Pure."""

from collections.abc import Sequence

from holdfast.core.diagnosis.clues import Clue
from holdfast.core.diagnosis.compare.comparison import INIT_STATE
from holdfast.core.diagnosis.edges import yields_to_any
from holdfast.core.diagnosis.sifting import IGNORED
from holdfast.late_pattern import late
from holdfast.model.signatures import SPOKEN, TRACEBACK_START

LAST_BYTES = 1 << 10  # of a log
CUT_OFF_BYTES = 8 << 10  # so long is a traceback whose end is lost
IGNORED_BYTES = 400  # from the words that an exception is ignored to its traceback
IS_NAN = frozenset({"loss-nan-in-log", "gradient-nan-in-log"})
FINITE_LOSS = late(r"(?i)(?<!val_)(?<!eval_)loss\b['\"]?\s{0,4}[:=]?\s{0,8}-?(?!0\.0\b)\d")


def last_words(
    seen: Sequence[Clue], every: Sequence[Clue], *, made_steps: bool, sizes_bytes: Sequence[int]
) -> list[Clue]:
    """The lines that tell it, all of one kind; none where nothing is the matter.

    `seen`: what counts of the last run; `every`: all clues of the job; the rest as `choose` takes it.
    """
    return (
        _goes_on_for_nothing(seen)
        or _compared_at_end(seen)
        or ([] if made_steps else _only_complaints(seen))
        or ([] if made_steps else _stuck_in_setup(seen))
        or _last_line(seen, sizes_bytes)
        or _cut_off(every, sizes_bytes)
    )


def of_excerpt(clues: Sequence[Clue]) -> list[Clue]:
    """Of a few lines that somebody cut out: what a whole log would go on after is what worries them.

    A warning; else a stack without an error, which somebody took because the job stood still there.
    """
    if any(clue.role == "end-ok" for clue in clues):
        return []
    warned = [
        clue
        for clue in clues
        if clue.role == "cause"
        and clue.severity == "warning"
        and clue.category != "none"
        and not clue.survived
        and clue.signature.id != SPOKEN
    ]
    surest = max((clue.weight for clue in warned), default=0.0)
    return [clue for clue in warned if clue.weight == surest]


def _only_complaints(clues: Sequence[Clue]) -> list[Clue]:
    """Of a job that neither made a step nor finished: a complaint that alone ends none, where it is all there is."""
    if any(clue.role == "end-ok" for clue in clues):
        return []
    return [
        clue
        for clue in clues
        if clue.severity == "warning"
        and clue.category != "none"
        and not clue.survived
        and clue.signature.id != SPOKEN
        and (clue.role == "symptom" or yields_to_any(clue))
    ]


def _stuck_in_setup(clues: Sequence[Clue]) -> list[Clue]:
    """Of a job that neither made a step nor finished: ranks that began to set up a communicator, and never ended it."""
    if any(clue.role == "end-ok" for clue in clues):
        return []
    return [clue for clue in clues if clue.signature.id == INIT_STATE and clue.role == "cause"]


def _goes_on_for_nothing(clues: Sequence[Clue]) -> list[Clue]:
    """A training whose loss, or gradient, is no number any more, to its last step: nothing ended, and nothing is learned."""
    return [
        clue
        for clue in clues
        if clue.signature.id in IS_NAN
        and not clue.survived
        and clue.sighting.count > 1
        and not FINITE_LOSS.search(clue.sighting.text)
    ]


def _compared_at_end(clues: Sequence[Clue]) -> list[Clue]:
    """Ranks or nodes whose last lines, compared, show that they cannot go on together."""
    return [
        clue
        for clue in clues
        if clue.ruling is not None
        and clue.ruling.of_end
        and clue.role == "cause"
        and clue.severity == "warning"
    ]


def _last_line(clues: Sequence[Clue], sizes_bytes: Sequence[int]) -> list[Clue]:
    """A program that speaks of an error with its last words, and of no work that was done."""
    if any(clue.role == "end-ok" for clue in clues):
        return []
    return [
        clue
        for clue in clues
        if clue.signature.id == SPOKEN
        and clue.role != "context"
        and not clue.survived
        and _is_near_end(clue, sizes_bytes, LAST_BYTES)
    ]


def _cut_off(clues: Sequence[Clue], sizes_bytes: Sequence[int]) -> list[Clue]:
    """A log that ends in the midst of a traceback, and tells of no work that was done."""
    if any(clue.role == "end-ok" for clue in clues):
        return []
    return [
        clue
        for clue in clues
        if clue.signature.id == TRACEBACK_START
        and not clue.survived
        and _is_near_end(clue, sizes_bytes, CUT_OFF_BYTES)
        and not any(_closes(other, clue) for other in clues)
    ]


def _is_near_end(clue: Clue, sizes_bytes: Sequence[int], within_bytes: int) -> bool:
    """Of its source, where the size of that is known."""
    seen = clue.sighting
    return seen.source < len(sizes_bytes) and sizes_bytes[seen.source] - seen.last_offset < within_bytes


def _closes(other: Clue, begun: Clue) -> bool:
    """Whether it stands behind the last beginning of a traceback, or right before it as what makes it harmless."""
    if other.signature.id == TRACEBACK_START or other.sighting.source != begun.sighting.source:
        return False
    ahead = other.sighting.last_offset - begun.sighting.last_offset
    return ahead > 0 or other.signature.id == IGNORED and -ahead < IGNORED_BYTES
