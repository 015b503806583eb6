"""Compares facts between nodes: values that should be equal and are not, and numbers far from the median.

Pure.

For equal values the majority is right; without a majority all are reported. A number is compared with the
median of at least two others of the same model.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.checks import FAIL, PEERS, WARN, Fact, Finding, NodeChecks, Outcome
from holdfast.model.signatures import Words

PEERS_MIN = 2
OFF_WARN, OFF_FAIL = 0.07, 0.25  # deviation as a share of the others' median
SPREADS = 3.0  # multiple of the number's spread between measurements
NODES_NAMED = 4
CHECK = "peers"


class Seen(Struct, frozen=True):
    """A fact that a check reported, with the check and the node."""

    node: str
    check: str
    area: str
    fact: Fact


def compared(nodes: Sequence[NodeChecks]) -> tuple[NodeChecks, ...]:
    """Returns the nodes with an additional outcome for each check with a deviating fact."""
    same: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    numbers: dict[tuple[str, str, str], list[Seen]] = defaultdict(list)
    for seen in _facts(nodes):
        if seen.fact.same:
            same[seen.check, seen.fact.name].append(seen)
        if seen.fact.peers and isinstance(seen.fact.value, int | float):
            numbers[seen.check, seen.fact.name, seen.fact.model].append(seen)
    found: dict[str, list[tuple[Seen, Finding]]] = defaultdict(list)
    for group in same.values():
        for seen, finding in _unequal(group):
            found[seen.node].append((seen, finding))
    for group in numbers.values():
        for seen, finding in _far_off(group):
            found[seen.node].append((seen, finding))
    return tuple(_with(node, found[node.node]) for node in nodes)


def _facts(nodes: Iterable[NodeChecks]) -> Iterable[Seen]:
    for node in nodes:
        for outcome in node.outcomes:
            for fact in outcome.facts:
                yield Seen(node.node, outcome.check, outcome.area, fact)


def _unequal(group: Sequence[Seen]) -> list[tuple[Seen, Finding]]:
    """Returns findings on nodes whose value differs from most; on all of them if no value has
    more than half.
    """
    values = Counter(seen.fact.value for seen in group)
    if len(values) < 2:
        return []
    most, times = values.most_common(1)[0]
    has_majority = 2 * times > len(group)
    expected = f"{most}, as on {times} of {len(group)} nodes" if has_majority else "the same on all nodes"
    name = group[0].fact.name
    advice = Words(
        en=f"Make {name} the same on all nodes before the run.", zh=f"启动前请让所有节点的 {name} 保持一致。"
    )
    return [
        (
            seen,
            Finding(
                status=WARN,
                device="" if seen.fact.device == "node" else seen.fact.device,
                measured=f"{name} {seen.fact.value}",
                expected=expected,
                whence=PEERS,
                why=f"{name} is {seen.fact.value} here, {_elsewhere(group, seen)}",
                advice=advice,
            ),
        )
        for seen in group
        if not has_majority or seen.fact.value != most
    ]


def _elsewhere(group: Sequence[Seen], here: Seen) -> str:
    others: dict[object, list[str]] = defaultdict(list)
    for seen in group:
        if seen.fact.value != here.fact.value:
            others[seen.fact.value].append(seen.node)
    return "; ".join(f"{value} on {_names(names)}" for value, names in list(others.items())[:NODES_NAMED])


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NODES_NAMED} more" if len(names) > NODES_NAMED else ""
    return ", ".join(names[:NODES_NAMED]) + more


def _far_off(group: Sequence[Seen]) -> list[tuple[Seen, Finding]]:
    found = []
    for seen in group:
        others = [float(one.fact.value) for one in group if one is not seen]
        if len(others) < PEERS_MIN or not (middle := median(others)):
            continue
        value = float(seen.fact.value)
        off = (middle - value) / abs(middle) if seen.fact.low_is_bad else (value - middle) / abs(middle)
        if off > max(OFF_WARN, SPREADS * seen.fact.spread):
            found.append((seen, _off(seen.fact, value, middle, off, len(others))))
    return found


def _off(fact: Fact, value: float, middle: float, off: float, others: int) -> Finding:
    side = "below" if fact.low_is_bad else "above"
    return Finding(
        status=FAIL if off > max(OFF_FAIL, SPREADS * fact.spread) else WARN,
        device="" if fact.device == "node" else fact.device,
        measured=f"{value:.4g} {fact.unit}".rstrip(),
        expected=f"about {middle:.4g} {fact.unit}".rstrip(),
        whence=PEERS,
        why=f"{fact.name} is {off:.0%} {side} the median of {others} others",
        advice=Words(
            en="Run the same benchmark again with the node idle; if it is still low, take the node out of service.",
            zh="在节点空闲时重跑同一基准；若仍偏离，请将该节点移出并检修。",
        ),
    )


def _with(node: NodeChecks, found: Sequence[tuple[Seen, Finding]]) -> NodeChecks:
    if not found:
        return node
    extra = tuple(
        Outcome(check=seen.check, area=seen.area, status=finding.status, findings=(finding,))
        for seen, finding in found
    )
    return replace(node, outcomes=(*node.outcomes, *extra))
