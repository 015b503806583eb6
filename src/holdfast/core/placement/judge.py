"""Finds what is placed badly: process groups over several nodes or switches, ranks on a wrong NUMA node or network
device, shared GPUs. Pure.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from holdfast.core.plurals import counted
from holdfast.model.runs.placement import GpuUse, Placement, PlacementFinding, RankPlace, RoleGroup

NEAR = ("tensor", "context", "expert")  # roles whose traffic is in every layer: close together
FINDINGS_MAX = 50
RANKS_SHOWN = 8


def judged(
    groups: Sequence[RoleGroup],
    places: Sequence[RankPlace],
    switches: Mapping[str, str],
    uses: Sequence[GpuUse] = (),
    unknown: Sequence[str] = (),
) -> Placement:
    """Returns the roles of the process groups and the findings about where ranks are placed. `switches`: switch of
    each node; empty: not known.
    """
    nodes = {place.rank: place.node for place in places}
    by_node = Counter(nodes.values())
    findings = [
        *_over_nodes(groups, nodes, by_node),
        *_over_switches(groups, nodes, switches),
        *_ring_order(nodes, switches),
        *_numa(places),
        *_nics(places),
        *_shared(uses),
    ]
    return Placement(groups=tuple(groups), findings=tuple(findings[:FINDINGS_MAX]), unknown=tuple(unknown))


def _over_nodes(
    groups: Sequence[RoleGroup], nodes: Mapping[int, str], by_node: Mapping[str, int]
) -> list[PlacementFinding]:
    found = []
    per_node = max(by_node.values(), default=0)
    for group in groups:
        where = _where(group, nodes)
        if group.role != "tensor" or len(where) < 2:
            continue
        size = len(group.ranks)
        if size > per_node:
            change = f"set the tensor parallel size to {per_node} or a divisor of it: a node has {counted(per_node, 'rank')}"
        elif per_node % size:
            change = f"set the tensor parallel size to a divisor of {per_node}, the ranks of a node: {size} is none"
        else:
            change = (
                "number the ranks node by node, so that each tensor group has neighbouring ranks of one node"
            )
        guess = ", by its shape" if group.is_guessed else ""
        found.append(
            PlacementFinding(
                kind="tensor-over-nodes",
                text=f"the tensor group {_ranks(group.ranks)} ({group.name}{guess}) is on {_names(where)}: "
                "its all-reduce in each layer crosses the network",
                change=change,
                ranks=group.ranks,
                nodes=where,
            )
        )
    return found


def _over_switches(
    groups: Sequence[RoleGroup], nodes: Mapping[int, str], switches: Mapping[str, str]
) -> list[PlacementFinding]:
    """Groups of frequent traffic under several switches, where one switch has room for their nodes."""
    room = Counter(switches.get(node, "") for node in set(nodes.values()))
    found = []
    for group in groups:
        where = _where(group, nodes)
        under = tuple(dict.fromkeys(switches[node] for node in where if node in switches))
        if group.role not in NEAR or len(under) < 2 or len(where) > max(room.values()):
            continue
        found.append(
            PlacementFinding(
                kind="group-over-switches",
                text=f"the {group.role} group {_ranks(group.ranks)} is under {_names(under)}",
                change=f"order the nodes by switch: {_by_switch(where, switches)}",
                ranks=group.ranks,
                nodes=where,
            )
        )
    return found


def _ring_order(nodes: Mapping[int, str], switches: Mapping[str, str]) -> list[PlacementFinding]:
    """Whether the order of nodes, in which rings are built, changes between switches more often than it has to."""
    order = list(dict.fromkeys(nodes[rank] for rank in sorted(nodes)))
    if len(order) < 3 or any(node not in switches for node in order):
        return []
    under = [switches[node] for node in order]
    crossings = sum(one != other for one, other in pairwise([*under, under[0]]))
    least = len(set(under)) if len(set(under)) > 1 else 0
    if crossings <= least:
        return []
    return [
        PlacementFinding(
            kind="ring-order",
            text=f"the order of the nodes crosses between switches {crossings} times in a ring; {least} are enough",
            change=f"order the nodes by switch: {_by_switch(order, switches)}",
            nodes=tuple(order),
        )
    ]


def _numa(places: Sequence[RankPlace]) -> list[PlacementFinding]:
    return [
        PlacementFinding(
            kind="numa",
            text=f"rank {place.rank} on {place.node} runs on processors of NUMA node {_names(tuple(map(str, place.cpu_numa)))}, "
            f"its GPU {place.gpu} is at NUMA node {place.gpu_numa}",
            change=f"bind it to NUMA node {place.gpu_numa}: numactl --cpunodebind={place.gpu_numa} "
            f"--membind={place.gpu_numa}, torchrun --numa-binding=node, or srun --gpu-bind=closest",
            ranks=(place.rank,),
            nodes=(place.node,),
        )
        for place in places
        if place.gpu_numa is not None
        and place.gpu_numa >= 0
        and place.cpu_numa
        and place.gpu_numa not in place.cpu_numa
    ]


def _nics(places: Sequence[RankPlace]) -> list[PlacementFinding]:
    """Ranks limited to network devices of other NUMA nodes than their GPU's."""
    found = []
    for place in places:
        numas = {numa for _, numa in place.nics if numa >= 0}
        if place.gpu_numa is None or place.gpu_numa < 0 or not numas or place.gpu_numa in numas:
            continue
        names = ", ".join(name for name, _ in place.nics)
        found.append(
            PlacementFinding(
                kind="nic",
                text=f"rank {place.rank} on {place.node} may use only {names}, at NUMA node "
                f"{_names(tuple(map(str, sorted(numas))))}; its GPU {place.gpu} is at NUMA node {place.gpu_numa}",
                change=f"add a device of NUMA node {place.gpu_numa} to NCCL_IB_HCA, or unset it: NCCL takes the nearest",
                ranks=(place.rank,),
                nodes=(place.node,),
            )
        )
    return found


def _shared(uses: Sequence[GpuUse]) -> list[PlacementFinding]:
    """GPUs that two jobs use, or two ranks of one job."""
    on_gpu: dict[tuple[str, str], list[GpuUse]] = {}
    for use in uses:
        if all(use.pid != other.pid for other in on_gpu.get((use.node, use.gpu), [])):
            on_gpu.setdefault((use.node, use.gpu), []).append(use)
    found = []
    for (node, gpu), some in on_gpu.items():
        if len(some) < 2:
            continue
        jobs = tuple(dict.fromkeys(use.job for use in some))
        who = ", ".join(f"rank {use.rank} of {use.job} (process {use.pid})" for use in some[:RANKS_SHOWN])
        what = (
            f"{counted(len(jobs), 'job')} use"
            if len(jobs) > 1
            else f"{counted(len(some), 'rank')} of one job use"
        )
        change = "give each job GPUs of its own with CUDA_VISIBLE_DEVICES, or another node"
        if len(jobs) == 1:
            change = "start at most as many ranks on a node as it has GPUs, and let each rank use the device of its LOCAL_RANK"
        found.append(
            PlacementFinding(
                kind="shared-gpu",
                text=f"{what} GPU {gpu} of {node}: {who}",
                change=change,
                ranks=tuple(use.rank for use in some),
                nodes=(node,),
            )
        )
    return found


def _where(group: RoleGroup, nodes: Mapping[int, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(nodes[rank] for rank in group.ranks if rank in nodes))


def _by_switch(nodes: Sequence[str], switches: Mapping[str, str]) -> str:
    first = {switch: place for place, switch in reversed(list(enumerate(switches[node] for node in nodes)))}
    return ",".join(sorted(nodes, key=lambda node: first[switches[node]]))


def _ranks(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - RANKS_SHOWN} more" if len(ranks) > RANKS_SHOWN else ""
    return f"of ranks {', '.join(map(str, ranks[:RANKS_SHOWN]))}{more}"


def _names(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)
