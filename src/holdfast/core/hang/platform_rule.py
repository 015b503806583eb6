"""Evaluates the hang rule that training platforms document, beside Holdfast's own rules, and only reports it.

Pure.

(1) While any I/O counter of any process of the job changes, the job is alive. (2) Once none has changed for
MA_HANG_DETECT_TIME minutes, device utilisation is sampled for a window; if its variance and median show no
change, the job hangs. Without sampled devices, (1) alone decides. It names no rank. Known false alarms:
healthy evaluation, long sleeps and ranks that wait for a checkpoint; so no action follows from it.
"""

from collections.abc import Sequence
from statistics import median, pvariance
from typing import Literal

from msgspec import Struct

from holdfast.model.samples import GONE_STATES, RankSample, Utilisation


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of the hang rule that training platforms document."""

    detect_min: float = 30.0  # MA_HANG_DETECT_TIME, in minutes
    window_s: float = 60.0  # duration of the window of device utilisation, after the quiet time
    variance_max: float = 1.0  # percent squared; the documents give no number: one point of noise
    median_shift_max: float = 1.0  # percent, between the two halves of the window
    readings_min: int = 4  # for each device, in the window


class Finding(Struct, frozen=True, kw_only=True):
    """A hang according to the rule that training platforms document: I/O and device utilisation have not changed."""

    since_s: float  # time of the last change of a counter
    says: str


class Watch(Struct, frozen=True, kw_only=True):
    """The state of the training platforms' hang rule over time."""

    changed_s: float | None = None
    counters: tuple[tuple[int, int | None, int | None], ...] = ()  # pid, io and disk bytes
    readings: tuple[Utilisation, ...] = ()  # since the end of the quiet time, at most those of the window
    reported: bool = False


def observe(
    state: Watch,
    samples: Sequence[RankSample],
    at_s: float,
    settings: Settings,
    *,
    utilisation: Sequence[Utilisation] = (),
    form: Literal["worker", "all workers"] = "all workers",
) -> tuple[Watch, Finding | None]:
    """Processes one sample, and returns the state and a finding, which is reported once.

    `samples`: the ranks of one worker or of all, as `form` says.
    """
    counters = tuple(
        (sample.pid, sample.io_bytes, sample.disk_bytes)
        for sample in samples
        if sample.state not in GONE_STATES
    )
    readable = any(io_bytes is not None for _, io_bytes, _ in counters)
    if state.changed_s is None or counters != state.counters or not readable:
        return Watch(changed_s=at_s, counters=counters), None
    since_s = state.changed_s
    quiet_s = at_s - since_s
    if quiet_s < settings.detect_min * 60 or state.reported:
        return state, None
    readings = tuple(
        reading for reading in (*state.readings, *utilisation) if reading.at_s > at_s - settings.window_s
    )
    state = Watch(changed_s=since_s, counters=counters, readings=readings)
    devices = ""
    if utilisation or state.readings:
        if quiet_s < settings.detect_min * 60 + settings.window_s or _any_change(readings, settings):
            return state, None
        devices = f", and device utilisation stood still for {settings.window_s:.0f} s"
        devices += f" (median {median(reading.percent for reading in readings):.0f} %)"
    says = f"platform rule, {form}: no I/O counter of any process changed for {quiet_s / 60:.0f} min{devices}"
    return (
        Watch(changed_s=since_s, counters=counters, readings=readings, reported=True),
        Finding(since_s=since_s, says=says),
    )


def _any_change(readings: Sequence[Utilisation], settings: Settings) -> bool:
    """Returns whether the utilisation of any device changed, or too few readings are known."""
    by_device: dict[str, list[float]] = {}
    for reading in readings:
        by_device.setdefault(reading.device, []).append(reading.percent)
    return not by_device or any(_changes(percents, settings) for percents in by_device.values())


def _changes(percents: list[float], settings: Settings) -> bool:
    if len(percents) < max(settings.readings_min, 2):
        return True
    half = len(percents) // 2
    shift = abs(median(percents[half:]) - median(percents[:half]))
    return pvariance(percents) > settings.variance_max or shift > settings.median_shift_max
