"""Values of steps for the tests of plots: small, and with everything in them."""

import random

from holdfast.model.steps import (
    CurvePoint,
    FirstLast,
    HeatMap,
    LossReport,
    LossSpike,
    Phase,
    RankTimes,
    Slowdown,
    Spike,
    StepReport,
    Straggler,
)

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">&amp;'\u2028"


def curve(count=40, base_s=3.0, *, run=0, start=0, width=10):
    dice = random.Random(run)
    points = []
    for i in range(count):
        first, value = start + i * width, base_s * dice.gauss(1, 0.004)
        points.append(
            CurvePoint(
                first_step=first,
                last_step=first + width - 1,
                median_s=value,
                low_s=value * 0.98,
                high_s=value * 1.03,
                run=run,
            )
        )
    return points


def single(step, time_s, kind, run=0):
    return CurvePoint(
        first_step=step, last_step=step, median_s=time_s, low_s=time_s, high_s=time_s, run=run, kind=kind
    )


def report(**changed):
    return StepReport(
        **{
            "framework": "Megatron-LM",
            "iteration_lines": 800,
            "first": FirstLast(step=0, step_time_s=300.0),
            "last": FirstLast(step=599, step_time_s=3.01),
            "median_step_time_s": 3.0,
            "runs": 2,
            "phases": (Phase(kind="checkpoint", first_step=99, last_step=599, count=6, median_s=24.0),),
            "slowdowns": (
                Slowdown(
                    first_step=100, last_step=150, before_s=3.0, after_s=4.2, ratio=1.4, kind="transient",
                    cost_gpu_hours=0.5, explanation="time for data rose", what="data",
                ),
                Slowdown(
                    first_step=500, last_step=None, before_s=3.0, after_s=3.6, ratio=1.2, kind="lasting",
                    cost_gpu_hours=1.25, explanation="rank 5 holds all back", what="rank 5", run=1,
                ),
            ),
            "spikes": (Spike(first_step=250, count=1, time_s=31.0, ratio=10.3),),
            "loss": LossReport(last=2.5, spikes=(LossSpike(step=320, loss=7.0, before=2.6),)),
            "ranks": {rank: RankTimes(count=10, median_s=3.0) for rank in range(8)},
            "stragglers": (
                Straggler(ranks=(5,), node="gpu-03", ratio=1.2, source="log-times", explanation="rank 5 is slow"),
            ),
            "notes": ("12 records have no time",),
            **changed,
        }
    )  # fmt: skip


def two_runs():
    """Compiles for 300 s, saves checkpoints, and is started again from step 300 after 400."""
    return [
        single(0, 300.0, "compile"),
        *curve(40),
        *(single(step, 24.0, "checkpoint") for step in range(99, 400, 100)),
        *curve(30, run=1, start=300),
        single(399, 24.0, "checkpoint", run=1),
    ]


def heat_map(ranks=8, columns=40, slow=5, ratio=1.2):
    """One rank is slow in the second half; one has no values for a while; a quarter of the steps is slow for all."""
    dice = random.Random(7)
    rows = []
    for rank in range(ranks):
        row = []
        for column in range(columns):
            value = 3.0 * dice.gauss(1, 0.004) * (1.5 if columns // 4 <= column < columns // 2 else 1)
            if rank == slow and column >= columns // 2:
                value *= ratio
            row.append(None if rank == 3 and 5 <= column < 8 else value)
        rows.append(tuple(row))
    return HeatMap(ranks=tuple(range(ranks)), steps=tuple(range(0, columns * 10, 10)), values=tuple(rows))
