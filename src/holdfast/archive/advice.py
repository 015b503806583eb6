"""Collects what checkpoint advice is computed from: failures and recoveries in journals, step times, the
node book.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from holdfast.archive.costs import JobRead
from holdfast.archive.fleet_figures import DEFAULT_RATE, rates, repairs
from holdfast.core.costs.account import JobCost
from holdfast.core.costs.classes import CHECKPOINTING, COMPUTING
from holdfast.core.job.spent import REPEATED
from holdfast.core.nodes.lemon_evidence import WINDOW_DAYS, observed
from holdfast.core.nodes.lemons import judge
from holdfast.core.reliability.advice import NodeFaults, Published, Record, of_nodes
from holdfast.journal.nodes.book import NodeBook
from holdfast.journal.nodes.file import NodeBookUnusable

ISOLATING = ("replace-worker", "reschedule-isolated")
LEFT_ALONE = ("", "notify")
DAY_S = 86_400.0
WORST_MAX = 5
# spread of the number of nodes down at once (InfiniteHBD); computed by bench/fleet/reliability.py
DISPERSION = 5.7


class Given(Struct, frozen=True, kw_only=True):
    """Values that the user supplies in place of measured ones. None: the measured value is used.

    `save_s`: time to write a checkpoint. `down_s`: time from a failure to the first step after it.
    `interval_s`: time between checkpoints.
    """

    save_s: float | None = None
    down_s: float | None = None
    interval_s: float | None = None
    nodes: int | None = None
    gpus: int | None = None


def published(rate: str = DEFAULT_RATE) -> Published:
    known, away = rates()[rate], repairs()
    return Published(
        per_node_day=known.per_1000_node_days / 1000.0,
        source=known.source,
        repair_s=away.mean_h * 3600.0,
        repair_source="InfiniteHBD-Trace",
        dispersion=DISPERSION,
    )


def record_of(jobs: Sequence[JobRead], given: Given, worst: Sequence[NodeFaults] = ()) -> Record:
    """Returns the failure record of the first job, for which the advice is. Failures of all jobs count."""
    gaps = [gap for one in jobs for gap in _gaps(one.cost, one.nodes)]
    costs = [one.cost for one in jobs]
    downs = [down for one in costs for down in _downs(one)]
    first = jobs[0] if jobs else None
    save_s, interval_s = _checkpoints(first) if first is not None else (None, None)
    return Record(
        gaps=of_nodes(gaps),
        nodes=given.nodes or (first.nodes if first is not None else 1) or 1,
        gpus=given.gpus or (first.cost.gpus if first is not None else 0),
        save_s=given.save_s if given.save_s is not None else save_s,
        down_s=given.down_s if given.down_s is not None else sum(downs) / len(downs) if downs else None,
        interval_s=given.interval_s if given.interval_s is not None else interval_s,
        isolating=sum(incident.rung in ISOLATING for one in costs for incident in one.incidents),
        spares_now=first.run.spares if first is not None and first.run is not None else None,
        worst=tuple(worst),
    )


def worst_nodes(folder: Path, now_s: float) -> tuple[NodeFaults, ...]:
    """Returns nodes by descending lemon score (how likely a node fails more often than others); empty if there is no
    node book or it cannot be read.
    """
    with suppress(NodeBookUnusable, OSError):
        book, since_s = NodeBook(folder, read_only=True), now_s - WINDOW_DAYS * DAY_S
        try:
            lines, attempts = book.lines(since_s=since_s), book.attempts(since_s)
        finally:
            book.close()
        scores = judge(observed(lines, attempts, since_s=since_s)).scores
        return tuple(
            NodeFaults(
                node=one.node,
                faults=one.attributed,
                why=(
                    f"probability of being a lemon {one.posterior:.0%}, {one.per_day * 1000:.0f} failures "
                    "in 1,000 days of use"
                ),
            )
            for one in scores[:WORST_MAX]
        )
    return ()


def _gaps(cost: JobCost, nodes: int) -> list[tuple[float, int, bool]]:
    """Returns the time before each failure and the time since the last one, as (seconds, number of nodes,
    failed).
    """
    if cost.since_s is None or cost.until_s is None:
        return []
    found, since_s = [], cost.since_s
    for one in cost.incidents:
        if one.rung in LEFT_ALONE:
            continue
        found.append((max(0.0, one.at_s - since_s), nodes, True))
        since_s = one.at_s
    return [*found, (max(0.0, cost.until_s - since_s), nodes, False)]


def _downs(cost: JobCost) -> list[float]:
    """Returns recovery times in seconds, from the last step before a failure to the first step after it.

    The last recovery is left out, because it may still be running.
    """
    recovered = [one for one in cost.incidents if one.rung not in (*LEFT_ALONE, "fail")]
    times = [sum(seconds for name, seconds in one.by_class.items() if name != REPEATED) for one in recovered]
    return [seconds for seconds in times if seconds > 0.0]


def _checkpoints(job: JobRead) -> tuple[float | None, float | None]:
    """Returns how many seconds a checkpoint takes, and the seconds between two, from the step times; None
    if unknown.
    """
    report = job.report
    phases = [one for one in report.phases if one.kind == "checkpoint"] if report is not None else []
    count = sum(one.count for one in phases)
    if report is None or not count or report.median_step_time_s is None:
        return None, None
    usual_s = report.median_step_time_s
    save_s = sum(one.count * max(0.0, one.median_s - usual_s) for one in phases) / count
    trained_s = job.cost.by_class.get(COMPUTING, 0.0) + job.cost.by_class.get(CHECKPOINTING, 0.0)
    return save_s, trained_s / count if trained_s > 0.0 else None
