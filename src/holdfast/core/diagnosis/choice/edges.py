"""Decides which match explains which, by the edges that signatures declare. Pure."""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate, is_before, is_much_later

ANY_CAUSE = "*"
OUTSIDE = ("process", "scheduler")
NOT_LATER = (*OUTSIDE, "communication")  # a lost connection or a late rank is followed by errors of all kinds
LATE_BYTES = 64 << 10  # of a log that several ranks write: how far their lines are out of order


def names(edge: str, candidate: Candidate) -> bool:
    """True if the edge names this candidate: "#id", a category, a class, or "*" for any cause."""
    if edge == ANY_CAUSE:
        return candidate.role == "cause" and ANY_CAUSE not in candidate.signature.explained_by
    if edge.startswith("#"):
        return candidate.signature.id == edge[1:]
    return edge in (candidate.category, candidate.class_) or (
        edge == "xid_N" and candidate.category.startswith("xid_")
    )


def follows_from(effect: Candidate, cause: Candidate) -> bool:
    """True if the effect's signature names this cause specifically."""
    return any(names(edge, cause) for edge in effect.signature.explained_by if edge != ANY_CAUSE)


def explains(cause: Candidate, effect: Candidate) -> bool:
    """True if cause explains effect.

    The order of lines counts only where both could explain each other: what a process writes to its output
    arrives later than what it writes as an error, however early it was written.
    """
    if cause is effect or cause.signature.id == effect.signature.id or is_much_later(cause, effect):
        return False
    if not _declared(cause, effect):
        return False
    if cause.has("exit-code-of-script") and is_before(cause, effect) is False:
        return (
            False  # a script prints the exit code of its launcher after the launcher has reported its tasks
        )
    if _declared(effect, cause):
        return is_before(cause, effect) is True
    if effect.class_ in NOT_LATER and yields_to_any(effect):
        return is_before(cause, effect) is not False or _is_told_late(cause, effect)
    return True


def _is_told_late(cause: Candidate, effect: Candidate) -> bool:
    """Another rank's own mistake, a little below the line of this one about its effect; ranks flush their output when they like."""
    ranks = (cause.writer.rank, effect.writer.rank)
    return (
        effect.class_ == "communication"
        and cause.has("own-mistake")
        and cause.is_traceback
        and None not in ranks
        and ranks[0] != ranks[1]
        and cause.match.source == effect.match.source
        and 0 < cause.match.offset - effect.match.offset < LATE_BYTES
    )


def ends_from_outside(candidate: Candidate) -> bool:
    """True if the process was asked to stop: it may fail while stopping, so only something earlier can be the reason."""
    return candidate.class_ in OUTSIDE and yields_to_any(candidate)


def yields_to_any(candidate: Candidate) -> bool:
    """True if it counts as a cause only if there is no other."""
    return candidate.role == "cause" and ANY_CAUSE in candidate.signature.explained_by


def explainers(effect: Candidate, among: Sequence[Candidate]) -> list[Candidate]:
    return [cause for cause in among if explains(cause, effect)]


def _declared(cause: Candidate, effect: Candidate) -> bool:
    by = effect.signature.explained_by
    if not by and effect.role == "symptom":
        by = (ANY_CAUSE,)
    return any(names(edge, cause) for edge in by) or any(
        names(edge, effect) for edge in cause.signature.explains
    )
