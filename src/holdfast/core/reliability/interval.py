"""Computes the checkpoint interval with the highest goodput, numerically, from a fitted failure distribution.

Pure.

The model is a renewal process: after a failure the job is down, starts, and then does work that a checkpoint
saves after each interval. With T the time from the failure to the next one, the saved work of a cycle is the
interval times the number of checkpoints within T. Young's and Daly's formulas, which assume an exponential
distribution, are given for comparison.
"""

from collections.abc import Sequence
from math import exp, log, sqrt

from msgspec import Struct

from holdfast.core.reliability.weibull import Fit, Point, Weibull

DIRECT = 512  # checkpoints of a cycle that are summed exactly; beyond, with growing strides
GROWTH = 1.05
NEGLIGIBLE = 1e-7

RATIO_MIN, RATIO_MAX = 0.02, 50.0  # search range, as multiples of Young's interval
INTERVAL_S_MIN = 1.0
GOLDEN = (sqrt(5.0) - 1.0) / 2.0


class Costs(Struct, frozen=True, kw_only=True):
    """The cost of a checkpoint, `save_s` seconds without a step, and of a failure, `down_s` seconds until the
    next step.
    """

    save_s: float
    down_s: float


class Interval(Struct, frozen=True, kw_only=True):
    """The best checkpoint interval with a credible range, and its goodput.

    `young_s`, `daly_s`: by their formulas.
    """

    best_s: float
    low_s: float
    high_s: float
    goodput: float
    goodput_low: float
    goodput_high: float
    young_s: float
    daly_s: float


def goodput(one: Weibull, interval_s: float, costs: Costs) -> float:
    """Returns the long-run share of time that becomes saved work, 0 to 1, for one failure distribution."""
    step_s = interval_s + costs.save_s
    saved, number, stride = 0.0, 1.0, 1.0
    while True:
        middle = number + (stride - 1.0) / 2.0
        survives = one.survival(costs.down_s + middle * step_s)
        saved += stride * survives
        number += stride
        if survives * stride < NEGLIGIBLE * max(saved, 1e-3):
            break
        if number > DIRECT:
            stride *= GROWTH
    return min(1.0, interval_s * saved / one.mean)


def seen_goodput(gaps_s: Sequence[float], interval_s: float, costs: Costs) -> float:
    """Returns the share of time that becomes saved work, for measured times between failures, such as those
    of a trace.
    """
    step_s, whole_s = interval_s + costs.save_s, sum(gaps_s)
    saved = sum((max(0.0, gap_s - costs.down_s) // step_s) * interval_s for gap_s in gaps_s)
    return saved / whole_s if whole_s else 0.0


def expected(fit: Fit, interval_s: float, costs: Costs) -> float:
    """Returns the expected goodput of a checkpoint interval, averaged over the posterior of a fit."""
    return sum(point.weight * goodput(point.fit, interval_s, costs) for point in fit.few)


def best_interval(fit: Fit, costs: Costs) -> Interval:
    """Returns the checkpoint interval with the highest goodput, averaged over the posterior of the fit."""
    best_s = _best(fit.few, costs, fit.mean.middle)
    own = sorted((_best((point,), costs, point.fit.mean), point.weight) for point in _spread(fit))
    at_best = sorted(goodput(point.fit, best_s, costs) for point in fit.few)
    middle = Weibull(fit.shape.middle, fit.mean.middle)
    return Interval(
        best_s=best_s,
        low_s=min(best_s, own[0][0]),
        high_s=max(best_s, own[-1][0]),
        goodput=expected(fit, best_s, costs),
        goodput_low=at_best[round(0.05 * (len(at_best) - 1))],
        goodput_high=at_best[round(0.95 * (len(at_best) - 1))],
        young_s=young(costs.save_s, middle.mean),
        daly_s=daly(costs.save_s, middle.mean),
    )


def curve(
    fit: Fit, costs: Costs, around_s: Sequence[float], points: int = 48
) -> tuple[tuple[float, float], ...]:
    """Returns (interval in seconds, goodput) pairs, for a plot.

    The range is from a fifth of the shortest to five times the longest interval in `around_s`.
    """
    low = max(INTERVAL_S_MIN, min(around_s) / 5.0)
    high = max(max(around_s) * 5.0, low * 10.0)
    steps = [exp(log(low) + (log(high) - log(low)) * at / (points - 1)) for at in range(points)]
    return tuple((one, expected(fit, one, costs)) for one in steps)


def young(save_s: float, mean_s: float) -> float:
    """Returns Young's estimate of the best checkpoint interval in seconds (1974)."""
    return sqrt(2.0 * save_s * mean_s)


def daly(save_s: float, mean_s: float) -> float:
    """Returns Daly's higher-order estimate of the best checkpoint interval in seconds (2006)."""
    if save_s >= 2.0 * mean_s:
        return mean_s
    root = sqrt(save_s / (2.0 * mean_s))
    return sqrt(2.0 * save_s * mean_s) * (1.0 + root / 3.0 + root * root / 9.0) - save_s


def _spread(fit: Fit) -> Sequence[Point]:
    """Returns a few points of the posterior, from the 5th to the 95th percentile of the means, to compute the
    range.
    """
    few = fit.few
    return few[1 : len(few) - 1 : max(1, len(few) // 7)] or few


def _best(points: Sequence[Point], costs: Costs, mean_s: float) -> float:
    """Returns the best interval by golden-section search on a logarithmic scale; goodput has a single
    maximum.
    """

    def of(log_s: float) -> float:
        return sum(point.weight * goodput(point.fit, exp(log_s), costs) for point in points)

    middle = log(max(young(max(costs.save_s, 1e-3), mean_s), INTERVAL_S_MIN))
    low, high = max(log(INTERVAL_S_MIN), middle + log(RATIO_MIN)), middle + log(RATIO_MAX)
    inner, outer = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_inner, at_outer = of(inner), of(outer)
    while high - low > 0.01:
        if at_inner >= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - GOLDEN * (high - low)
            at_inner = of(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + GOLDEN * (high - low)
            at_outer = of(outer)
    return exp((low + high) / 2.0)
