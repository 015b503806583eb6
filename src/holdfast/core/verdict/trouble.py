"""Describes one rank's failure: its first error, its end, and how likely it is a consequence of another's.

Pure.
"""

import re
from collections.abc import Iterable
from typing import TypeAlias

from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.failures import ErrorRecord, LauncherWord, RankExit

TERM, KILL = -15, -9


MILD = (TERM, -1, -2, -13)  # signals by which launchers, terminals and schedulers end ranks that did nothing


CONNECTION = late(
    r"closed by (remote )?peer|Connection reset|Broken pipe|Connection refused|remote error|ncclRemoteError"
    r"|ncclSystemError|Connection was likely closed|[Rr]emote process exited|Socket closed|recvValue failed"
    r"|[Ff]ailed to (recv|send)|Broken connection|TCPStore.*(timed? ?out|timeout)|wait timeout after|Socket Timeout"
    r"|Timed out (waiting|after) \d+ ?(ms|seconds)|collective operation timeout|NCCL communicator was aborted"
    r"|Software caused connection abort|Timed out waiting for .*(peer|rank|store|recv)",
    re.DOTALL,
)


CONNECTION_TYPES = ("ConnectionResetError", "BrokenPipeError", "ConnectionAbortedError", "EOFError")


LAUNCHERS = (
    *("ChildFailedError", "CalledProcessError", "ProcessExitedException", "ProcessRaisedException"),
    *("ActorDiedError", "RayActorError", "WorkerCrashedError", "WorkerGroupError", "ActorUnavailableError"),
    "DeadKernelError",
)


FROM_OUTSIDE = ("KeyboardInterrupt", "SignalException", "SystemExit", "GracefulExit")


End: TypeAlias = RankExit | LauncherWord  # observed by the reaper, or reported in a launcher's output


class Trouble(Struct, frozen=True, kw_only=True):
    """One rank's failure: its first error, its end, or both.

    `weight`: 0 for a fault of its own, 1 for an end without a reason, 2 for a likely consequence of another
    rank's failure.
    """

    weight: int
    rank: int | None
    worker: int | None
    at_s: float | None
    error: ErrorRecord | None = None
    exit: End | None = None
    is_root: bool = False  # the launcher saw it fail first


def weight_of(error: ErrorRecord | None, exit: End | None) -> int | None:
    """Returns how likely a rank's failure is a consequence of another's; None if the rank did not fail.

    0: an error of its own. 1: it ended without a reason. 2: most likely a consequence.
    """
    code = as_signal(exit.code) if exit else None
    if exit and exit.code == 0:
        return None  # an error that the rank survived
    if error is not None:
        return 2 if is_complaint(error) or error.type.endswith(FROM_OUTSIDE) else 0
    if exit is None:
        return None
    if code is not None and code < 0:
        return 2 if code in MILD else 0
    return 1  # also if the code is unknown: a rank that ended without an error precedes those that miss it


def is_complaint(error: ErrorRecord) -> bool:
    """Returns whether the error only reports that another rank is gone or does not answer."""
    return error.type.endswith(CONNECTION_TYPES) or bool(CONNECTION.search(error.message))


def as_signal(code: int | None) -> int | None:
    """Returns -N for the shell's exit code 128 + N of signal N, and any other code unchanged."""
    if code is not None and 128 < code <= 128 + 64:
        return 128 - code
    return code


def first_by_rank(exits: Iterable[RankExit]) -> dict[int, RankExit]:
    """Returns, for each rank, the first end of its process."""
    first: dict[int, RankExit] = {}
    for exit in exits:
        first.setdefault(exit.rank, exit)
    return first
