"""Builds the status that Kubeflow Trainer v2 shows of a TrainJob: progress, remaining time and metrics. Pure.

source: github.com/kubeflow/trainer, docs/proposals/2779-trainjob-progress (the request, alpha, feature gate
TrainJobStatus), pkg/apis/trainer/v1alpha1 TrainerStatus (limits of the fields)
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.model.steps import StepRecord

SECONDS_MAX = 2**31 - 1  # the field is an int32
RECENT = 20  # records whose times give the remaining time
VALUE_MAX = 64  # characters of a metric's value


def reporters(workers: int) -> tuple[int, ...]:
    """Returns the workers whose agents report: frameworks print steps in the first rank or in the last."""
    return tuple(sorted({0, max(0, workers - 1)}))


def trainer_status(
    records: Sequence[StepRecord], attempt: int, at: str, *, is_over: bool
) -> dict[str, Any] | None:
    """Returns a TrainerStatus; None if the log has shown no step yet.

    `records`: of the present attempt, oldest first. `at`: the time in RFC 3339. `is_over`: the training has succeeded.
    """
    last = next((one for one in reversed(records) if one.step is not None), None)
    if last is None or last.step is None:
        return None
    total = next((one.total for one in reversed(records) if one.total), None)
    found: dict[str, Any] = {"metrics": _metrics(last, total, attempt, records), "lastUpdatedTime": at}
    if is_over:
        return {**found, "progressPercentage": 100, "estimatedRemainingSeconds": 0}
    if total is None:
        return found
    found["progressPercentage"] = max(0, min(99 if last.step < total else 100, 100 * last.step // total))
    pace_s = _pace_s(records)
    if pace_s is not None:
        left_s = max(0, total - last.step) * pace_s
        found["estimatedRemainingSeconds"] = math.ceil(min(left_s, SECONDS_MAX))
    return found


def _pace_s(records: Sequence[StepRecord]) -> float | None:
    times = [one.time_s for one in records[-RECENT:] if one.time_s is not None and math.isfinite(one.time_s)]
    return statistics.median(times) if times else None


def _metrics(
    last: StepRecord, total: int | None, attempt: int, records: Iterable[StepRecord]
) -> list[dict[str, str]]:
    losses = [one.loss for one in records if one.loss is not None]
    values = {
        "step": last.step,
        "totalSteps": total,
        "currentEpoch": last.epoch,
        "loss": losses[-1] if losses else None,
        "attempt": attempt,
    }
    return [
        {"name": name, "value": f"{value:.6g}" if isinstance(value, float) else str(value)[:VALUE_MAX]}
        for name, value in values.items()
        if value is not None
    ]


class Pace:
    """Decides when a status is sent: changes at most every `EACH_S` seconds, and less often while they are refused.

    source: Kubeflow's own SDK sends one in 5 s at most.
    """

    EACH_S, REFUSED_S_MAX = 10.0, 300.0

    def __init__(self) -> None:
        self._next_s = float("-inf")
        self._wait_s = self.EACH_S
        self._sent: dict[str, Any] | None = None

    def is_due(self, at_s: float) -> bool:
        return at_s >= self._next_s

    def is_news(self, status: dict[str, Any]) -> bool:
        """Returns whether a status differs from the last one that arrived, apart from its time."""
        return self._sent is None or _without_time(status) != _without_time(self._sent)

    def sends(self, at_s: float) -> None:
        self._next_s = at_s + self._wait_s

    def answered(self, status: dict[str, Any], at_s: float, *, accepted: bool) -> None:
        if accepted:
            self._sent, self._wait_s = status, self.EACH_S
        else:
            self._wait_s = min(self.REFUSED_S_MAX, 2 * self._wait_s)
            self._next_s = max(self._next_s, at_s + self._wait_s)


def _without_time(status: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in status.items() if key != "lastUpdatedTime"}
