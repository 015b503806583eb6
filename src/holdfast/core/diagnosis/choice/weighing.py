"""Chooses among unexplained candidates by their kind, time and machine. Pure."""

from collections.abc import Sequence

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.candidates import BARE, CLOCK_SKEW_S, Candidate, stands_below
from holdfast.core.diagnosis.choice.edges import explainers, follows_from
from holdfast.core.diagnosis.choice.failure_table import failure_table

FEW_RANKS = 2
LINE_ORDER_S = 1.0  # lines of one log can be out of order by this
# From a break of a link to the error: retries take half a minute by default, two with NCCL_IB_TIMEOUT=22. And to the
# end of the ranks that wait, whose default time-out is half an hour.
BREAK_TO_ERROR_S, BREAK_TO_END_S = (-CLOCK_SKEW_S, 180.0), (-CLOCK_SKEW_S, 2100.0)
NAN_BYTES = 2 << 10  # of a log, from NaN in a step to the failure that names it
MACHINE = frozenset({"hardware", "host", "memory", "network"})  # classes


def breaks_before(causes: Sequence[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns failures of network links shortly before a failed transfer.

    A link failure alone is no fault, because retries bridge it. If the failed transfer has no time, the time at which
    the waiting ranks ended is used.
    """
    failed = [one for one in causes if one.has("transfer-failed") and not one.survived]
    times_s = [one.at_s for one in failed if one.at_s is not None]
    window_s = BREAK_TO_ERROR_S
    if failed and not times_s:
        ended = [
            one for one in candidates if one.signature.area == "worker" and one.class_ == "communication"
        ]
        times_s = [one.at_s for one in ended if one.at_s is not None and not one.survived]
        window_s = BREAK_TO_END_S
    return [
        one
        for one in candidates
        if one.has("link-break")
        and _is_warning(one)
        and any(_is_within(at_s, one.at_s, window_s) for at_s in times_s)
    ]


def nan_before(alive: Sequence[Candidate], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns lines with NaN shortly before a failure that names NaN as its cause."""
    return [
        one
        for one in candidates
        if one.has("loss-is-nan")
        and _is_warning(one)
        and any(
            follows_from(failed, one)
            and failed.match.source == one.match.source
            and 0 < failed.match.offset - one.match.last_offset < NAN_BYTES
            for failed in alive
            if not failed.has("loss-is-nan")
        )
    ]


def without_stumbled(
    unexplained: Sequence[Candidate], candidates: Sequence[Candidate]
) -> Sequence[Candidate]:
    """Returns the candidates without exceptions of ranks that had lost a peer before, if a machine failed.

    The order of lines in two logs depends on two clocks; the order within one log is certain.
    """
    if not any(one.class_ in MACHINE for one in unexplained):
        return unexplained
    lost = [
        one
        for one in candidates
        if one.class_ == "communication" and one.severity in ("fatal", "error") and not one.survived
    ]
    return [
        one
        for one in unexplained
        if not (
            one.class_ == "training"
            and one.is_traceback
            and any(stands_below(one, other) and _is_one_rank(one, other) for other in lost)
        )
    ]


def lesser(warnings: Sequence[Candidate], ends: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates that count if there is no cause: a process end with a reason, else a warning of a
    component.

    An end found by comparing ranks counts more than a warning. A termination by a person gives no reason; a warning
    of a device or transport since the last step can be one.
    """
    compared = [one for one in ends if one.ruling is not None and one.weight > BARE]
    sure = [
        one
        for one in warnings
        if not (one.has("vague-complaint") or one.weight <= BARE and one.ruling is None and compared)
    ]
    first = [one for one in ends if not explainers(one, ends)] or ends
    devices = any(one.has("vague-complaint") and one.signature.area != "scheduler" for one in warnings)
    says_how = any(not (one.has("no-cause-named") or devices and one.has("end-by-request")) for one in first)
    return sure or ([*ends] if says_how else [*warnings] or [*ends])


def without_bare(ends: Sequence[Candidate]) -> list[Candidate]:
    """Returns the process ends without those of launchers that only report a failure, if another end gives the
    reason.
    """
    if not any(one.weight > BARE and one.has("says-how-it-ended") for one in ends):
        return list(ends)
    return [one for one in ends if one.weight > BARE or not one.has("failure-of-program")]


def first_to_fail(
    root: Candidate, unexplained: Sequence[Candidate], candidates: Sequence[Candidate]
) -> Candidate:
    """Returns the root cause, or the same error of another rank that failed before.

    Ranks write to one log in any order: the launcher's table says who failed first, else the lines' own times. Where
    most ranks raise the error, none of them is the first: the program is at fault.
    """
    same = [one for one in unexplained if _is_same_error(one, root)]
    ranks = {one.writer.rank for one in same}
    known = {one.writer.rank for one in candidates} - {None}
    if len(ranks) < 2 or len(ranks) > FEW_RANKS and 2 * len(ranks) > len(known):
        return root
    tables = [one for one in candidates if one.has("root-cause-header")]
    reported = failure_table(candidates) if sum(one.match.count for one in tables) == 1 else None
    if reported is not None:
        return next((one for one in same if one.writer.rank == reported.rank), root)
    stamped = [one for one in same if one.writer.stamp_s is not None]
    first = min(stamped, key=lambda one: one.writer.stamp_s or 0.0, default=root)
    at_s, root_s = first.writer.stamp_s, root.writer.stamp_s
    if at_s is None or root_s is None or not are_comparable(at_s, root_s):
        return root
    return first if root_s - at_s > LINE_ORDER_S else root


def _is_same_error(one: Candidate, root: Candidate) -> bool:
    is_same = (one.signature.id, one.category) == (root.signature.id, root.category)
    return is_same and one.writer.rank is not None


def without_late_requests(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without requests to end that follow an error in the same log, because they are the
    launcher's clean-up.
    """
    errors = [one for one in candidates if not one.has("end-by-request") and one.weight > BARE]
    kept = [
        one
        for one in candidates
        if not (
            one.has("end-by-request")
            and one.class_ == "process"
            and any(stands_below(one, error) and _is_one_rank(one, error) for error in errors)
        )
    ]
    return kept or list(candidates)


def _is_warning(one: Candidate) -> bool:
    return one.role == "cause" and one.severity == "warning"


def _is_within(at_s: float, since_s: float | None, window_s: tuple[float, float]) -> bool:
    if since_s is None or not are_comparable(since_s, at_s):
        return False
    return window_s[0] <= at_s - since_s <= window_s[1]


def _is_one_rank(one: Candidate, other: Candidate) -> bool:
    return len({one.writer.rank, other.writer.rank} - {None}) <= 1
