"""Makes the first verdict on a failed attempt: which rank failed first, why, and what to do. Pure.

Evidence is ordered by kind and time, because the most visible error usually comes from a rank that failed as
a consequence. The input is parsed already. Any input gives exactly one verdict.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.verdict.sentences import (
    RANKS_NAMED_MAX,
    UNSAID_FULL,
    by_signal,
    cut,
    ended_by,
    exit_words,
    made_verdict,
    no_room,
    of_error,
    of_exit,
    oom_category,
)
from holdfast.core.verdict.trouble import (
    KILL,
    LAUNCHERS,
    MILD,
    End,
    Trouble,
    as_signal,
    first_by_rank,
    is_complaint,
    weight_of,
)
from holdfast.model.failures import ErrorRecord, Failure, LauncherWord, RankExit
from holdfast.model.samples import Hang
from holdfast.model.verdicts import Culprit, Evidence, Verdict

APART_S = 0.1  # minimum between the ends of two ranks for their errors to be in the same order
SKEW_S = 2.0  # ends are seen by polling and clocks differ: within it, the kind of failure decides before time
# A rank that ends this soon after its last activity may be why others wait; later, it was ended from outside.
HANG_SKEW_S = 5.0
HANG = "hang ("  # start of the first error in a verdict on a hang


def first_verdict(failure: Failure) -> Verdict:
    """Returns the first verdict on a failed attempt.

    Causes outside the ranks come first, then an error of a rank itself, then a hang, then errors that are
    consequences of another rank's failure.
    """
    return (
        _not_started(failure)
        or _hardware(failure)
        or _hang_or_what_broke_before(failure)
        or _asked_to_stop(failure)
        or _first_trouble(failure, troubles(failure))
        or _by_command_code(failure)
    )


# --- what is outside the ranks


def _not_started(failure: Failure) -> Verdict | None:
    if not failure.command_error:
        return None
    seen = Evidence(text=cut(failure.command_error), says="the command could not be started")
    return made_verdict(
        "launcher_config", f"the command could not be started: {seen.text}", 0.95, first_error=seen
    )


def _hardware(failure: Failure) -> Verdict | None:
    if failure.lost_nodes:
        names = ", ".join(failure.lost_nodes[:RANKS_NAMED_MAX])
        seen = Evidence(text=cut(f"lost: {names}"), says="the node no longer answers")
        culprits = tuple(Culprit(host=node) for node in failure.lost_nodes)
        return made_verdict("node_down", f"node {names} is gone", 0.95, first_error=seen, culprits=culprits)
    if failure.devices:
        names = ", ".join(failure.devices[:RANKS_NAMED_MAX])
        category = "npu_fault" if re.search(r"npu|ascend|davinci", names, re.IGNORECASE) else "gpu_fault"
        seen = Evidence(text=cut(names), says="the device reported a fault")
        culprits = tuple(Culprit(device=device) for device in failure.devices)
        return made_verdict(category, f"device fault: {cut(names)}", 0.9, first_error=seen, culprits=culprits)
    return None


def _asked_to_stop(failure: Failure) -> Verdict | None:
    if not failure.stop_requested:
        return None
    seen = Evidence(
        text="a stop was requested", says="the job was ended on request; nothing is wrong with it"
    )
    return made_verdict("terminated", "the job was asked to stop", 0.95, first_error=seen)


def _hang_or_what_broke_before(failure: Failure) -> Verdict | None:
    """Returns the verdict on a hang; on a rank's own error if that happened as the hang began, since it
    explains the wait.
    """
    hang = failure.hang
    if hang is None:
        return None
    until_s = hang.since_s + HANG_SKEW_S
    before = [
        trouble for trouble in troubles(failure) if trouble.at_s is not None and trouble.at_s <= until_s
    ]
    own = [trouble for trouble in before if trouble.weight == 0]
    return (_first_trouble(failure, own) if own else None) or _of_hang(hang)


def _of_hang(hang: Hang) -> Verdict:
    category = {
        "stopped": "process_stopped",
        "exit-hang": "teardown_hang",
        "blocked-io": "dataloader_stuck",
    }.get(hang.kind, "collective_missing_rank" if hang.culprits else "collective_timeout")
    if category == "collective_missing_rank" and re.search(r"data_?loader", hang.why.partition(";")[0]):
        category = "dataloader_stuck"
    if hang.kind == "silent" and not hang.culprits:
        category = "unknown"
    category = hang.category or category
    seen = Evidence(text=f"{HANG}{hang.kind})", says=cut(hang.why), at_s=hang.since_s)
    culprits = tuple(Culprit(rank=rank) for rank in hang.culprits)
    title = (
        "; ".join(hang.why.split("; ")[:2]) or f"the job hangs ({hang.kind})"
    )  # the rest is in the evidence
    confidence = min(1.0, max(0.0, hang.confidence))
    return made_verdict(category, cut(title), confidence, first_error=seen, culprits=culprits)


def _by_command_code(failure: Failure) -> Verdict:
    code = as_signal(failure.command_code)
    if code is None:
        return made_verdict("unknown", "nothing explains it", 0.0)
    if code == 0 and failure.command_code == 0:
        return made_verdict("none", "nothing is wrong: the command ended with code 0", 0.9)
    seen = Evidence(text=f"the command ended with {exit_words(code)}")
    if code < 0:
        category = oom_category(failure, None) if code == KILL else ""
        title = f"the command was {ended_by(code)}"
        return made_verdict(category or by_signal(code), title, 0.7, first_error=seen)
    if code in (126, 127):
        return made_verdict(
            "launcher_config", f"the command could not be run (code {code})", 0.9, first_error=seen
        )
    if failure.output_full:
        return made_verdict("disk_full", f"{seen.text}: {no_room(failure)}", UNSAID_FULL, first_error=seen)
    return made_verdict("unknown", f"{seen.text}; nothing says why", 0.2, first_error=seen)


# --- who was first


def troubles(failure: Failure) -> list[Trouble]:
    """Returns the failures of single ranks: one per rank that failed or logged an error, one per error of an
    unknown rank.
    """
    exits = _exits(failure)
    words = {one.rank: one for one in reversed(failure.launcher_words) if one.rank is not None}
    ends: dict[int, End] = {**words, **exits}
    root = failure.elastic[0].rank if failure.elastic else None
    errors: dict[int, ErrorRecord] = {}
    homeless: dict[tuple[str, str], ErrorRecord] = {}
    for error in (*failure.errors, *failure.tracebacks):
        if error.type.endswith(LAUNCHERS):
            continue
        if error.rank is None:
            homeless.setdefault((error.type, error.message), error)
        else:
            errors[error.rank] = _earlier(errors.get(error.rank), error)
    for error in errors.values():
        homeless.pop((error.type, error.message), None)
    left = _left_before(failure, exits)
    found: list[Trouble | None] = [
        left[rank] if rank in left else _of_rank(ends.get(rank), errors.get(rank), root)
        for rank in sorted({*ends, *errors, *left})
    ]
    found += [_of_rank(None, error, root) for error in homeless.values()]
    found += [_of_rank(one, None, root) for one in _homeless_deaths(failure)]
    return [trouble for trouble in found if trouble is not None]


def _exits(failure: Failure) -> dict[int, RankExit]:
    """Returns the first end of each rank.

    An exit code that was not observed is taken from the launcher's report. An end that only the launcher reports is later
    than those observed: its report has no time that could be compared with theirs.
    """
    seen = first_by_rank(failure.exits)
    after_s = max((exit.at_s + APART_S for exit in seen.values()), default=0.0)
    reported = {
        rank: replace(exit, at_s=max(exit.at_s, after_s))
        for rank, exit in first_by_rank(failure.elastic).items()
    }
    codes = {one.rank: one.code for one in failure.launcher_words} | {
        rank: one.code for rank, one in reported.items()
    }
    for rank, exit in seen.items():
        if exit.code is None and rank in codes:
            seen[rank] = replace(exit, code=codes[rank])
        elif exit.code is None and failure.command_code == 0:
            seen[rank] = replace(exit, code=0)  # a launcher that ends well has seen its ranks end well
    return reported | seen


def _homeless_deaths(failure: Failure) -> list[LauncherWord]:
    """Returns the launcher's reports of processes that a signal ended and whose rank is unknown."""
    pids = {one.pid for one in failure.exits}
    return [
        one
        for one in failure.launcher_words
        if one.rank is None and one.pid not in pids and weight_of(None, one) == 0
    ]


def _left_before(failure: Failure, exits: Mapping[int, RankExit]) -> dict[int, Trouble]:
    """Returns the ranks that had begun to exit before other ranks waited for them, even if the launcher then
    ended them.
    """
    complaints = [error.at_s for error in failure.errors if error.at_s is not None and is_complaint(error)]
    had_errors = {error.rank for error in (*failure.errors, *failure.tracebacks)}
    found = {}
    for one in failure.left:
        end = exits.get(one.rank)
        code = as_signal(end.code) if end else None
        if complaints and one.at_s <= min(complaints) and one.rank not in had_errors:
            if code in (None, 0, *MILD):
                exit = replace(one, code=0)
                found[one.rank] = Trouble(
                    weight=1, rank=one.rank, worker=one.worker, at_s=one.at_s, exit=exit
                )
    return found


def _earlier(known: ErrorRecord | None, new: ErrorRecord) -> ErrorRecord:
    """Returns the earlier error of a rank.

    A recorded error is preferred to the same error in a log: it has more detail.
    """
    if known is None:
        return new
    if known.at_s is None or new.at_s is None:
        return known
    return new if new.at_s < known.at_s and new.type != known.type else known


def _of_rank(exit: End | None, error: ErrorRecord | None, root: int | None) -> Trouble | None:
    weight = weight_of(error, exit)
    if weight is None:
        return None
    # A launcher reports an end some time later: its time must not be compared with those of other ends.
    timed = (error, None if isinstance(exit, LauncherWord) else exit)
    times = [seen.at_s for seen in timed if seen is not None and seen.at_s is not None]
    rank = exit.rank if exit else error.rank if error else None
    worker = exit.worker if exit else error.worker if error else None
    return Trouble(
        weight=weight,
        rank=rank,
        worker=worker,
        at_s=min(times, default=None),
        error=error,
        exit=exit,
        is_root=root is not None and rank == root,
    )


def _first_trouble(failure: Failure, found: Sequence[Trouble]) -> Verdict | None:
    if not found:
        return None
    start_s = min((trouble.at_s for trouble in found if trouble.at_s is not None), default=0.0)
    late_s = start_s + SKEW_S
    near = [trouble for trouble in found if trouble.at_s is None or trouble.at_s <= late_s]
    first = min(near, key=lambda trouble: _precedence(trouble, late_s))
    alike = [trouble for trouble in near if trouble is first or _same_fault(first, trouble)]
    alike = _with_home(alike, near)
    first = next((trouble for trouble in alike if trouble.error == first.error), first)
    others = [trouble for trouble in found if all(trouble.rank != one.rank for one in alike)]
    return of_error(failure, first, alike, others) if first.error else of_exit(failure, first, alike, others)


def _precedence(trouble: Trouble, late_s: float) -> tuple[int, bool, float, bool, int]:
    """Returns the sort key of a rank's failure: the first one is the cause.

    The order is: weight; among consequences, the launcher's first failure; time; known ranks before unknown
    ones.
    """
    at_s = late_s if trouble.at_s is None else trouble.at_s
    not_root = trouble.weight == 2 and not trouble.is_root
    return trouble.weight, not_root, at_s, trouble.rank is None, trouble.rank or 0


def _same_fault(first: Trouble, other: Trouble) -> bool:
    """Returns whether two ranks failed of the same fault.

    Ends without an error count only at exactly the same time, because launchers kill the other ranks soon
    after the first.
    """
    if first.weight != other.weight or (first.error is None) != (other.error is None):
        return False
    if first.error and other.error:
        return first.weight == 0 and (first.error.type, first.error.message) == (
            other.error.type,
            other.error.message,
        )
    same = first.exit and other.exit and as_signal(first.exit.code) == as_signal(other.exit.code)
    return bool(same) and first.at_s == other.at_s and first.weight < 2


def _with_home(alike: list[Trouble], near: Sequence[Trouble]) -> list[Trouble]:
    """Returns the first failures with the rank of an error whose rank is unknown.

    It is the only rank that ended with a non-zero code and without an error. If there are as many such errors
    as such ranks, with different times, they are paired in order of time.
    """
    if len(alike) != 1 or alike[0].rank is not None or alike[0].error is None:
        return alike
    silent = [trouble for trouble in near if trouble.weight == 1]
    if len(silent) > 1:
        silent = sorted(
            (trouble for trouble in silent if trouble.at_s is not None),
            key=lambda trouble: trouble.at_s or 0.0,
        )
    homeless = [trouble for trouble in near if trouble.rank is None and trouble.error is not None]
    ends = [trouble.at_s or 0.0 for trouble in silent]
    is_apart = all(after - before >= APART_S for before, after in zip(ends, ends[1:], strict=False))
    if not silent or (len(silent) > 1 and (len(silent) != len(homeless) or not is_apart)):
        return alike
    home = silent[0] if len(silent) == 1 else silent[homeless.index(alike[0])]
    return [replace(alike[0], rank=home.rank, worker=home.worker, exit=home.exit)]


# --- words
