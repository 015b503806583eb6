"""The watch over one log: phases, spikes, restarts, the counter that stands, bounds."""

import random

import pytest

from core.steps.step_kit import fed, paused, records, scaled, times
from holdfast.core.steps.aistudio import AistudioRule
from holdfast.core.steps.watch import StepWatch
from holdfast.core.steps.watch_settings import Baseline, StepSettings
from holdfast.model.steps import PhaseMark, StepRecord


def test_phases_and_periodic_spikes_are_explained() -> None:
    watch = StepWatch()
    values = paused(times(1000), 100, 8.0)
    values[0] = 45.0
    for record in records(values):
        assert record.step is not None
        if record.step % 100 == 0:
            watch.feed(PhaseMark(kind="checkpoint"))
        assert not watch.feed(record)
    kinds = {phase.kind: phase for phase in watch.phases()}
    assert set(kinds) == {"warmup", "step", "checkpoint"}
    assert (kinds["warmup"].count, kinds["checkpoint"].count, kinds["step"].count) == (1, 10, 989)
    assert kinds["checkpoint"].median_s == pytest.approx(8, rel=0.05)
    (spike,) = watch.spikes()
    assert (spike.kind, spike.period, spike.count, spike.first_step) == ("checkpoint", 100, 10, 100)


def test_checkpoints_that_got_longer_are_named_and_steps_are_not() -> None:
    watch = StepWatch(StepSettings(ranks=8))
    values = scaled(times(2400), lambda place: 1.0 if place % 100 else 8.0 if place <= 1200 else 20.0)
    for record in records(values):
        assert record.step is not None
        if record.step % 100 == 0:
            watch.feed(PhaseMark(kind="checkpoint"))
        assert not watch.feed(record)
    (slowdown,) = watch.slowdowns()
    assert (slowdown.what, slowdown.first_step) == ("checkpoint", 1300)
    assert slowdown.ratio == pytest.approx(2.5, rel=0.05)
    assert slowdown.explanation.startswith("Only checkpoints take longer since step 1300")


def test_two_periods_that_nothing_explains() -> None:
    watch = StepWatch()
    values = scaled(paused(times(2000), 100, 8.0), lambda place: 3.0 if place % 250 == 33 else 1)
    values[571] = 7.0
    fed(watch, records(values))
    found = {(spike.period, spike.count) for spike in watch.spikes()}
    assert found == {(100, 20), (250, 8), (None, 1)}
    assert not watch.slowdowns()


def test_a_step_logged_by_every_rank_counts_once() -> None:
    watch = StepWatch()
    for step, value in enumerate(times(100), 1):
        for rank in range(4):
            watch.feed(StepRecord(step=step, time_s=value, rank=rank))
    assert watch.phases()[0].count == 100


def test_a_restart_is_compared_with_the_run_before() -> None:
    before = StepWatch()
    fed(before, records(times(300)))
    baseline = before.baseline()
    assert baseline is not None and baseline.level_s == pytest.approx(0.99, abs=0.02)
    slow = StepWatch(before=baseline)
    told = fed(slow, records([1.2 * value for value in times(100, seed=1)], first=300))
    assert [finding.kind for finding in told] == ["slowdown"]
    assert "restart" in told[0].text and "重启" in told[0].text_zh
    assert slow.slowdowns()[0].ratio == pytest.approx(1.2, rel=0.03)
    same = StepWatch(before=baseline)
    assert not fed(same, records([30.0, 1.5, *times(100, seed=2)], first=300))
    other_batch = Baseline(level_s=1.0, median_s=1.0, batch=64.0)
    doubled = [
        StepRecord(step=step, time_s=2 * value, batch=128.0) for step, value in enumerate(times(100), 300)
    ]
    assert not fed(StepWatch(before=other_batch), doubled)


def test_a_run_resumed_in_the_same_log_is_compared_and_another_run_is_not() -> None:
    first = records(times(300))
    for start, told in ((200, 1), (1, 0)):
        second = [
            StepRecord(step=start + place, time_s=1.3 * value, run=1)
            for place, value in enumerate(times(100, seed=1))
        ]
        watch = StepWatch()
        assert len(fed(watch, [*first, *second])) == told
        assert [slowdown.run for slowdown in watch.slowdowns()] == [1] * told


def test_a_counter_that_stands_while_lines_come() -> None:
    watch = StepWatch()
    at_s = 0.0
    for record in records(times(50)):
        at_s += 1.0
        watch.feed(record)
        watch.line_seen(at_s)
        assert not watch.tick(at_s)
    told = []
    for _ in range(200):
        at_s += 1.0
        watch.line_seen(at_s)
        told += watch.tick(at_s)
    assert [(finding.kind, finding.step) for finding in told] == ["step-stands", 50] or len(told) == 1
    assert told[0].step == 50 and told[0].at_s is not None and told[0].at_s <= 125


@pytest.mark.parametrize("mark", [None, PhaseMark(kind="evaluation")])
def test_silence_and_evaluation_are_not_a_counter_that_stands(mark: PhaseMark | None) -> None:
    watch = StepWatch()
    for at_s, record in enumerate(records(times(50))):
        watch.feed(record)
        watch.line_seen(float(at_s))
    if mark is not None:
        watch.feed(mark)
    for at_s in range(50, 250):
        if mark is not None:
            watch.line_seen(float(at_s))
        assert not watch.tick(float(at_s))


def test_cost_and_ranks() -> None:
    watch = StepWatch(StepSettings(ranks=64))
    fed(watch, records(scaled(times(1000), lambda place: 1.5 if place > 400 else 1)))
    (slowdown,) = watch.slowdowns()
    assert slowdown.cost_gpu_hours == pytest.approx(0.5 * 600 * 64 / 3600, rel=0.1)
    assert "GPU-hours" in slowdown.explanation and "since step 40" in slowdown.explanation
    assert "GPU 小时" in slowdown.explanation_zh


def test_now() -> None:
    watch = StepWatch()
    assert watch.now().step is None
    fed(watch, [StepRecord(step=step, time_s=2.0, total=1000, loss=1.5) for step in range(1, 201)])
    now = watch.now()
    assert (now.step, now.total, now.now_s, now.median_s, now.best_s) == (200, 1000, 2.0, 2.0, 2.0)
    assert (now.eta_s, now.loss, now.slowdown) == (1600.0, 1.5, "")


def test_a_log_of_throughput_alone() -> None:
    watch = StepWatch()
    items = [
        StepRecord(step=step, throughput=(1000 if step <= 300 else 800) / value)
        for step, value in enumerate(times(400), 1)
    ]
    assert [finding.kind for finding in fed(watch, items)] == ["throughput-drop"]
    assert watch.median_s() is None
    assert watch.slowdowns()[0].ratio == pytest.approx(1.25, rel=0.03)


def test_stamps_serve_where_no_time_is_printed() -> None:
    watch = StepWatch()
    fed(watch, [StepRecord(step=step, at_s=100 + 3.0 * step) for step in range(50)])
    assert watch.median_s() == pytest.approx(3.0)


@pytest.mark.parametrize("count", [400, 10_000])
def test_what_a_line_explains_is_a_point_of_its_own_in_the_curve(count: int) -> None:
    watch = StepWatch()
    for record in records(paused(times(count), 100, 8)):
        if not (record.step or 1) % 100:
            watch.feed(PhaseMark(kind="checkpoint"))
        watch.feed(record)
    marked = [point for point in watch.curve() if point.kind == "checkpoint"]
    assert {point.last_step for point in marked} == set(range(100, count + 1, 100))
    assert all(point.median_s == pytest.approx(8, rel=0.1) for point in marked)
    usual = [point for point in watch.curve() if point.kind == "step"]
    assert max(point.median_s for point in usual) < 2
    assert len(watch.curve()) <= 2100


def test_a_long_log_stays_small() -> None:
    watch = StepWatch()
    fed(watch, records(scaled(times(30_000), lambda place: 1.3 if place > 20_000 else 1)))
    curve = watch.curve()
    assert 200 < len(curve) <= 2000
    assert curve[-1].last_step == 30_000
    assert sum(point.median_s > 1.2 for point in curve) == pytest.approx(len(curve) / 3, rel=0.1)
    assert watch.slowdowns()[0].first_step == pytest.approx(20_001, abs=8)


@pytest.mark.parametrize("seed", range(30))
def test_nonsense_is_borne(seed: int) -> None:
    dice = random.Random(seed)
    odd = [None, 0.0, -1.0, float("nan"), float("inf"), 1e400, 1e-300, 1e9, 1.0, 2.0]
    watch, rule = StepWatch(), AistudioRule()
    for _ in range(400):
        record = StepRecord(
            step=dice.choice([None, 0, -5, dice.randrange(1000), 2**63]),
            time_s=dice.choice(odd),
            printed_s=dice.choice(odd),
            steps=dice.choice([1, 1, 10]),
            at_s=dice.choice([None, 0.0, dice.random() * 1e6, -5.0]),
            run=dice.choice([0, 0, 0, 1, 2]),
            epoch=dice.choice([None, 1, 2]),
            total=dice.choice([None, 10]),
            loss=dice.choice(odd),
            throughput=dice.choice(odd),
            batch=dice.choice([None, 64.0, float("nan")]),
            data_s=dice.choice(odd),
        )
        watch.feed(record)
        rule.feed(record)
        watch.line_seen(dice.random() * 1e6)
        watch.tick(dice.random() * 1e6)
    for ask in (
        watch.now,
        watch.phases,
        watch.spikes,
        watch.slowdowns,
        watch.loss,
        watch.curve,
        watch.baseline,
    ):
        ask()
