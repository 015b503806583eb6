"""Recommends a checkpoint interval and a number of spares from a record of failures, and says what is
unknown. Pure.
"""

from collections.abc import Iterable

from msgspec import Struct

from holdfast.core.reliability.interval import Costs, Interval, best_interval, curve, expected
from holdfast.core.reliability.spares import Spares, spares
from holdfast.core.reliability.weibull import Fit, Gaps, Range, fit

DAY_S, MONTH_H = 86_400.0, 730.5
DOWN_S = 300.0  # without a recorded recovery: large jobs restart within 5 to 20 min (Meta, arXiv 2410.21680)
REPEATED_MIN = 2  # faults from which a node is listed


class NodeFaults(Struct, frozen=True, kw_only=True):
    """The number of faults of one node. `why`: the reason from the lemon score or the journal."""

    node: str
    faults: int
    why: str = ""


class Record(Struct, frozen=True, kw_only=True):
    """The measured failures and costs on which a recommendation is based. None: not measured.

    `gaps`: times between failures times the number of nodes, in node-seconds, so that jobs of different size
    are comparable. `nodes`, `gpus`: of the job for which the recommendation is. `isolating`: failures after
    which a node was isolated.
    """

    gaps: Gaps
    nodes: int
    gpus: int
    save_s: float | None = None
    down_s: float | None = None
    interval_s: float | None = None
    isolating: int = 0
    spares_now: int | None = None
    worst: tuple[NodeFaults, ...] = ()


class Published(Struct, frozen=True, kw_only=True):
    """Published figures, used until a record exists.

    `per_node_day`: failures per node and day. `repair_s`: mean repair time. `dispersion`: variance to mean
    ratio of failures.
    """

    per_node_day: float
    source: str
    repair_s: float
    repair_source: str
    dispersion: float = 1.0


class Advice(Struct, frozen=True, kw_only=True):
    """The recommended checkpoint interval and number of spares, with the estimates behind them.

    `per_1000_node_days`, `shape`, `mean_s` (of this job): with 90 % credible intervals. `interval`: None if
    the time of a checkpoint is unknown. `now`: goodput at the present interval. `gain_gpu_hours`: per month.
    """

    failures: int
    node_days: float
    nodes: int
    gpus: int
    per_1000_node_days: Range
    shape: Range
    mean_s: Range
    costs: Costs | None
    interval_s: float | None
    interval: Interval | None
    now: float | None
    gain_gpu_hours: float | None
    curve: tuple[tuple[float, float], ...]
    spares: Spares
    spares_now: int | None
    first_out: tuple[NodeFaults, ...]
    known: str
    unknown: tuple[str, ...]


def advise(record: Record, published: Published) -> Advice:
    """Returns a recommendation on checkpoint interval and spare nodes.

    `published`: the prior for a short history.
    """
    expected_s = DAY_S / published.per_node_day
    of_node = fit(record.gaps, expected_s)
    of_job = of_node.scaled(float(max(1, record.nodes)))
    costs = _costs(record)
    interval = best_interval(of_job, costs) if costs is not None else None
    now = expected(of_job, record.interval_s, costs) if costs is not None and record.interval_s else None
    gain = None
    if interval is not None and now is not None:
        gain = max(0.0, interval.goodput - now) * record.gpus * MONTH_H
    shown = (
        [interval.best_s, *([record.interval_s] if record.interval_s else [])] if interval is not None else []
    )
    rate = Range(1.0 / of_node.mean.high, 1.0 / of_node.mean.middle, 1.0 / of_node.mean.low)
    share = (record.isolating + 1.0) / (
        of_node.failures + 2.0
    )  # of failures that take a node out, few of them being known
    per_node_s = Range(rate.low * share, rate.middle * share, rate.high * share)
    return Advice(
        failures=of_node.failures,
        node_days=of_node.exposure / DAY_S,
        nodes=record.nodes,
        gpus=record.gpus,
        per_1000_node_days=Range(*(1_000.0 * DAY_S * one for one in (rate.low, rate.middle, rate.high))),
        shape=of_node.shape,
        mean_s=of_job.mean,
        costs=costs,
        interval_s=record.interval_s,
        interval=interval,
        now=now,
        gain_gpu_hours=gain,
        curve=curve(of_job, costs, shown) if costs is not None else (),
        spares=spares(record.nodes, per_node_s, published.repair_s, published.dispersion),
        spares_now=record.spares_now,
        first_out=tuple(one for one in record.worst if one.faults >= REPEATED_MIN),
        known=of_node.known,
        unknown=tuple(_unknown(record, of_node, published)),
    )


def of_nodes(gaps: Iterable[tuple[float, int, bool]]) -> Gaps:
    """Returns times between failures in node-seconds.

    `gaps`: for each, seconds, number of nodes of the job, and whether it ended with a failure.
    """
    rows = list(gaps)
    return Gaps(
        failed=tuple(seconds * max(1, nodes) for seconds, nodes, failed in rows if failed),
        censored=tuple(seconds * max(1, nodes) for seconds, nodes, failed in rows if not failed),
    )


def _costs(record: Record) -> Costs | None:
    if record.save_s is None:
        return None
    return Costs(save_s=record.save_s, down_s=record.down_s if record.down_s is not None else DOWN_S)


def _unknown(record: Record, of_node: Fit, published: Published) -> Iterable[str]:
    if record.save_s is None:
        yield "no checkpoint was seen in the step times: give the time of one, --save 30s, for an interval"
    if record.down_s is None:
        yield f"no recovery was observed: {DOWN_S:.0f} s are assumed (restarts of large jobs take 5 to 20 minutes)"
    if record.save_s is not None and record.interval_s is None:
        yield "the current checkpoint interval is unknown: the gain cannot be computed"
    if of_node.failures < 20:
        yield f"prior failure rate: {published.per_node_day * 1000:.2f} per 1,000 node-days ({published.source})"
    yield f"repairs are assumed to last {published.repair_s / DAY_S:.1f} days on average ({published.repair_source})"
