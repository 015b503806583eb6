"""Fits a Weibull distribution to times between failures, with its uncertainty. Pure.

Failures come in bursts: after one the next is more likely for a while. This means a shape below 1; a shape of
1 is the exponential distribution, which is not assumed. With few failures the prior dominates, and the
credible interval is wide.
"""

from collections.abc import Sequence
from functools import cached_property
from math import exp, gamma, inf, isfinite, log, log1p

from msgspec import Struct

SHAPES = tuple(round(0.30 + 0.05 * step, 2) for step in range(25))  # 0.30 ... 1.50
MEANS = 81
MEAN_SIGMAS = 4.0
# Of the shape: InfiniteHBD and operators of large systems report 0.5 to 0.8 (docs/costs.md).
SHAPE_MIDDLE, SHAPE_SIGMA = 0.6, 0.25  # of its logarithm
# Of the mean time between failures of one node: published fleets differ by a factor of five and more.
MEAN_SIGMA = 0.8
TAIL = 3.0  # degrees of freedom of its prior, a Student distribution
FEW, SOME = 5, 20
TINY_S = 1.0  # assumed time between two simultaneous failures


class Weibull(Struct, frozen=True):
    """A Weibull distribution of times between failures, in any unit of time.

    `mean`: mean time between failures.
    """

    shape: float
    mean: float

    @property
    def scale(self) -> float:
        """Returns the scale parameter, in the unit of `mean`."""
        return self.mean / gamma(1.0 + 1.0 / self.shape)

    def survival(self, time: float) -> float:
        """Returns the probability that no failure happens before this time."""
        return 1.0 if time <= 0.0 else exp(-((time / self.scale) ** self.shape))

    def quantile(self, share: float) -> float:
        """Returns the time before which this share of failures happens, for 0 <= share < 1."""
        return float(self.scale * (-log(1.0 - share)) ** (1.0 / self.shape))


class Gaps(Struct, frozen=True, kw_only=True):
    """Times between failures.

    `censored`: times without a failure at the end, because the job ended or still runs.
    """

    failed: tuple[float, ...] = ()
    censored: tuple[float, ...] = ()

    @property
    def exposure(self) -> float:
        """Returns the sum of all observed times between failures, including unfinished ones."""
        return sum(self.failed) + sum(self.censored)


class Point(Struct, frozen=True):
    """A point of the posterior: a distribution and its probability."""

    weight: float
    fit: Weibull


class Range(Struct, frozen=True):
    """The median and the 90 % credible interval of a quantity."""

    low: float
    middle: float
    high: float


class Fit(Struct, frozen=True, kw_only=True, dict=True):
    """The posterior of a Weibull distribution.

    `points`: their weights add up to 1. `failures`: number of observed failures.
    """

    points: tuple[Point, ...]
    failures: int
    exposure: float

    @cached_property
    def mean(self) -> Range:
        """Returns the mean time between failures, with its credible interval."""
        return _range([(point.fit.mean, point.weight) for point in self.points])

    @cached_property
    def shape(self) -> Range:
        """Returns the shape parameter, with its credible interval."""
        return _range([(point.fit.shape, point.weight) for point in self.points])

    @property
    def best(self) -> Weibull:
        """Returns the distribution with the median shape and the median mean of the posterior."""
        return Weibull(self.shape.middle, self.mean.middle)

    def scaled(self, factor: float) -> "Fit":
        """Returns the posterior for a group of `factor` times as many nodes."""
        points = tuple(
            Point(point.weight, Weibull(point.fit.shape, point.fit.mean / factor)) for point in self.points
        )
        return Fit(points=points, failures=self.failures, exposure=self.exposure / factor)

    @property
    def few(self) -> tuple[Point, ...]:
        """Returns at most 25 points that represent the posterior, for expensive computations."""
        return _thinned(self.points)

    @property
    def known(self) -> str:
        """Returns in words how certain the estimated failure rate is."""
        if not self.failures:
            return (
                "no failure was seen: the rate is that of published fleets, bounded by the time without one"
            )
        if self.failures < FEW:
            seen = f"only {self.failures} failures were" if self.failures > 1 else "only 1 failure was"
            return f"{seen} seen: little is known, and the range is wide"
        if self.failures < SOME:
            return f"{self.failures} failures were seen: the rate is roughly known, its burstiness is not"
        return f"{self.failures} failures were seen"


def fit(gaps: Gaps, expected_mean: float) -> Fit:
    """Returns the posterior, computed on a grid. `expected_mean`: of the prior, in the unit of the gaps."""
    failed = tuple(max(time, TINY_S) for time in gaps.failed if isfinite(time) and time >= 0.0)
    censored = tuple(time for time in gaps.censored if isfinite(time) and time > 0.0)
    logs = sum(map(log, failed))
    means = _means(expected_mean, len(failed), sum(failed) + sum(censored))
    found: list[tuple[float, Weibull]] = []
    for shape in SHAPES:
        powers = sum(time**shape for time in failed) + sum(time**shape for time in censored)
        prior = -0.5 * (log(shape / SHAPE_MIDDLE) / SHAPE_SIGMA) ** 2
        for mean in means:
            one = Weibull(shape, mean)
            log_scale = log(one.scale)
            likelihood = (
                len(failed) * (log(shape) - shape * log_scale)
                + (shape - 1.0) * logs
                - powers * exp(-shape * log_scale)
            )
            found.append((likelihood + prior + _prior(log(mean / expected_mean)), one))
    top = max(score for score, _ in found)
    weights = [(exp(score - top), one) for score, one in found if score - top > -30.0]
    total = sum(weight for weight, _ in weights)
    points = tuple(Point(weight / total, one) for weight, one in weights)
    return Fit(points=points, failures=len(failed), exposure=sum(failed) + sum(censored))


def _means(expected_mean: float, failures: int, exposure: float) -> list[float]:
    """Returns the grid of means: wide with few failures, narrow around the observed mean with many."""
    prior = log(expected_mean)
    seen = log(max(exposure, TINY_S) / failures) if failures else max(prior, log(max(exposure, TINY_S)))
    if failures >= SOME:
        half = MEAN_SIGMAS * (0.25 * failures) ** -0.5
        low, high = seen - half, seen + half
    else:
        low, high = min(prior, seen) - MEAN_SIGMAS * MEAN_SIGMA, max(prior, seen) + MEAN_SIGMAS * MEAN_SIGMA
    return [exp(low + (high - low) * at / (MEANS - 1)) for at in range(MEANS)]


def _prior(log_ratio: float) -> float:
    """Returns the log prior of the logarithm of mean to expected mean.

    A Student distribution: its heavy tails let a fleet differ from the published ones after few failures.
    """
    return -0.5 * (TAIL + 1.0) * log1p((log_ratio / MEAN_SIGMA) ** 2 / TAIL)


def exactly(one: Weibull) -> Fit:
    """Returns a fit without uncertainty, for a known distribution."""
    return Fit(points=(Point(1.0, one),), failures=0, exposure=inf)


def _range(pairs: Sequence[tuple[float, float]]) -> Range:
    ordered = sorted(pairs)
    return Range(_at(ordered, 0.05), _at(ordered, 0.5), _at(ordered, 0.95))


def _at(ordered: Sequence[tuple[float, float]], share: float) -> float:
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        if passed >= share:
            return value
    return ordered[-1][0]


def _thinned(points: Sequence[Point], kept: int = 25) -> tuple[Point, ...]:
    """Returns points at equal steps of cumulative probability, ordered by mean, then by shape."""
    ordered = sorted(points, key=lambda point: (point.fit.mean, point.fit.shape))
    found, passed, due = list[Weibull](), 0.0, 0.5 / kept
    for point in ordered:
        passed += point.weight
        while passed >= due and len(found) < kept:
            found.append(point.fit)
            due += 1.0 / kept
    return tuple(Point(1.0 / len(found), one) for one in found) if found else tuple(points)
