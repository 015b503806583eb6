"""Slowdowns: found soon, and nothing healthy is called one."""

import math
import random

import pytest

from core.steps.step_kit import fed, paused, records, scaled, times
from holdfast.core.steps.watch import StepWatch
from holdfast.model.steps import StepRecord


def usual(count: int, seed: int) -> list[float]:
    """Jitter, checkpoints, evaluation, spikes, and a swing through the day."""
    dice = random.Random(seed)
    values = paused(paused(times(count, seed=seed), 100, 8.0), 250, 30.0)
    return [
        value
        * (dice.uniform(2, 10) if dice.random() < 0.005 else 1)
        * (1 + 0.02 * math.sin(place / 500 + seed))
        for place, value in enumerate(values)
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("ratio", "within"), [(1.05, 30), (1.10, 10), (2.0, 10)])
def test_a_lasting_slowdown_is_reported_soon(seed: int, ratio: float, within: int) -> None:
    values = scaled(usual(430, seed), lambda place: ratio if place > 400 else 1)
    watch = StepWatch()
    told = fed(watch, records(values))
    assert [finding.kind for finding in told] == ["slowdown"]
    assert told[0].step is not None and told[0].step <= 400 + within
    (slowdown,) = watch.slowdowns()
    assert slowdown.last_step is None
    assert slowdown.ratio == pytest.approx(ratio, rel=0.04)
    assert slowdown.first_step is not None and abs(slowdown.first_step - 401) <= 6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "turns",
    [(1.0, 1.25), (1.0, 1.0, 2.0), (1.0,) * 9 + (5.0,), (1.0,) * 6 + (1.5,), (1.0, 0.0002)],
    ids=["alternating", "every third", "every tenth", "every seventh", "asynchronous"],
)
def test_steps_that_take_turns_are_healthy_and_still_judged(turns: tuple[float, ...], seed: int) -> None:
    values = scaled(times(1500, seed=seed), lambda place: turns[place % len(turns)])
    watch = StepWatch()
    assert not fed(watch, records(values))
    assert not watch.slowdowns()
    slower = [
        value * 1.1 for value in scaled(times(12, seed=99), lambda place: turns[(1500 + place) % len(turns)])
    ]
    assert [finding.kind for finding in fed(watch, records(slower, first=1501))] == ["slowdown"]


HEALTHY = {
    "usual": lambda seed: usual(2000, seed),
    "noisy": lambda seed: times(2000, seed=seed, jitter=0.3),
    "generated lengths": lambda seed: [value**0.3 for value in times(1500, seed=seed, jitter=0.9)],
    "ordered by length": lambda seed: scaled(times(2000, seed=seed), lambda place: 0.5 + place % 400 / 400),
    "long warm-up": lambda seed: scaled(times(400, seed=seed), lambda place: 1 + 3 * math.exp(-place / 4)),
    "compiles": lambda seed: scaled(
        times(900, seed=seed), lambda place: 60 if place in (1, 2, 300, 301) else 1
    ),
    "coarse print": lambda seed: [round(0.0752 * value, 2) for value in times(1000, seed=seed)],
    "coarse stamps": lambda seed: [
        float(math.floor(1.4 * place + 1.4) - math.floor(1.4 * place)) for place in range(600)
    ],
    "evaluation in the window": lambda seed: paused(times(600, seed=seed), 7, 12.0),
    "few": lambda seed: [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_steps_raise_nothing(kind: str, seed: int) -> None:
    watch = StepWatch()
    assert not fed(watch, records(HEALTHY[kind](seed)))
    assert not watch.slowdowns()


def test_a_batch_that_grows_is_no_slowdown() -> None:
    stated = [
        StepRecord(step=step, time_s=value * 2 ** (step // 200), batch=64.0 * 2 ** (step // 200))
        for step, value in enumerate(times(1000), 1)
    ]
    watch = StepWatch()
    assert not fed(watch, stated)
    assert not watch.slowdowns()
    # Not stated, but throughput stays while time grows.
    silent = []
    for step, value in enumerate(times(800), 1):
        work = 1.0 if step <= 400 else 1.5
        silent.append(StepRecord(step=step, time_s=work * value, throughput=1000 / value))
    watch = StepWatch()
    assert not fed(watch, silent)
    assert not watch.slowdowns()


def test_one_that_goes_by_is_reported_as_over() -> None:
    values = scaled(times(2600), lambda place: 1.14 if 925 <= place < 1295 else 1)
    watch = StepWatch()
    assert [finding.kind for finding in fed(watch, records(values))] == ["slowdown", "slowdown-over"]
    (slowdown,) = watch.slowdowns()
    assert slowdown.kind == "transient"
    assert slowdown.first_step == pytest.approx(925, abs=4)
    assert slowdown.last_step == pytest.approx(1294, abs=4)
    assert slowdown.cost_gpu_hours == pytest.approx(0.14 * 370 / 3600, rel=0.1)


@pytest.mark.parametrize("steps", [1, 50])
@pytest.mark.parametrize("seed", range(3))
def test_stretches_that_come_and_go(steps: int, seed: int) -> None:
    values = scaled(
        times(700, seed=seed, jitter=0.02),
        lambda place: 1.14 if 295 < place < 337 or 463 < place < 505 else 1,
    )
    watch = StepWatch()
    fed(watch, records(values, steps=steps))
    assert len(watch.slowdowns()) == 2


@pytest.mark.parametrize("seed", range(3))
def test_a_ramp(seed: int) -> None:
    values = scaled(
        times(4000, seed=seed, jitter=0.03), lambda place: 1 + 0.23 * min(max(place - 600, 0) / 1500, 1)
    )
    watch = StepWatch()
    told = fed(watch, records(values))
    assert told and watch.slowdowns()[-1].last_step is None
    assert watch.slowdowns()[0].kind == "ramp"


@pytest.mark.parametrize("seed", range(3))
def test_a_slow_start_is_not_a_warm_up(seed: int) -> None:
    values = scaled(times(800, seed=seed), lambda place: 1.2 if place < 130 else 1)
    watch = StepWatch()
    assert not fed(watch, records(values, steps=50))
    (slowdown,) = watch.slowdowns()
    assert (slowdown.kind, slowdown.last_step) == ("slow-start", pytest.approx(6450, abs=150))


def test_stages_of_a_schedule_are_no_slow_start() -> None:
    values = scaled(times(900), lambda place: (2.0, 1.4, 1.0)[(place - 1) // 300])
    watch = StepWatch()
    fed(watch, records(values, steps=20))
    assert not watch.slowdowns()


def test_waiting_for_data_is_named() -> None:
    items = [
        StepRecord(step=step, time_s=value + (0.2 if step > 300 else 0), data_s=0.25 if step > 300 else 0.05)
        for step, value in enumerate(times(400), 1)
    ]
    watch = StepWatch()
    (finding,) = fed(watch, items)
    assert "data" in finding.text and "数据" in finding.text_zh
    assert watch.slowdowns()[0].what == "data"
