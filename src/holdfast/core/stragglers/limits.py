"""Sets how much slower, for how long and with what certainty a rank must be slower before it is named."""

from math import log
from statistics import NormalDist

from msgspec import Struct


class StragglerSettings(Struct, frozen=True, kw_only=True):
    """Shares are of the peers' time: 0.05 is 5 % longer.

    `false_flags`: expected number of false alarms in `horizon_steps` steps of a whole job, whatever its size.
    """

    excess_min: float = 0.03  # less is not reported
    drift: float = 0.025  # what is counted as no excess yet: half of the 5 % that must be found
    false_flags: float = 0.005
    horizon_steps: int = 1000
    steps_min: int = 6  # slow steps before anything is reported, however slow
    learn_steps: int = 32  # after these a rank's usual place among its peers is known
    kept_steps: int = 64
    awaited_share: float = 0.75  # of the looks at which anyone is awaited: what a straggler's would be
    awaited_hours: float = 2.0  # false flags by looks alone: `false_flags` in so long
    throttled_share: float = 0.05  # of the time: less throttling explains nothing
    fetch_every_s: float = 60.0  # flight records: 36 ms of a rank at 2,000 entries, 0.06 % of its time
    fetch_soon_s: float = 5.0  # sooner, where a rank is suspected
    fetch_soon_max: int = 3  # in a row, of such sooner ones
    heat_columns: int = 200


def cusum_limit(noise: float, drift: float, ranks: int, settings: StragglerSettings) -> float:
    """The CUSUM threshold. Both arguments are shares; `noise`: standard deviation of one rank's one step.

    The time between false alarms of one sum is about exp(2 k (h + 1.166)) / 2 k^2, where k = drift / noise and
    h = limit / noise.

    source: Siegmund, Sequential Analysis (1985), the average run length of a one-sided CUSUM
    """
    k = drift / noise
    alarms = max(2, ranks) * settings.horizon_steps / settings.false_flags
    return noise * max(1.0, log(max(2.0, 2 * k * k * alarms)) / (2 * k) - 1.166)


def outlier_limit(ranks: int, settings: StragglerSettings) -> float:
    """The outlier threshold in standard deviations: at the stated rate, none of so many normal values exceeds it,
    however often one looks; of means over some ten steps one in ten is new.
    """
    looks = max(1.0, settings.horizon_steps / 10)
    return NormalDist().inv_cdf(1.0 - settings.false_flags / (max(2, ranks) * looks))
