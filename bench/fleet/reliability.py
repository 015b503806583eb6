"""Compares the failure model and the simulator with what others have published, and measures a simulated year.

    python -m bench.fleet.reliability                 # all parts
    python -m bench.fleet.reliability --only trace    # or: published, policies, year

The trace is InfiniteHBD-Trace in ../shared/facts; without it that part is left out, and says so. Each row names its settings.
"""

import argparse
import resource
import sys
import time
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.reliability.interval import Costs, best_interval, daly, goodput, seen_goodput, young
from holdfast.core.reliability.outages import (
    DAY_S,
    WEEK_S,
    Outages,
    down_counts,
    gaps_of,
    outages_of,
    summary,
)
from holdfast.core.reliability.spares import enough
from holdfast.core.reliability.weibull import Fit, Gaps, Weibull, fit
from holdfast.sim.months.compare import compare
from holdfast.sim.months.plan import Contender, Plan, known_contenders, read_trace, settled
from holdfast.sim.months.run import run
from holdfast.views.fleet.comparison import report

TRACE = Path(__file__).parents[3] / "shared/facts/infinitehbd/fault_trace.json"
TRACE_NODES, BLOCK_DAYS = 400, 14.0
HOUR_S = 3_600.0
PARTS = ("trace", "published", "policies", "year")


class Half(Struct, frozen=True, kw_only=True):
    """Alternate fortnights of a trace: the fleet of one half is that of the other, while its first half-year was another."""

    down_mean: float
    down_p99: float
    dispersion: float
    repeated: float
    gaps: Gaps


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", choices=PARTS)
    options.add_argument("--runs", type=int, default=5)
    given = options.parse_args()
    for part in PARTS:
        if given.only in (None, part):
            {"trace": trace, "published": published, "year": year}.get(part, lambda: policies(given.runs))()
            print(flush=True)
    return 0


# The trace --------------------------------------------------------------------------------------------------


def trace() -> None:
    if not TRACE.exists():
        print(f"left out: {TRACE} is not here")
        return
    whole = outages_of(read_trace(TRACE.read_bytes()), TRACE_NODES)
    told = summary(whole)
    print(
        f"InfiniteHBD: {len(whole.all)} outages ({whole.merged} merged), {TRACE_NODES} nodes, {whole.days:.0f} days"
    )
    print(f"{'':34}{'down, mean':>12}{'down, p99':>12}{'repeated':>10}{'shape':>8}{'gap':>9}")
    row("whole trace, as it was", told.down_mean, told.down_p99, told.repeated, gaps_of(whole))
    for parity, name in ((0, "odd"), (1, "even")):
        half, other = half_of(whole, parity), half_of(whole, 1 - parity)
        predicted = enough(half.down_mean * TRACE_NODES, half.dispersion, 0.99) / TRACE_NODES
        row(f"fitted on {name} fortnights", half.down_mean, predicted, half.repeated, half.gaps)
        row(
            "  the other fortnights, as they were",
            other.down_mean,
            other.down_p99,
            other.repeated,
            other.gaps,
        )
    middle_s = (whole.since_s + whole.until_s) / 2.0
    for name, since_s, until_s in (("first", whole.since_s, middle_s), ("second", middle_s, whole.until_s)):
        part = replace(
            whole,
            since_s=since_s,
            until_s=until_s,
            all=tuple(one for one in whole.all if since_s <= one.start_s < until_s),
        )
        seen = summary(part)
        row(f"the {name} half-year, as it was", seen.down_mean, seen.down_p99, seen.repeated, gaps_of(part))
    intervals(whole)


def row(name: str, mean: float, p99: float, repeated: float, gaps: Gaps) -> None:
    fitted = fit(gaps, expected_mean=sum(gaps.failed) / len(gaps.failed))
    print(
        f"{name:34}{mean:>12.2%}{p99:>12.2%}{repeated:>10.1%}{fitted.shape.middle:>8.2f}{fitted.mean.middle / HOUR_S:>7.1f} h"
    )


def half_of(whole: Outages, parity: int) -> Half:
    def here(at_s: float) -> bool:
        return int((at_s - whole.since_s) // (BLOCK_DAYS * DAY_S)) % 2 == parity

    counts = sorted(count for at_s, count in down_counts(whole) if here(at_s))
    mean = sum(counts) / len(counts)
    starts: dict[str, list[float]] = {}
    for one in whole.all:
        starts.setdefault(one.node, []).append(one.start_s)
    mine = [one for one in whole.all if here(one.start_s)]
    again = sum(any(0.0 < at_s - one.start_s <= WEEK_S for at_s in starts[one.node]) for one in mine)
    failed, censored = list[float](), list[float]()
    for at_s in sorted({int((one.start_s - whole.since_s) // (BLOCK_DAYS * DAY_S)) for one in mine}):
        since_s = whole.since_s + at_s * BLOCK_DAYS * DAY_S
        block = replace(whole, since_s=since_s, until_s=min(whole.until_s, since_s + BLOCK_DAYS * DAY_S))
        block = replace(block, all=tuple(one for one in mine if since_s <= one.start_s < block.until_s))
        failed += gaps_of(block).failed
        censored += gaps_of(block).censored
    return Half(
        down_mean=mean / TRACE_NODES,
        down_p99=counts[int(0.99 * len(counts))] / TRACE_NODES,
        dispersion=sum((count - mean) ** 2 for count in counts) / len(counts) / mean,
        repeated=again / len(mine),
        gaps=Gaps(failed=tuple(failed), censored=tuple(censored)),
    )


def intervals(whole: Outages) -> None:
    """A job on all nodes. ETTR on the half that was not fitted, at the advised interval and at those of others."""
    print(
        f"\n{'save, down':>14}{'fitted on':>11}{'advised':>10}{'ETTR':>8}{'hindsight':>11}{'ETTR':>8}{'Young':>9}{'ETTR':>8}{'Daly':>9}{'ETTR':>8}"
    )
    for save_s, down_s in ((30.0, 300.0), (60.0, 600.0), (300.0, 1_200.0), (600.0, 1_800.0)):
        costs = Costs(save_s=save_s, down_s=down_s)
        for parity, name in ((0, "odd"), (1, "even")):
            fitted, gaps = fitted_on(half_of(whole, parity)), half_of(whole, 1 - parity).gaps.failed
            advised_s = best_interval(fitted, costs).best_s
            steps = [advised_s * 1.02**step for step in range(-100, 101)]
            best_s = max(steps, key=lambda one: seen_goodput(gaps, one, costs))
            mean_s = fitted.mean.middle
            told = [
                (one, seen_goodput(gaps, one, costs))
                for one in (advised_s, best_s, young(save_s, mean_s), daly(save_s, mean_s))
            ]
            words = "".join(
                f"{one / 60:>{wide}.1f}m{ettr:>8.4f}"
                for wide, (one, ettr) in zip((9, 10, 8, 8), told, strict=True)
            )
            print(f"{save_s:>6.0f} s,{down_s:>5.0f}{name:>10}{words}")


def fitted_on(half: Half) -> Fit:
    return fit(half.gaps, expected_mean=sum(half.gaps.failed) / len(half.gaps.failed))


# Published points -------------------------------------------------------------------------------------------


def published() -> None:
    print(f"{'published':58}{'they say':>10}{'we get':>10}{'off':>8}  settings")
    for gpus, hours in ((16_384, 1.8), (131_072, 0.23)):
        mean_h = 24.0 / (gpus / 8 * 0.0065)
        point(
            f"Meta RSC-1: MTTF of {gpus:,} GPUs, projected, h",
            hours,
            mean_h,
            "6.5 per 1,000 node-days, 8 GPUs a node",
        )
    words = "from the measured 47.7 days of 8-GPU jobs; 6.5 in 1,000 would give 28.8 h"
    point("Meta RSC-1: MTTF of 1,024 GPUs, measured, h", 7.9, 24.0 * 47.7 / 128, words)
    mean_s = DAY_S / (16_384 / 8 * 0.0065)
    five = goodput(Weibull(1.0, mean_s), 300.0, Costs(save_s=0.0, down_s=300.0))
    point(
        "Meta: ETTR with 5 min checkpoints, largest runs",
        0.93,
        five,
        "16,384 GPUs, start 5 min, exponential, saves free",
    )
    two = goodput(Weibull(1.0, DAY_S / (100_000 / 8 * 0.00234)), 120.0, Costs(save_s=0.0, down_s=120.0))
    point(
        "Meta: ETTR at 100k GPUs, interval and restart 2 min",
        0.90,
        two,
        "RSC-2's rate, exponential, saves free",
    )
    llama()
    byterobust()


def llama() -> None:
    start_s = 600.0  # not published: between Meta's 5 and 20 min
    mine = Contender(
        name="llama",
        policy="holdfast:max-restarts=128",
        start_s=start_s,
        save_s=10.0,
        hang_s=600.0,
        node_lost_s=60.0,
    )
    world = settled(Plan(rate="llama-3", days=54, runs=1, policies=(mine,)))
    outcomes = [run(world, mine, seed) for seed in range(1, 11)]
    count = sum(one.interruptions for one in outcomes) / len(outcomes)
    ettr = sum(one.ettr for one in outcomes) / len(outcomes)
    point(
        "Llama 3: unexpected interruptions in 54 days",
        419,
        count,
        "16,384 GPUs, its own rate, mean of 10 runs",
    )
    point(
        "Llama 3: effective training time (> 0.90)",
        0.90,
        ettr,
        "start 10 min, save 10 s, hang 10 min, advised interval: assumed",
    )


def byterobust() -> None:
    mine = Contender(name="byterobust", policy="holdfast:max-restarts=128,replace-workers=128", start_s=300.0, save_s=0.03,
                     checkpoint_every_s=4.0, hang_s=600.0, node_lost_s=30.0)  # fmt: skip
    world = settled(Plan(gpus=9_600, rate="llama-3", days=90, runs=1, policies=(mine,)))
    ettrs = [run(world, mine, seed).ettr for seed in range(1, 11)]
    words = "9,600 GPUs, Llama 3's rate, every step saved at 0.03 s of 4 s, start 5 min, hang 10 min"
    point("ByteRobust: ETTR, dense, 3 months", 0.97, sum(ettrs) / len(ettrs), words)


def point(name: str, says: float, got: float, settings: str) -> None:
    print(f"{name:58}{says:>10.4g}{got:>10.4g}{got / says - 1.0:>8.1%}  {settings}")


# Policies and speed -----------------------------------------------------------------------------------------


def policies(runs: int) -> None:
    for shape in (1.0, 0.6):
        world = settled(
            Plan(rate="rsc-1", days=54, shape=shape, runs=runs, policies=tuple(known_contenders()))
        )
        found = compare(world)
        title = f"16,384 GPUs, 6.5 failures in 1,000 node-days, 54 days, {runs} runs, Weibull shape {shape}"
        for line in report(title, (), found.results):
            print(line.text)
        print()


def year() -> None:
    world = settled(Plan(rate="rsc-1", days=365, runs=1, policies=("holdfast",)))
    begun_s, wall_s = time.process_time(), time.monotonic()
    first = run(world, world.contenders[0], 7)
    took_s, wall_s = time.process_time() - begun_s, time.monotonic() - wall_s
    again = run(world, world.contenders[0], 7)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    same = "the same answer again" if first == again else "ANOTHER ANSWER"
    print(
        f"a year of 16,384 GPUs, holdfast: ETTR {first.ettr:.4f}, {first.interruptions} interruptions; {took_s:.1f} s of a core,"
    )
    print(f"{wall_s:.1f} s by the clock, {peak:.0f} MiB at most; same seed: {same}")


if __name__ == "__main__":
    sys.exit(main())
