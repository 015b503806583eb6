"""Compares policies over several random histories each: ETTR with its confidence interval, and lost time
by cause.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import fmean, median, stdev

from msgspec import Struct

from holdfast.sim.months.plan import World
from holdfast.sim.months.run import Outcome, run

# Student's t for 95 %, by degrees of freedom; between two the wider one.
_T95 = {
    1: 12.71,
    2: 4.30,
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    14: 2.14,
    19: 2.09,
    29: 2.05,
    120: 1.98,
}
NORMAL95 = 1.96


class Result(Struct, frozen=True, kw_only=True):
    """The result of one recovery policy.

    `ettr_low`, `ettr_high`: 95 % confidence interval of the mean; None for a single run.

    `by_class`: what the time was spent on (training, lost steps, waiting …), as shares that add up to 1.
    `gpu_hours`: the same in GPU-hours of an average run. `recovery_s`: median of the recovery times.
    """

    name: str
    who: str
    ettr: float
    ettr_low: float | None
    ettr_high: float | None
    interruptions: float
    jobs: float
    recovery_s: float | None
    recovery_p95_s: float | None
    nodes_out_max: int
    interval_s: float
    by_class: dict[str, float]
    gpu_hours: dict[str, float]
    rungs: dict[str, int]


class Comparison(Struct, frozen=True, kw_only=True):
    """The results of all policies, and the simulated fleet."""

    gpus: int
    nodes: int
    spares: int
    days: float
    runs: int
    seed: int
    mean_s: float
    shape: float
    results: tuple[Result, ...]
    notes: tuple[str, ...] = ()


def compare(world: World, on_policy: Callable[[str], None] = lambda name: None) -> Comparison:
    """Runs every policy over the same histories of faults, and returns the comparison."""
    plan = world.plan
    found = []
    for contender in world.contenders:
        on_policy(contender.name)
        outcomes = [run(world, contender, plan.seed + number) for number in range(plan.runs)]
        found.append(_result(contender.name, contender.who, outcomes, plan.gpus))
    return Comparison(
        gpus=plan.gpus,
        nodes=plan.nodes,
        spares=plan.spares,
        days=plan.days,
        runs=plan.runs,
        seed=plan.seed,
        mean_s=world.mean_s,
        shape=world.shape,
        results=tuple(found),
        notes=world.notes,
    )


def _result(name: str, who: str, outcomes: Sequence[Outcome], gpus: int) -> Result:
    ettrs = [one.ettr for one in outcomes]
    half = _half_width(ettrs)
    mean = fmean(ettrs)
    wall_s = sum(one.wall_s for one in outcomes)
    seconds: dict[str, float] = {}
    rungs: dict[str, int] = {}
    for one in outcomes:
        for cost, spent_s in one.by_class.items():
            seconds[cost] = seconds.get(cost, 0.0) + spent_s
        for rung, count in one.rungs.items():
            rungs[rung] = rungs.get(rung, 0) + count
    recoveries = sorted(seconds for one in outcomes for seconds in one.recoveries_s)
    return Result(
        name=name,
        who=who,
        ettr=mean,
        ettr_low=max(0.0, mean - half) if half is not None else None,
        ettr_high=min(1.0, mean + half) if half is not None else None,
        interruptions=fmean(one.interruptions for one in outcomes),
        jobs=fmean(one.jobs for one in outcomes),
        recovery_s=median(recoveries) if recoveries else None,
        recovery_p95_s=recoveries[int(0.95 * (len(recoveries) - 1))] if recoveries else None,
        nodes_out_max=max(one.nodes_out_max for one in outcomes),
        interval_s=outcomes[0].interval_s,
        by_class={cost: spent_s / wall_s for cost, spent_s in seconds.items()},
        gpu_hours={cost: spent_s * gpus / 3_600.0 / len(outcomes) for cost, spent_s in seconds.items()},
        rungs=rungs,
    )


def _half_width(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    free = len(values) - 1
    factor = next((_T95[known] for known in sorted(_T95, reverse=True) if known <= free), NORMAL95)
    return factor * stdev(values) / sqrt(len(values))
