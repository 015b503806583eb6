"""One rank's part in a failure: its first error, its end, and how likely it follows another rank's. Pure."""

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


End: TypeAlias = RankExit | LauncherWord  # seen by the supervisor, or read in what a launcher printed


class Trouble(Struct, frozen=True, kw_only=True):
    """One rank's first error, its end, or both. `weight`: 0 own fault .. 2 most likely a follower."""

    weight: int
    rank: int | None
    worker: int | None
    at_s: float | None
    error: ErrorRecord | None = None
    exit: End | None = None
    is_root: bool = False  # the launcher saw it fail first


def weight_of(error: ErrorRecord | None, exit: End | None) -> int | None:
    """0: an own fault. 1: ended without a reason. 2: looks like a follower. None if nothing is wrong."""
    code = as_signal(exit.code) if exit else None
    if exit and exit.code == 0:
        return None  # whatever it logged, it did not stop it
    if error is not None:
        return 2 if is_complaint(error) or error.type.endswith(FROM_OUTSIDE) else 0
    if exit is None:
        return None
    if code is not None and code < 0:
        return 2 if code in MILD else 0
    return 1  # a code that was missed too: who is gone without a word comes before those who complain of it


def is_complaint(error: ErrorRecord) -> bool:
    """True if it only reports that another rank is gone or late."""
    return error.type.endswith(CONNECTION_TYPES) or bool(CONNECTION.search(error.message))


def as_signal(code: int | None) -> int | None:
    """Signal number of a shell's exit code: 137 is signal 9."""
    if code is not None and 128 < code <= 128 + 64:
        return 128 - code
    return code


def first_by_rank(exits: Iterable[RankExit]) -> dict[int, RankExit]:
    first: dict[int, RankExit] = {}
    for exit in exits:
        first.setdefault(exit.rank, exit)
    return first
