"""Loss: what is told, and what healthy losses do."""

import math
import random

import pytest

from holdfast.core.steps.loss import LossWatch
from holdfast.model.steps import StepFinding


def fed(watch: LossWatch, losses: list[float]) -> list[StepFinding]:
    return [finding for step, loss in enumerate(losses) for finding in watch.feed(step, loss, None)]


def falling(count: int, seed: int = 0, noise: float = 0.03) -> list[float]:
    dice = random.Random(seed)
    return [(2 + 9 * math.exp(-step / 60)) * (1 + dice.gauss(0, noise)) for step in range(count)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_number_is_reported_once_and_where(bad: float) -> None:
    watch = LossWatch()
    told = fed(watch, [*falling(50), bad, bad, bad, 2.0])
    assert [(finding.kind, finding.step) for finding in told] == [("loss-nan", 50)]
    assert watch.report().nan_at == 50
    assert watch.report().last == 2.0


def test_the_last_loss_is_none_where_it_is_no_number() -> None:
    watch = LossWatch()
    fed(watch, [1.0, math.nan])
    assert watch.report().last is None


def test_a_spike_is_reported_once() -> None:
    losses = falling(400)
    losses[300:303] = [9.0, 8.0, 5.0]
    watch = LossWatch()
    assert [(finding.kind, finding.step) for finding in fed(watch, losses)] == [("loss-spike", 300)]
    spike = watch.report().spikes[0]
    assert (spike.step, spike.loss) == (300, 9.0)
    assert 1.8 < spike.before < 2.4
    assert watch.report().diverged_at is None


def test_a_divergence_is_reported_once_and_since_when() -> None:
    losses = [*falling(400), *(7.5 + 0.1 * math.sin(step) for step in range(200))]
    watch = LossWatch()
    assert [finding.kind for finding in fed(watch, losses)].count("loss-diverged") == 1
    since = watch.report().diverged_at
    assert since is not None and 400 <= since <= 420


@pytest.mark.parametrize("seed", range(10))
def test_healthy_losses_raise_nothing(seed: int) -> None:
    dice = random.Random(seed)
    crossing = [dice.gauss(0, 1) for _ in range(500)]  # reinforcement learning
    assert not fed(LossWatch(), falling(1000, seed))
    assert not fed(LossWatch(), falling(1000, seed, noise=0.15))
    assert not fed(LossWatch(), crossing)
    assert not fed(LossWatch(), [5.0] * 200)
