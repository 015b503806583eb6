"""Settings of the step watch, and what it carries over from earlier attempts."""

from msgspec import Struct


class StepSettings(Struct, frozen=True, kw_only=True):
    """Settings that steps do not show themselves. Every limit has a default; see the detectors."""

    ranks: int | None = None  # the world size, for GPU-hours
    stands_s: float = 60.0  # a step counter that stands for less is no news
    stands_ratio: float = 20.0  # to the usual time between records
    stands_pause_ratio: float = 3.0  # to the longest pause that there was
    stands_lines: int = 5  # that came meanwhile: silence is for the hang detector
    restart_ratio: float = 1.10  # to the run before, from which on a restart is called slower


class Baseline(Struct, frozen=True, kw_only=True):
    """Step times of an attempt, to compare the next one with. In seconds."""

    level_s: float  # mean of the fastest 70 %
    median_s: float
    spread: float = 0.0  # robust, of one record, as a share
    records: int = 0
    batch: float | None = None
    sequence: int | None = None
    last_step: int | None = None
