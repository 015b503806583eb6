"""Computes how many spare nodes are needed, from the failure rate, the repair time, and the burstiness of
failures. Pure.
"""

from math import exp, lgamma, log

from msgspec import Struct

from holdfast.core.reliability.weibull import Range

NODES_MAX = 1_000_000


class Spares(Struct, frozen=True, kw_only=True):
    """The number of spare nodes that suffices for 95 % and for 99 % of the time.

    `low`, `high`: p99 at the ends of the failure rate's credible interval. `down_mean`: mean number of nodes
    down.
    """

    p95: int
    p99: int
    low: int
    high: int
    down_mean: float


def spares(nodes: int, per_node_s: Range, repair_s: float, dispersion: float = 1.0) -> Spares:
    """Returns the number of spare nodes needed.

    `per_node_s`: failures per node and second that need a repair. `dispersion`: variance to mean ratio of the
    number of nodes down: 1 for independent failures (Poisson), more for bursts (negative binomial).
    """
    down = [
        min(float(nodes), nodes * rate * repair_s)
        for rate in (per_node_s.low, per_node_s.middle, per_node_s.high)
    ]
    return Spares(
        p95=enough(down[1], dispersion, 0.95),
        p99=enough(down[1], dispersion, 0.99),
        low=enough(down[0], dispersion, 0.99),
        high=enough(down[2], dispersion, 0.99),
        down_mean=down[1],
    )


def enough(mean: float, dispersion: float, share: float) -> int:
    """Returns the smallest number that the nodes down do not exceed, for this share of the time.

    `mean`: nodes down.
    """
    if mean <= 0.0:
        return 0
    passed = 0.0
    for count in range(NODES_MAX):
        passed += exp(_log_probability(count, mean, dispersion))
        if passed >= share:
            return count
    return NODES_MAX


def _log_probability(count: int, mean: float, dispersion: float) -> float:
    if dispersion <= 1.0 + 1e-9:
        return count * log(mean) - mean - lgamma(count + 1.0)
    size = mean / (dispersion - 1.0)  # of the negative binomial
    share = 1.0 / dispersion
    return (
        lgamma(count + size)
        - lgamma(size)
        - lgamma(count + 1.0)
        + size * log(share)
        + count * log(1.0 - share)
    )
