"""Sets how much slower, for how long, and with what certainty a rank must be slower than its peers to be
reported.
"""

from math import log
from statistics import NormalDist

from msgspec import Struct


class StragglerSettings(Struct, frozen=True, kw_only=True):
    """Thresholds of the straggler detection. Shares are of the peers' time: 0.05 is 5 % longer.

    `false_flags`: expected number of false alarms in `horizon_steps` steps of a whole job, whatever its size.
    """

    excess_min: float = 0.03  # less is not reported
    # Less is no sign of a slow rank. Above 0 for ranks that share processors: one beside a busier neighbour takes longer.
    unsure_excess: float = 0.0
    drift: float = 0.025  # tolerance of the CUSUM: half of the 5 % that must be found
    false_flags: float = 0.005
    horizon_steps: int = 1000
    steps_min: int = 6  # slow steps before anything is reported, however slow
    learn_steps: int = 32  # after these, a rank's usual excess over its peers is known
    kept_steps: int = 64
    awaited_share: float = 0.75  # a straggler's share of the samples in which any rank is awaited
    awaited_hours: float = 2.0  # time with `false_flags` expected false alarms by samples alone
    throttled_share: float = 0.05  # less throttling, as a share of the time, explains nothing
    fetch_every_s: float = 60.0  # flight records: 36 ms of a rank at 2,000 entries, 0.06 % of its time
    fetch_soon_s: float = 5.0  # shorter interval while a rank is suspected
    fetch_soon_max: int = 3  # fetches in a row at the shorter interval
    heat_columns: int = 200


# Ranks that slept and worked in turns, four on two processors, took up to 1.4 times as long as their peers for seconds.
CROWDED = StragglerSettings(unsure_excess=0.5)


def cusum_limit(noise: float, drift: float, ranks: int, settings: StragglerSettings) -> float:
    """Returns the CUSUM threshold, as a share of the peers' time.

    `noise`: standard deviation of one step of one rank.

    The time between false alarms of one sum is about exp(2 k (h + 1.166)) / 2 k^2, where k = drift / noise
    and h = limit / noise.

    source: Siegmund, Sequential Analysis (1985), the average run length of a one-sided CUSUM
    """
    k = drift / noise
    alarms = max(2, ranks) * settings.horizon_steps / settings.false_flags
    return noise * max(1.0, log(max(2.0, 2 * k * k * alarms)) / (2 * k) - 1.166)


def outlier_limit(ranks: int, settings: StragglerSettings) -> float:
    """Returns the outlier threshold in standard deviations.

    If all ranks are normal, the largest of their values exceeds it only at the configured rate of false alarms. That
    counts repeated tests: values are means over about ten steps, so one test in ten is independent.
    """
    looks = max(1.0, settings.horizon_steps / 10)
    return NormalDist().inv_cdf(1.0 - settings.false_flags / (max(2, ranks) * looks))
