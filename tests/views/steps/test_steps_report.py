"""The report on steps, from trainings made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from holdfast.core.steps.report import Training
from holdfast.model.matches import DAY_UNKNOWN_S, Skipped
from holdfast.model.steps import (
    CurvePoint,
    FirstLast,
    LossReport,
    LossSpike,
    Phase,
    RankTimes,
    Slowdown,
    Spike,
    StepNow,
    StepReport,
    Straggler,
)
from holdfast.views.steps.report import Scanned, moment, report, sparkline

AT_S = 1745248801.0  # 2025-04-21 15:20:01 UTC
SLOWDOWN = Slowdown(
    first_step=250,
    last_step=None,
    before_s=1.0,
    after_s=1.31,
    ratio=1.31,
    kind="lasting",
    cost_gpu_hours=12.5,
    explanation="Steps have become slower since step 250: 1.00 s -> 1.31 s (+31 %); every step is slower, not only pauses",
    explanation_zh="训练步变慢（自第 250 步起）：1.00 s -> 1.31 s (+31 %)；每一步都变慢，不仅是停顿",
    since_s=AT_S,
)
STRAGGLER = Straggler(
    ranks=(8, 9, 10, 11),
    node="gpu-03",
    ratio=1.12,
    source="log-times",
    first_step=120,
    confidence=0.9,
    explanation="node gpu-03 (ranks 8-11) is slower than the others, which wait for it",
    explanation_zh="节点 gpu-03（rank 8-11）比其他节点慢，其他 rank 在等待它",
)
HEALTHY = Training(
    name="train.log",
    logs=("train.log",),
    report=StepReport(
        framework="Megatron-LM",
        iteration_lines=400,
        first=FirstLast(step=1, step_time_s=1.01),
        last=FirstLast(step=400, step_time_s=0.99),
        median_step_time_s=1.0,
        phases=(Phase(kind="step", first_step=1, last_step=400, count=400, median_s=1.0),),
        loss=LossReport(last=2.31),
        runs=1,
    ),
    now=StepNow(step=400, total=10_000, now_s=1.0, median_s=1.0, best_s=0.98, eta_s=9600.0, loss=2.31),
    curve=tuple(
        CurvePoint(first_step=step, last_step=step, median_s=1.0, low_s=1.0, high_s=1.0)
        for step in range(100)
    ),
)
SICK = replace(
    HEALTHY,
    logs=("rank-0.log", "rank-1.log", "rank-2.log"),
    name="rank-0.log",
    report=replace(
        HEALTHY.report,
        phases=(
            Phase(kind="warmup", first_step=1, last_step=3, count=3, median_s=12.0),
            Phase(kind="step", first_step=4, last_step=400, count=393, median_s=1.0),
            Phase(kind="checkpoint", first_step=100, last_step=400, count=4, median_s=8.2),
        ),
        slowdowns=(SLOWDOWN,),
        spikes=(
            Spike(first_step=77, count=1, time_s=4.2, ratio=4.2),
            Spike(first_step=100, count=4, time_s=8.2, ratio=8.2, period=100, kind="checkpoint"),
        ),
        loss=LossReport(last=2.31, spikes=(LossSpike(step=310, loss=9.5, before=2.4),), diverged_at=390),
        ranks={rank: RankTimes(count=400, median_s=1 + rank / 10, ratio=1.0) for rank in range(3)},
        stragglers=(STRAGGLER,),
        runs=2,
        notes=("times of 3 lines could be read in two ways",),
    ),
)
DIVERGED = replace(
    HEALTHY, report=replace(HEALTHY.report, loss=LossReport(nan_at=390), stragglers=(STRAGGLER,))
)
READ = Scanned(
    files=3, size_bytes=1 << 20, seconds=0.42, skipped=(Skipped(name="core.1", why="it is a binary file"),)
)
CASES = {
    "healthy": [HEALTHY],
    "sick": [SICK, replace(HEALTHY, name="other.log")],
    "diverged": [DIVERGED],
    "nothing": [],
}


def page(trainings, language="en", width=120, **more):
    return "\n".join(line.text for line in report(trainings, READ, language, width, **more)) + "\n"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", CASES)
def test_the_report(golden, name, width, language):
    text = page(CASES[name], language, width)
    golden(f"steps/{name}-{language}-{width}.txt", text)
    assert max(map(cell_len, text.splitlines())) <= width


def test_stamps_are_shown_as_the_log_has_them():
    assert moment(AT_S) == "2025-04-21 15:20:01"
    assert moment(DAY_UNKNOWN_S + 3661) == "01:01:01"
    assert moment(12.5) == ""  # since boot
    assert moment(1e300) == ""


@given(
    st.lists(st.floats(min_value=1e-6, max_value=1e6), max_size=300),
    st.integers(min_value=1, max_value=100),
)
def test_the_chart_is_never_wider_than_asked(times, columns):
    points = [
        CurvePoint(first_step=step, last_step=step, median_s=time_s, low_s=time_s, high_s=time_s)
        for step, time_s in enumerate(times)
    ]
    assert len(sparkline(points, columns)) <= columns


def test_what_a_log_says_cannot_steer_the_terminal():
    evil = replace(HEALTHY, name="a\x1b[2Jb.log", report=replace(HEALTHY.report, framework="x\x1b]0;y\x07"))
    assert "\x1b" not in page([evil, evil])
