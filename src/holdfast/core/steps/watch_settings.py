"""Defines the settings of the step detectors, and the baseline that an attempt passes to the next one.

Pure.
"""

from msgspec import Struct


class StepSettings(Struct, frozen=True, kw_only=True):
    """Limits of the step detectors, and properties of the job that its steps do not show."""

    ranks: int | None = None  # the world size, for GPU-hours
    stands_s: float = 60.0  # minimum time without a step for a finding
    stands_ratio: float = 20.0  # minimum multiple of the usual time between records
    stands_pause_ratio: float = 3.0  # minimum multiple of the longest pause so far
    stands_lines: int = 5  # minimum log lines meanwhile: a silent log is a matter of the hang detector
    restart_ratio: float = 1.10  # step time to that of the previous run, from which a restart is reported


class Baseline(Struct, frozen=True, kw_only=True):
    """Step times of an attempt in seconds, with which the next attempt is compared."""

    level_s: float  # mean of the fastest 70 %
    median_s: float
    spread: float = 0.0  # robust, of one record, as a share
    records: int = 0
    batch: float | None = None
    sequence: int | None = None
    last_step: int | None = None
