"""Chooses the clue that all others follow from, and says what was left over. Pure.

A job ends by what it did not survive. So a fault after which training went on counts only where the job died
and nothing later says why; a complaint counts only where no cause explains it; and where nothing died, nothing
was wrong.
"""

from collections.abc import Sequence
from functools import reduce

from msgspec import Struct

from holdfast.core.diagnosis.clues import Clue, is_before
from holdfast.core.diagnosis.edges import explainers

NEAR_BYTES = (
    256 << 10
)  # of an end: what stands so close before it can be its reason, though steps came between
SURE = 0.75  # a signature of at least this weight is not doubted for a vague one before it
VAGUE = 0.6


class Choice(Struct, frozen=True, eq=False):
    """`root` None: nothing was wrong, or, with `died`, nothing tells what. `rivals`: other unexplained causes.

    `followers`: what the root explains, directly or not. `witnesses`: others that saw the same as the root.
    """

    root: Clue | None
    died: bool
    rivals: tuple[Clue, ...] = ()
    followers: tuple[Clue, ...] = ()
    witnesses: tuple[Clue, ...] = ()


def choose(clues: Sequence[Clue]) -> Choice:
    """The first cause among all clues of a job."""
    symptoms = [clue for clue in clues if clue.signature.role == "symptom" and clue.category != "none"]
    ends = [clue for clue in symptoms if clue.signature.severity in ("fatal", "error") and not clue.survived]
    deaths = [clue for clue in ends if not _work_was_done_after(clue, clues)]
    causes = [clue for clue in clues if is_cause(clue)]
    alive = [clue for clue in causes if not clue.survived and not _ended_well_after(clue, clues, deaths)]
    pool = alive or [clue for clue in causes if _near_a_death(clue, deaths)]
    if not pool:
        pool = _warnings(clues, deaths) or deaths
    if not pool:
        return Choice(root=None, died=bool(ends))
    unexplained = [clue for clue in pool if not explainers(clue, pool)] or pool
    root = first_of(without_vague(unexplained))
    rest = [clue for clue in clues if clue is not root and clue.signature.role in ("cause", "symptom")]
    return Choice(
        root=root,
        died=bool(ends),
        rivals=tuple(clue for clue in unexplained if clue.category != root.category),
        followers=tuple(clue for clue in rest if explainers(clue, [root])),
        witnesses=tuple(clue for clue in pool if clue.category == root.category),
    )


def is_cause(clue: Clue) -> bool:
    """A traceback that no signature knows is a cause too, if a vague one."""
    signature = clue.signature
    return (
        clue.is_traceback
        and signature.role == "context"
        or (signature.role == "cause" and signature.severity in ("fatal", "error"))
    )


def first_of(clues: Sequence[Clue]) -> Clue:
    """The earliest; where nothing tells the order, the surest."""
    return reduce(_earlier, clues)


def without_vague(clues: Sequence[Clue]) -> list[Clue]:
    """A caught exception is often logged long before what ends the job: it yields where something sure is known."""
    if any(clue.signature.weight >= SURE for clue in clues):
        return [clue for clue in clues if clue.signature.weight > VAGUE]
    return list(clues)


def _earlier(one: Clue, other: Clue) -> Clue:
    before = is_before(one, other)
    if before is None:
        before = (-one.signature.weight, one.order) < (-other.signature.weight, other.order)
    return one if before else other


def _work_was_done_after(clue: Clue, clues: Sequence[Clue]) -> bool:
    return any(
        done.signature.role == "end-ok"
        and is_before(clue, done)
        and done.sighting.source == clue.sighting.source
        for done in clues
    )


def _ended_well_after(clue: Clue, clues: Sequence[Clue], deaths: Sequence[Clue]) -> bool:
    """The job said that its work was done, before or after this, and nothing died."""
    return not deaths and any(done.signature.role == "end-ok" for done in clues)


def _near_a_death(clue: Clue, deaths: Sequence[Clue]) -> bool:
    return any(
        clue.sighting.source != death.sighting.source
        or abs(death.sighting.offset - clue.sighting.last_offset) < NEAR_BYTES
        for death in deaths
    )


def _warnings(clues: Sequence[Clue], deaths: Sequence[Clue]) -> list[Clue]:
    if not deaths:
        return []
    return [
        clue
        for clue in clues
        if clue.signature.role == "cause" and clue.signature.severity == "warning" and not clue.survived
    ]
