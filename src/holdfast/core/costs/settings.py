"""Attributes a job's lost time to settings, and estimates what another value would have cost. Pure.

Estimates use only the journal: the same incidents, with the time that the setting determines replaced.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from holdfast.core.costs.account import IncidentCost, JobCost
from holdfast.core.costs.classes import CHECKPOINTING
from holdfast.core.job.spent import DETECTION, REPEATED, STARTING
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings

LEARNED_HANG_S = 10.0  # time to find a hang with a learned limit, including sample and report (docs/hang.md)


class SettingCost(Struct, frozen=True, kw_only=True):
    """The time that the value of one setting cost.

    `other_s`: what the value `other` would have cost, in seconds; None if unknown. `gpu_hours`,
    `other_gpu_hours`: both costs in GPU-hours. `how`: how the estimate was made.
    """

    setting: str
    value: str
    seconds: float
    gpu_hours: float
    incidents: int
    other: str = ""
    other_s: float | None = None
    other_gpu_hours: float | None = None
    how: str = ""

    @property
    def gain_gpu_hours(self) -> float:
        """Returns the GPU-hours that the other value would have saved; 0 if unknown."""
        return 0.0 if self.other_gpu_hours is None else self.gpu_hours - self.other_gpu_hours


def settings_of(cost: JobCost, policy: Policy, run: RunSettings | None = None) -> tuple[SettingCost, ...]:
    """Returns the settings that cost time: those with the most to gain first, then the most expensive."""
    found = [
        one
        for make in (_hang_timeout, _checkpoints, _kept, _checks, _heal, _spares, _start)
        if (one := make(cost, policy, run)) is not None and one.seconds > 0.0
    ]
    return tuple(sorted(found, key=lambda one: (-one.gain_gpu_hours, -one.gpu_hours, one.setting)))


def merged(rows: Iterable[SettingCost]) -> tuple[SettingCost, ...]:
    """Merges the rows of many jobs that have the same setting and value."""
    groups: dict[tuple[str, str], list[SettingCost]] = {}
    for row in rows:
        groups.setdefault((row.setting, row.value), []).append(row)
    found = [_one(group) for group in groups.values()]
    return tuple(sorted(found, key=lambda one: (-one.gain_gpu_hours, -one.gpu_hours, one.setting)))


def _one(group: Sequence[SettingCost]) -> SettingCost:
    known = [row for row in group if row.other_s is not None]
    whole = len(known) == len(group)
    return SettingCost(
        setting=group[0].setting,
        value=group[0].value,
        seconds=sum(row.seconds for row in group),
        gpu_hours=sum(row.gpu_hours for row in group),
        incidents=sum(row.incidents for row in group),
        other=group[0].other if whole else "",
        other_s=sum(row.other_s or 0.0 for row in known) if whole else None,
        other_gpu_hours=sum(row.other_gpu_hours or 0.0 for row in known) if whole else None,
        how=group[0].how,
    )


def _row(
    cost: JobCost,
    setting: str,
    value: str,
    times_s: Mapping[int, float],
    *,
    other: str = "",
    change: Callable[[float], float] | None = None,
    how: str = "",
) -> SettingCost:
    """Returns the cost of a setting.

    `times_s`: seconds by incident; `change`: maps them to those with the other value.
    """
    seconds = sum(times_s.values())
    other_s = sum(map(change, times_s.values())) if change is not None else None
    hours = cost.gpus / 3600.0
    return SettingCost(
        setting=setting,
        value=value,
        seconds=seconds,
        gpu_hours=seconds * hours,
        incidents=sum(one > 0.0 for one in times_s.values()),
        other=other if change is not None else "",
        other_s=other_s,
        other_gpu_hours=other_s * hours if other_s is not None else None,
        how=how,
    )


def _times(
    cost: JobCost, name: str, wanted: Callable[[IncidentCost], bool] = lambda one: True
) -> dict[int, float]:
    return {one.number: one.by_class.get(name, 0.0) for one in cost.incidents if wanted(one)}


def _hang_timeout(cost: JobCost, policy: Policy, run: RunSettings | None) -> SettingCost | None:
    times_s = _times(cost, DETECTION, lambda one: bool(one.hang))
    value = "learned" if policy.hang_timeout_s is None else words_of(policy.hang_timeout_s)
    if policy.hang_timeout_s is None or policy.hang_timeout_s <= LEARNED_HANG_S:
        return _row(cost, "hang-timeout", value, times_s, how="from the last step to the finding")
    return _row(
        cost,
        "hang-timeout",
        value,
        times_s,
        other=words_of(LEARNED_HANG_S),
        change=lambda seconds: min(seconds, LEARNED_HANG_S),
        how="each hang found 10 s after its last step, as a learned limit (auto) does",
    )


def _checkpoints(cost: JobCost, policy: Policy, run: RunSettings | None) -> SettingCost | None:
    seconds = cost.by_class.get(REPEATED, 0.0) + cost.by_class.get(CHECKPOINTING, 0.0)
    row = _row(cost, "checkpoint interval", "of the training", _times(cost, REPEATED))
    how = "steps made again, and the time to save; holdfast advise computes the best interval"
    return SettingCost(
        setting=row.setting,
        value=row.value,
        seconds=seconds,
        gpu_hours=seconds * cost.gpus / 3600.0,
        incidents=row.incidents,
        how=how,
    )


def _kept(cost: JobCost, policy: Policy, run: RunSettings | None) -> SettingCost | None:
    value = words_of(policy.keep_on_failure_s)
    return _row(cost, "keep-on-failure", value, _times(cost, "kept"), other="0", change=lambda seconds: 0.0)


def _checks(cost: JobCost, policy: Policy, run: RunSettings | None) -> SettingCost | None:
    return _row(
        cost,
        "boot-check",
        policy.boot_check,
        _times(cost, "checks"),
        other="off",
        change=lambda seconds: 0.0,
        how="without a check a broken node is found by the next failure",
    )


def _heal(cost: JobCost, policy: Policy, run: RunSettings | None) -> SettingCost | None:
    return _row(cost, "heal-wait", words_of(policy.heal_wait_s), _times(cost, "healing"))


def _spares(cost: JobCost, policy: Policy, run: RunSettings | None) -> SettingCost | None:
    value = str(run.spares) if run is not None else "(unknown)"
    return _row(
        cost,
        "spares",
        value,
        _times(cost, "waiting"),
        other="enough",
        change=lambda seconds: 0.0,
        how="with a healthy spare node no job waits; holdfast advise computes how many spares to keep",
    )


def _start(cost: JobCost, policy: Policy, run: RunSettings | None) -> SettingCost | None:
    """Returns the cost of starts after failures; the first start belongs to no incident."""
    value = "(unknown)" if run is None else "on" if run.standby else "off"
    return _row(cost, "standby", value, _times(cost, STARTING), how="starts after failures")


def words_of(seconds: float) -> str:
    """Returns a duration as text: "90 s", "30 min", "2 h"."""
    if seconds >= 7_200.0:
        return f"{seconds / 3600.0:g} h"
    return f"{seconds / 60.0:g} min" if seconds >= 120.0 else f"{seconds:g} s"
