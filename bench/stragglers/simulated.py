"""How surely and how soon one slow rank among many is named, how often a healthy one is, and what it costs.

    python -m bench.stragglers.simulated --ranks 4,64,8192 --series 40 --healthy 20 --seed 1 --json out/stragglers.json

Own times are drawn: jitter of each step of each rank (`--jitter`), ranks that differ by `--between` all the time, steps
of 2-10 times the usual length in 0.5 % of all, a swing of 2 % and checkpoints of 8 steps' length that all ranks share.
One rank takes `--slow` longer from a step between 0 and 60 on. It counts as named when it alone is within 30 steps, by
the stream that a running job feeds; healthy runs of 1,000 steps and the time are of `matrix.analyse`. Needs numpy.
"""

import argparse
import sys
import time
from pathlib import Path

import msgspec
import numpy
from msgspec import Struct

from holdfast.core.stragglers.matrix import analyse
from holdfast.core.stragglers.watch import StragglerWatch

SPIKES, SPIKE_MAX = 0.005, 10.0
SWING, SWING_STEPS = 0.02, 400
CHECKPOINT_EVERY, CHECKPOINT_STEPS = 100, 8.0
AT_MAX, NAMED_WITHIN = 60, 30
HEALTHY_STEPS = 1000


class Row(Struct, frozen=True, kw_only=True):
    ranks: int
    jitter: float
    series: int
    named: int  # within 30 steps, and no other
    median_steps: int | None
    others: int  # series in which another rank was named, too
    healthy_runs: int
    healthy_flagged: int  # runs in which any rank was named
    analysis_s: float | None  # processor time for 1,000 steps, the median
    wall_s: float | None = None


def drawn(
    dice: numpy.random.Generator, ranks: int, steps: int, jitter: float, between: float
) -> numpy.ndarray:
    """Own times, ranks x steps, seconds."""
    usual = 1.0 + between * dice.standard_normal((ranks, 1))
    times = usual * (1.0 + jitter * dice.standard_normal((ranks, steps)))
    spikes = dice.random((ranks, steps)) < SPIKES
    times[spikes] *= dice.uniform(2.0, SPIKE_MAX, int(spikes.sum()))
    shared = 1.0 + SWING * numpy.sin(2 * numpy.pi * numpy.arange(steps) / SWING_STEPS)
    shared[CHECKPOINT_EVERY - 1 :: CHECKPOINT_EVERY] *= CHECKPOINT_STEPS
    return numpy.maximum(0.01, times * shared)


def steps_to_name(
    dice: numpy.random.Generator, ranks: int, jitter: float, options: argparse.Namespace
) -> tuple[int | None, bool]:
    """After how many slow steps the one is named, and whether another is."""
    at, slow = int(dice.integers(AT_MAX + 1)), int(dice.integers(ranks))
    times = drawn(dice, ranks, at + NAMED_WITHIN, jitter, options.between)
    times[slow, at:] *= 1.0 + options.slow
    watch = StragglerWatch()
    taken, others = None, False
    for step, column in enumerate(times.T.tolist()):
        watch.own_work(step, dict(enumerate(column)))
        for finding in watch.findings(step, float(step)):
            if finding.kind == "straggler" and finding.numbers["ranks"] == [float(slow)] and step >= at:
                taken = step - at + 1 if taken is None else taken
            elif finding.kind == "straggler":
                others = True
    return taken, others


def measured(ranks: int, jitter: float, options: argparse.Namespace) -> Row:
    dice = numpy.random.default_rng([options.seed, ranks, round(jitter * 1e4)])
    seen = [steps_to_name(dice, ranks, jitter, options) for _ in range(options.series)]
    taken = sorted(steps for steps, _ in seen if steps is not None)
    flagged, cpu_s, wall_s = 0, [], []
    for _ in range(options.healthy):
        rows = drawn(dice, ranks, HEALTHY_STEPS, jitter, options.between).tolist()
        begun_s, begun_wall_s = time.process_time(), time.perf_counter()
        flagged += bool(analyse(rows))
        cpu_s.append(time.process_time() - begun_s)
        wall_s.append(time.perf_counter() - begun_wall_s)
    return Row(
        ranks=ranks,
        jitter=jitter,
        series=len(seen),
        named=sum(steps is not None and not others for steps, others in seen),
        median_steps=taken[len(taken) // 2] if taken else None,
        others=sum(others for _, others in seen),
        healthy_runs=options.healthy,
        healthy_flagged=flagged,
        analysis_s=sorted(cpu_s)[len(cpu_s) // 2] if cpu_s else None,
        wall_s=sorted(wall_s)[len(wall_s) // 2] if wall_s else None,
    )


def main() -> int:
    options = read_options()
    rows = []
    share = f"{options.slow:.0%} slow"
    print(
        f"| ranks | jitter | {share}: named in 30 steps | median | another named, too | healthy runs of 1,000 steps "
        "with a false flag | analysis of 1,000 steps, CPU s (wall) |"
    )
    print("|---|---|---|---|---|---|---|")
    for ranks in options.ranks:
        for jitter in options.jitter:
            row = measured(ranks, jitter, options)
            rows.append(row)
            cost = f"{row.analysis_s:.2f} ({row.wall_s:.2f})" if row.analysis_s is not None else "-"
            print(
                f"| {ranks} | {jitter:.1%} | {row.named} of {row.series} | {row.median_steps} | {row.others} "
                f"| {row.healthy_flagged} of {row.healthy_runs} | {cost} |",
                flush=True,
            )
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
    return 0


def numbers(text: str) -> list[float]:
    return [float(one) for one in text.split(",")]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=lambda text: [int(one) for one in text.split(",")], default=[8192])
    parser.add_argument("--jitter", type=numbers, default=[0.015, 0.03])
    parser.add_argument("--between", type=float, default=0.005, help="standard deviation between ranks")
    parser.add_argument("--slow", type=float, default=0.05)
    parser.add_argument("--series", type=int, default=40)
    parser.add_argument("--healthy", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
