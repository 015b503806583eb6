"""Which sighting explains which: the edges that signatures declare, laid over what was seen."""

from collections.abc import Sequence

from holdfast.core.diagnosis.clues import Clue, is_before, is_much_later
from holdfast.core.diagnosis.words.wordings import ENDED

ANY_CAUSE = "*"
OUTSIDE = ("process", "scheduler")
NOT_LATER = (*OUTSIDE, "communication")  # a lost connection or a late rank is followed by errors of all kinds
# But not by these: whatever happened to its peers, a rank has them of itself. So they can be told late, not come late.
OF_ITSELF = frozenset(
    {
        *(
            "import_error",
            "version_mismatch",
            "compile_error",
            "python_exception",
            "launcher_config",
            "data_error",
        ),
        *("checkpoint_load_error", "permission_error", "disk_full", "gpu_oom", "device_side_assert"),
    }
)
LATE_BYTES = 64 << 10  # of a log that several ranks write: how far their lines are out of order


def names(edge: str, clue: Clue) -> bool:
    """Whether the edge speaks of this clue: "#id", a category, a class, or "*" for any cause."""
    if edge == ANY_CAUSE:
        return clue.role == "cause" and ANY_CAUSE not in clue.signature.explained_by
    if edge.startswith("#"):
        return clue.signature.id == edge[1:]
    return edge in (clue.category, clue.class_) or (edge == "xid_N" and clue.category.startswith("xid_"))


def follows_from(effect: Clue, cause: Clue) -> bool:
    """Whether the effect's own signature names this cause, and not just any."""
    return any(names(edge, cause) for edge in effect.signature.explained_by if edge != ANY_CAUSE)


def explains(cause: Clue, effect: Clue) -> bool:
    """Whether cause accounts for effect.

    The order of lines counts only where both could explain each other: what a process writes to its output
    arrives later than what it writes as an error, however early it was written.
    """
    if cause is effect or cause.signature.id == effect.signature.id or is_much_later(cause, effect):
        return False
    if not _declared(cause, effect):
        return False
    if cause.signature.id == ENDED and is_before(cause, effect) is False:
        return False  # a script tells with which code its launcher ended after that told of its tasks
    if _declared(effect, cause):
        return is_before(cause, effect) is True
    if effect.class_ in NOT_LATER and yields_to_any(effect):
        return is_before(cause, effect) is not False or _is_told_late(cause, effect)
    return True


def _is_told_late(cause: Clue, effect: Clue) -> bool:
    """Another rank's own mistake, which stands a little below what it did to this one; ranks flush when they like."""
    ranks = (cause.writer.rank, effect.writer.rank)
    return (
        effect.class_ == "communication"
        and cause.category in OF_ITSELF
        and cause.is_traceback
        and None not in ranks
        and ranks[0] != ranks[1]
        and cause.sighting.source == effect.sighting.source
        and 0 < cause.sighting.offset - effect.sighting.offset < LATE_BYTES
    )


def ends_from_outside(clue: Clue) -> bool:
    """Whoever is told to stop may stumble while stopping: only what came before can be why it was told."""
    return clue.class_ in OUTSIDE and yields_to_any(clue)


def yields_to_any(clue: Clue) -> bool:
    """A cause of its own, and only where there is no other."""
    return clue.role == "cause" and ANY_CAUSE in clue.signature.explained_by


def explainers(effect: Clue, among: Sequence[Clue]) -> list[Clue]:
    return [cause for cause in among if explains(cause, effect)]


def _declared(cause: Clue, effect: Clue) -> bool:
    by = effect.signature.explained_by
    if not by and effect.role == "symptom":
        by = (ANY_CAUSE,)
    return any(names(edge, cause) for edge in by) or any(
        names(edge, effect) for edge in cause.signature.explains
    )
