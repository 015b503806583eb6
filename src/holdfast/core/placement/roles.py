"""Recognises what the process groups of a training are used for, by their names, else by their operations and shape.
Pure.

Names: Megatron-Core (TENSOR_MODEL_PARALLEL_GROUP), DeviceMesh of PyTorch (mesh_tp, mesh_dp_shard), DeepSpeed,
Nanotron.
"""

from collections.abc import Mapping, Sequence

from holdfast.late_pattern import late
from holdfast.model.flight.records import FlightRecord, Group
from holdfast.model.runs.placement import Role, RoleGroup

EXPERT = late(r"(?i)expert|(?:^|[_\W])(?:ep|moe)(?:$|[_\W])")
CONTEXT = late(r"(?i)context|sequence_parallel|ulysses|ring_attn|(?:^|[_\W])(?:cp|sp)(?:$|[_\W])")
DATA = late(
    r"(?i)data_parallel|fsdp|zero|(?:^|[_\W])(?:dp|ddp|hsdp)(?:$|[_\W])|dp_(?:shard|replicate)|replicate"
)
PIPELINE = late(r"(?i)pipeline|(?:^|[_\W])pp(?:$|[_\W])|embedding|stage")
TENSOR = late(r"(?i)tensor|model_parallel|(?:^|[_\W])(?:tp|mp)(?:$|[_\W])")
# The first that fits counts: a data group "with context parallel" is a data group.
ORDER = (("expert", EXPERT), ("data", DATA), ("pipeline", PIPELINE), ("context", CONTEXT), ("tensor", TENSOR))
COMBINED = late(r"(?i)(?:tensor|expert|context|data|pipeline)\w*_and_|(?:^|\s)model_parallel_group")


def role_groups(groups: Mapping[str, Group], records: Sequence[FlightRecord] = ()) -> tuple[RoleGroup, ...]:
    """Returns each process group of two or more ranks with its role; groups with the same role follow each other."""
    size = 1 + max((rank for group in groups.values() for rank in group.ranks), default=0)
    operations = _operations(records)
    found = [
        _role_group(group, size, operations.get(name, frozenset()))
        for name, group in groups.items()
        if len(group.ranks) > 1
    ]
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (one.role, one.ranks)))


def _role_group(group: Group, size: int, operations: frozenset[str]) -> RoleGroup:
    named = role_of_name(f"{group.about} {group.name}")
    if len(group.ranks) >= size and named not in ("data", "tensor", "expert", "context"):
        return RoleGroup(name=group.name, role="world", ranks=group.ranks)
    if named is not None:
        return RoleGroup(name=group.about or group.name, role=named, ranks=group.ranks)
    return RoleGroup(
        name=group.name, role=_by_shape(group.ranks, operations), ranks=group.ranks, is_guessed=True
    )


def role_of_name(name: str) -> Role | None:
    """Returns the role that a group's name contains; None if it contains none, or several."""
    if COMBINED.search(name):
        return None
    for role, pattern in ORDER:
        if pattern.search(name):
            return role  # type: ignore[return-value]
    return None


def _by_shape(ranks: Sequence[int], operations: frozenset[str]) -> Role:
    """Groups of point-to-point operations are pipelines; neighbours with all_reduce in small groups are tensor groups."""
    if operations and all(kind.startswith(("send", "recv", "coalesced")) for kind in operations):
        return "pipeline"
    stride = ranks[1] - ranks[0]
    is_even = all(later - earlier == stride for earlier, later in zip(ranks, ranks[1:], strict=False))
    if (
        is_even
        and stride == 1
        and len(ranks) <= 8
        and operations & {"all_reduce", "all_gather", "reduce_scatter"}
    ):
        return "tensor"
    return "data" if is_even and stride > 1 and operations & {"all_reduce", "reduce_scatter"} else "unknown"


def _operations(records: Sequence[FlightRecord]) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for record in records:
        for operation in record.operations:
            found.setdefault(operation.group, set()).add(operation.kind.split(" ", 1)[0])
    return {name: frozenset(kinds) for name, kinds in found.items()}
