"""Determines why a rank does not enter an operation, from its process state, its stack and its last output.

Pure.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from holdfast.core.flight.graph import is_victim
from holdfast.core.hang.culprits import waits_for_others
from holdfast.late_pattern import late
from holdfast.model.flight.digests import LocatedKind, RankLife

STACK_INNERMOST = 6
LOADS_DATA = late(
    r"torch/utils/data/|\b(_next_data|_try_get_data|_get_data|__next__|__getitem__|collate\w*)$"
    r"|\w*(data_?load|load_?(batch|data|shard|sample)|next_?batch|get_?batch|read_?batch|fetch_?(batch|data|sample)"
    r"|prefetch)\w*$",
    re.IGNORECASE,
)
REMOTE_FILES = late(r"nfs|rpc_|lustre|ldlm|ll_|cl_sync|osc_|ptlrpc|fuse|ceph|gpfs|beegfs|cifs", re.IGNORECASE)
# Collectives that a gloo record contains as soon as they begin: a rank inside one has enqueued it.
IN_COLLECTIVE = late(
    r"torch/distributed/distributed_c10d\.py:\d+ "
    r"(all_reduce|broadcast|barrier|all_gather\w*|reduce_scatter\w*|all_to_all\w*|reduce|gather|scatter)$"
)
IN_SEND = late(r"torch/distributed/distributed_c10d\.py:\d+ (send|recv|batch_isend_irecv)$|pipelining/")

STOPPED_FIRST = ("stopped", "killed", "dataloader", "uneven", "missing")


class Reason(Struct, frozen=True):
    """The reason why a rank does not enter a collective operation that others wait for."""

    kind: LocatedKind
    category: str
    confidence: float


def reason(life: RankLife | None, *, is_absent: bool) -> Reason:
    """Returns why a rank has not enqueued the operation in which others wait for it."""
    if life is None or (life.rank_class == "unknown" and not life.frames and life.exit_code is None):
        if is_absent:
            return Reason("killed", "process_killed", 0.7)
        return Reason("missing", "collective_missing_rank", 0.9)
    if life.rank_class == "stopped":
        return Reason("stopped", "process_stopped", 0.99)
    if life.rank_class == "dead" or life.exit_code is not None:
        return _dead(life, is_absent)
    if is_absent and life.answered is False:  # seen from outside, but answers neither us nor a signal
        return Reason("stopped", "process_stopped", 0.85)
    if loads_data(life):
        return Reason("dataloader", "dataloader_stuck", 0.95)
    if life.rank_class == "blocked":
        if REMOTE_FILES.search(life.wait_channel):
            return Reason("missing", "nfs_lustre_stall", 0.95)
        return Reason("missing", "storage_io", 0.9)
    sure = 0.95 if life.frames or life.rank_class != "unknown" else 0.9
    return Reason("missing", "collective_missing_rank", sure)


def _dead(life: RankLife, is_absent: bool) -> Reason:
    code = life.exit_code
    if code == 0:
        return Reason("uneven", "uneven_data", 0.85)
    if code in (-11, 139):
        return Reason("killed", "segfault", 0.95)
    if code in (-15, 143):
        return Reason("killed", "terminated", 0.95)
    if life.error and not is_victim(life):
        return Reason("missing", "python_exception", 0.9)
    if code is not None and code > 0 and code not in (137, 134):
        return Reason("missing", "python_exception", 0.8)
    return Reason("killed", "process_killed", 0.9 if code is not None or is_absent else 0.8)


def loads_data(life: RankLife | None) -> bool:
    """Returns whether the rank's stack is inside a data loader."""
    return life is not None and any(LOADS_DATA.search(frame) for frame in life.frames[:STACK_INNERMOST])


def is_gone(life: RankLife | None) -> bool:
    """Returns whether the rank is stopped, blocked in the kernel, or ended by a fault of its own.

    Such a rank is at fault even if it has enqueued all operations.
    """
    if life is None:
        return False
    if life.rank_class in ("stopped", "blocked"):
        return True
    ended = life.rank_class == "dead" or life.exit_code is not None
    return ended and not is_victim(life)


def in_collective(life: RankLife | None) -> bool:
    """Returns whether the rank's stack is inside a collective operation."""
    return life is not None and any(IN_COLLECTIVE.search(frame) for frame in life.frames[:3])


def in_send(life: RankLife | None) -> bool:
    """Returns whether the rank's stack is inside a point-to-point send or receive."""
    return life is not None and any(IN_SEND.search(frame) for frame in life.frames[:4])


def waits_outside(life: RankLife | None) -> bool:
    """Returns whether the rank's stack is known and does not wait for other ranks."""
    return life is not None and bool(life.frames) and not waits_for_others(life.frames)


def common(reasons: Mapping[int, Reason]) -> Reason:
    """Returns one reason for several culprits: the one with the highest precedence."""
    return min(reasons.values(), key=lambda one: (STOPPED_FIRST.index(one.kind), one.category))
