"""Decides which candidate explains which other candidate, from the `explained_by` lists of signatures.

Pure.
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate, is_before, is_much_later

ANY_CAUSE = "*"
OUTSIDE = ("process", "scheduler")
NOT_LATER = (*OUTSIDE, "communication")  # a lost connection or a late rank is followed by errors of all kinds
LATE_BYTES = 64 << 10  # of a log that several ranks write: how far their lines are out of order


def names(edge: str, candidate: Candidate) -> bool:
    """Returns whether an entry of `explained_by` includes a candidate.

    The entry is "#id" of a signature, a category, a class, or "*" for any cause.
    """
    if edge == ANY_CAUSE:
        return candidate.role == "cause" and ANY_CAUSE not in candidate.signature.explained_by
    if edge.startswith("#"):
        return candidate.signature.id == edge[1:]
    return edge in (candidate.category, candidate.class_) or (
        edge == "xid_N" and candidate.category.startswith("xid_")
    )


def follows_from(effect: Candidate, cause: Candidate) -> bool:
    """Returns whether the effect's signature lists this cause by its id or category, and not only by "*" or by its
    class.
    """
    return any(names(edge, cause) for edge in effect.signature.explained_by if edge != ANY_CAUSE)


def explains(cause: Candidate, effect: Candidate) -> bool:
    """Returns whether a cause explains an effect.

    The order of the lines matters only if both could explain each other, because buffered stdout can be
    written after a later error on stderr.
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
        return is_before(cause, effect) is not False or _is_logged_late(cause, effect)
    return True


def _is_logged_late(cause: Candidate, effect: Candidate) -> bool:
    """Returns whether another rank's exception, logged a little below the effect, is the cause of the effect.

    It can be logged late because ranks flush their output at different times.
    """
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
    """Returns whether a candidate is about a process that was asked to stop.

    Errors during such a stop are expected, so only something earlier can be the reason.
    """
    return candidate.class_ in OUTSIDE and yields_to_any(candidate)


def yields_to_any(candidate: Candidate) -> bool:
    """Returns whether a candidate counts as a cause only if there is no other one."""
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
