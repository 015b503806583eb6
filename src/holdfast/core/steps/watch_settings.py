"""What a watch over steps is set to, and what it takes over from the attempts before."""

from msgspec import Struct


class StepSettings(Struct, frozen=True, kw_only=True):
    """What the steps themselves do not tell. Every limit has a default; see the detectors for theirs."""

    ranks: int | None = None  # the world size, for GPU-hours
    stands_s: float = 60.0  # a step counter that stands for less is no news
    stands_ratio: float = 20.0  # to the usual time between records
    stands_pause_ratio: float = 3.0  # to the longest pause that there was
    stands_lines: int = 5  # that came meanwhile: silence is for the hang detector
    restart_ratio: float = 1.10  # to the run before, from which on a restart is called slower


class Baseline(Struct, frozen=True, kw_only=True):
    """What the steps of an attempt were like, to compare the next one with. Times in seconds."""

    level_s: float  # mean of the fastest 70 %
    median_s: float
    spread: float = 0.0  # robust, of one record, as a share
    records: int = 0
    batch: float | None = None
    sequence: int | None = None
    last_step: int | None = None
