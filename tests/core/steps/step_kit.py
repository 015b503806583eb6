"""Step times made up for tests: the same seed gives the same."""

import random
from collections.abc import Callable, Iterable

from holdfast.core.steps.watch import StepWatch
from holdfast.model.steps import StepFinding, StepRecord


def times(count: int, *, seed: int = 0, jitter: float = 0.015, usual_s: float = 1.0) -> list[float]:
    dice = random.Random(seed)
    return [usual_s * max(dice.gauss(1, jitter), 0.1) for _ in range(count)]


def paused(values: list[float], every: int, ratio: float) -> list[float]:
    return [value * (ratio if not place % every else 1) for place, value in enumerate(values, 1)]


def scaled(values: list[float], ratio: Callable[[int], float]) -> list[float]:
    """Each by what `ratio` says of its place, from 1 on."""
    return [value * ratio(place) for place, value in enumerate(values, 1)]


def records(values: Iterable[float], *, steps: int = 1, first: int = 1) -> list[StepRecord]:
    return [
        StepRecord(step=first + (place + 1) * steps - 1, time_s=value, steps=steps)
        for place, value in enumerate(values)
    ]


def fed(watch: StepWatch, items: Iterable[StepRecord]) -> list[StepFinding]:
    return [finding for item in items for finding in watch.feed(item)]
