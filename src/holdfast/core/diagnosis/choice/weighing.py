"""Chooses among unexplained candidates by their kind, time and machine. Pure."""

from collections.abc import Sequence

from holdfast.core.clock_offsets import are_comparable
from holdfast.core.diagnosis.candidates import BARE, CLOCK_SKEW_S, Candidate, is_cause, stands_below
from holdfast.core.diagnosis.choice.edges import explainers, follows_from
from holdfast.model.signatures import EXCEPTION

SURE = 0.75  # a signature of at least this weight is not doubted for a vague one before it
VAGUE = 0.6
LIKELY = 0.5
# From a break of a link to the error: retries take half a minute by default, two with NCCL_IB_TIMEOUT=22. And to the
# end of the ranks that wait, whose default time-out is half an hour.
BREAK_TO_ERROR_S, BREAK_TO_END_S = (-CLOCK_SKEW_S, 180.0), (-CLOCK_SKEW_S, 2100.0)
LIMIT_BYTES = 16 << 10  # of a log, from an exception to the time limit of a job that hung because of it
NAN_BYTES = 2 << 10  # of a log, from NaN in a step to the failure that names it
PROGRAM_ENDS_S = 3600.0  # a program that has caused an Xid has ended by then
MACHINE = frozenset({"hardware", "host", "memory", "network"})  # classes
FOR_GOOD = frozenset({"hardware", "host", "memory"})  # classes of faults that do not go away as a link's do


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


def without_returned_links(unexplained: Sequence[Candidate]) -> Sequence[Candidate]:
    """Returns the candidates without links that recovered, if a device or the kernel failed permanently."""
    for_good = any(one.severity == "fatal" and one.class_ in FOR_GOOD for one in unexplained)
    return [one for one in unexplained if not one.has("link-break")] if for_good else unexplained


def without_ended_programs(
    unexplained: Sequence[Candidate], candidates: Sequence[Candidate]
) -> list[Candidate]:
    """Returns the candidates without Xid errors caused by a program, hours before a fault of the machine.

    They ended another program. Applied only if no log of a job shows what ended when.
    """
    if any(one.signature.area == "worker" and is_cause(one) for one in candidates):
        return list(unexplained)
    machines = [
        one
        for one in unexplained
        if one.severity == "fatal"
        and one.class_ in MACHINE
        or one.has("ecc-error-xid")
        or one.has("link-xid")
    ]
    return [
        one
        for one in unexplained
        if not (
            one.has("program-xid")
            and any(_seconds_before(one, other) > PROGRAM_ENDS_S for other in machines if other is not one)
        )
    ]


def without_outlived_crashes(unexplained: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without crashes of programs in the log of a kernel that failed later.

    The machine outlived them; a program's own mistake makes no kernel panic.
    """
    failed = [one for one in unexplained if one.severity == "fatal" and one.has("kernel-failed")]
    return [
        one
        for one in unexplained
        if not (one.has("crash-of-any-program") and any(stands_below(kernel, one) for kernel in failed))
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


def without_vague(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Returns the candidates without caught exceptions, if there is a better candidate.

    Caught exceptions are often logged long before the job ends.
    """
    sure = [one for one in candidates if one.weight >= SURE]
    if sure:
        return [one for one in candidates if one.weight > VAGUE or _raised_before_limit(one, sure)]
    known = [one for one in candidates if one.signature.id != EXCEPTION and one.weight >= LIKELY]
    return known or list(candidates)


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


def _raised_before_limit(one: Candidate, sure: Sequence[Candidate]) -> bool:
    """An exception after which the log ends but for the time limit: the other ranks waited for this one."""
    return one.is_traceback and all(
        end.has("ends-a-hang")
        and stands_below(end, one)
        and end.match.offset - one.match.last_offset < LIMIT_BYTES
        for end in sure
    )


def _is_warning(one: Candidate) -> bool:
    return one.role == "cause" and one.severity == "warning"


def _is_within(at_s: float, since_s: float | None, window_s: tuple[float, float]) -> bool:
    if since_s is None or not are_comparable(since_s, at_s):
        return False
    return window_s[0] <= at_s - since_s <= window_s[1]


def _seconds_before(one: Candidate, later: Candidate) -> float:
    """Returns by how many seconds one candidate precedes the other; 0 if unknown."""
    if one.at_s is not None and later.at_s is not None and are_comparable(one.at_s, later.at_s):
        return later.at_s - one.at_s
    if one.uptime_s is not None and later.uptime_s is not None:
        return later.uptime_s - one.uptime_s
    return 0.0


def _is_one_rank(one: Candidate, other: Candidate) -> bool:
    return len({one.writer.rank, other.writer.rank} - {None}) <= 1
