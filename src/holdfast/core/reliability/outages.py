"""Summarises outages of the nodes of a fleet: rate, duration, how many at once, how often they recur. Pure.

Overlapping faults of a node become one outage; an outage without an end lasts until the end of the trace.
"""

from collections.abc import Iterable, Sequence
from math import ceil

from msgspec import Struct

from holdfast.core.reliability.weibull import Gaps

DAY_S, WEEK_S = 86_400.0, 7 * 86_400.0
ONE_INTERRUPTION_S = (
    600.0  # faults that start so close together interrupt a job once (Meta attributes within ten minutes)
)
LOOKS_MAX = 20_000  # moments at which nodes that are down are counted


class TraceRefused(ValueError):
    """Raised for a trace that is no valid list of faults; the message says where."""


class Outage(Struct, frozen=True):
    """The time in which a node was unusable. `end_s`: None if the trace does not contain the end."""

    node: str
    start_s: float
    end_s: float | None


class Outages(Struct, frozen=True, kw_only=True):
    """The outages of a fleet of `nodes` from `since_s` to `until_s`.

    `merged`: faults that overlapped one of the same node.
    """

    nodes: int
    since_s: float
    until_s: float
    all: tuple[Outage, ...]
    merged: int = 0
    unfinished: int = 0

    @property
    def days(self) -> float:
        """Returns the length of the observed period in days."""
        return (self.until_s - self.since_s) / DAY_S


class Summary(Struct, frozen=True, kw_only=True):
    """Statistics of a fleet's outages.

    `per_node_day`: outages. `down_mean`, `down_p95`, `down_p99`: share of the nodes that is down.
    `dispersion`: variance to mean ratio of the number of nodes down. `repeated`: share of outages followed by
    another of the same node within a week. `again_s`: times to that one. `repairs_s`: durations of finished
    outages, ascending.
    """

    outages: int
    per_node_day: float
    down_mean: float
    down_p95: float
    down_p99: float
    dispersion: float
    repeated: float
    repairs_s: tuple[float, ...]
    again_s: tuple[float, ...]


def outages_of(
    faults: Iterable[Outage], nodes: int, since_s: float | None = None, until_s: float | None = None
) -> Outages:
    """Returns the outages in order of their starts, overlapping ones of a node merged.

    raises: TraceRefused
    """
    ordered = sorted(faults, key=lambda one: (one.start_s, one.node))
    names = {one.node for one in ordered}
    if nodes < max(1, len(names)):
        raise TraceRefused(
            f"the trace names {len(names)} nodes, more than the {nodes} given as the fleet's size"
        )
    ends = [one.end_s for one in ordered if one.end_s is not None]
    first_s = since_s if since_s is not None else min((one.start_s for one in ordered), default=0.0)
    last_s = (
        until_s if until_s is not None else max([*ends, *(one.start_s for one in ordered)], default=first_s)
    )
    found: dict[str, list[Outage]] = {}
    merged = 0
    for one in ordered:
        if one.end_s is not None and one.end_s < one.start_s:
            raise TraceRefused(f"a fault of node {one.node} ends before it starts, at {one.start_s:g} s")
        mine = found.setdefault(one.node, [])
        if mine and (mine[-1].end_s is None or mine[-1].end_s > one.start_s):
            merged += 1
            mine[-1] = Outage(one.node, mine[-1].start_s, _later(mine[-1].end_s, one.end_s))
        else:
            mine.append(one)
    whole = sorted((one for mine in found.values() for one in mine), key=lambda one: (one.start_s, one.node))
    return Outages(
        nodes=nodes,
        since_s=first_s,
        until_s=last_s,
        all=tuple(whole),
        merged=merged,
        unfinished=sum(one.end_s is None for one in whole),
    )


def between(outages: Outages, since_s: float, until_s: float) -> Outages:
    """Returns the node outages that start in a period; their ends may be later."""
    kept = tuple(one for one in outages.all if since_s <= one.start_s < until_s)
    return Outages(nodes=outages.nodes, since_s=since_s, until_s=until_s, all=kept)


def summary(outages: Outages) -> Summary:
    """Computes the statistics of node outages: number, durations, nodes down at once."""
    down = down_shares(outages)
    node_days = outages.nodes * outages.days
    starts: dict[str, list[float]] = {}
    for one in outages.all:
        starts.setdefault(one.node, []).append(one.start_s)
    again = [
        after - before for mine in starts.values() for before, after in zip(mine, mine[1:], strict=False)
    ]
    return Summary(
        outages=len(outages.all),
        per_node_day=len(outages.all) / node_days if node_days > 0.0 else 0.0,
        down_mean=sum(down) / len(down) if down else 0.0,
        down_p95=_quantile(down, 0.95),
        down_p99=_quantile(down, 0.99),
        dispersion=_dispersion([share * outages.nodes for share in down]),
        repeated=sum(gap_s <= WEEK_S for gap_s in again) / len(outages.all) if outages.all else 0.0,
        repairs_s=tuple(sorted(one.end_s - one.start_s for one in outages.all if one.end_s is not None)),
        again_s=tuple(sorted(again)),
    )


def down_shares(outages: Outages) -> list[float]:
    """Returns the share of nodes that is down, at equal steps of time, sorted by size."""
    return sorted(count / outages.nodes for _, count in down_counts(outages))


def down_counts(outages: Outages) -> list[tuple[float, int]]:
    """Returns pairs of a time and the number of nodes down then, at equal intervals."""
    if outages.until_s <= outages.since_s:
        return []
    steps = min(LOOKS_MAX, max(100, int(outages.days * 12)))
    width_s = (outages.until_s - outages.since_s) / steps
    changes = [0] * (steps + 1)
    for one in outages.all:
        end_s = one.end_s if one.end_s is not None else outages.until_s
        first = min(steps, max(0, ceil((one.start_s - outages.since_s) / width_s)))
        last = min(steps, max(0, ceil((end_s - outages.since_s) / width_s)))
        changes[first] += 1
        changes[last] -= 1
    found, now = list[tuple[float, int]](), 0
    for step in range(steps):
        now += changes[step]
        found.append((outages.since_s + step * width_s, now))
    return found


def gaps_of(outages: Outages) -> Gaps:
    """Returns the times between interruptions of a job on all nodes of the fleet.

    Simultaneous faults are one interruption.
    """
    starts = list[float]()
    for one in outages.all:
        if not starts or one.start_s - starts[-1] > ONE_INTERRUPTION_S:
            starts.append(one.start_s)
    failed = [after - before for before, after in zip(starts, starts[1:], strict=False)]
    return Gaps(failed=tuple(failed), censored=(max(0.0, outages.until_s - starts[-1]),) if starts else ())


def _dispersion(counts: Sequence[float]) -> float:
    mean = sum(counts) / len(counts) if counts else 0.0
    return sum((count - mean) ** 2 for count in counts) / len(counts) / mean if mean > 0.0 else 1.0


def _later(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
