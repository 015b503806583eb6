"""What Kubeflow Trainer is told of a training's progress, and how often."""

import pytest

from holdfast.core.kubernetes.trainer_status import SECONDS_MAX, Pace, reporters, trainer_status
from holdfast.model.steps import StepRecord
from kubernetes.apiserver.trainer_server import problem

AT = "2026-01-01T00:00:00Z"


def status(*records, is_over=False):
    found = trainer_status(records, 2, AT, is_over=is_over)
    assert problem(found) == ""
    return found


def test_no_step_no_status():
    assert trainer_status((), 1, AT, is_over=False) is None
    assert trainer_status((StepRecord(step=None, loss=1.0),), 1, AT, is_over=True) is None


def test_progress_remaining_time_and_metrics_come_from_the_log():
    records = [StepRecord(step=n, total=200, time_s=0.5, loss=2.5 - n / 100) for n in range(40, 51)]
    assert status(*records) == {
        "progressPercentage": 25,
        "estimatedRemainingSeconds": 75,
        "metrics": [
            {"name": "step", "value": "50"},
            {"name": "totalSteps", "value": "200"},
            {"name": "loss", "value": "2"},
            {"name": "attempt", "value": "2"},
        ],
        "lastUpdatedTime": AT,
    }


def test_what_the_log_does_not_say_is_not_said():
    found = status(StepRecord(step=7, loss=float("nan"), epoch=3))
    assert set(found) == {"metrics", "lastUpdatedTime"}
    assert {"name": "loss", "value": "nan"} in found["metrics"]
    assert {"name": "currentEpoch", "value": "3"} in found["metrics"]


@pytest.mark.parametrize(
    ("step", "total", "shown"), [(0, 10, 0), (9_999, 10_000, 99), (10, 10, 100), (12, 10, 100)]
)
def test_a_percentage_is_100_only_at_the_last_step(step, total, shown):
    assert status(StepRecord(step=step, total=total))["progressPercentage"] == shown


def test_limits_of_the_fields_hold():
    found = status(StepRecord(step=1, total=10**9, time_s=1e6), StepRecord(step=2, total=10**9, time_s=1e6))
    assert found["estimatedRemainingSeconds"] == SECONDS_MAX
    assert status(StepRecord(step=5, total=10, time_s=float("inf"))).get("estimatedRemainingSeconds") is None


def test_a_training_that_has_succeeded_is_complete():
    found = status(StepRecord(step=5, total=10), is_over=True)
    assert (found["progressPercentage"], found["estimatedRemainingSeconds"]) == (100, 0)


def test_the_first_and_the_last_worker_report():
    assert [reporters(count) for count in (1, 2, 4)] == [(0,), (0, 1), (0, 3)]


def test_changes_are_sent_every_ten_seconds_and_less_often_while_refused():
    pace, one, other = Pace(), {"progressPercentage": 1}, {"progressPercentage": 2}
    assert pace.is_due(0.0) and pace.is_news(one)
    pace.sends(0.0)
    pace.answered(one, 0.1, accepted=True)
    assert not pace.is_news({**one, "lastUpdatedTime": AT}) and pace.is_news(other)
    assert not pace.is_due(9.9) and pace.is_due(10.0)
    at_s, waits = 10.0, []
    for _ in range(8):
        pace.sends(at_s)
        pace.answered(other, at_s, accepted=False)
        before_s = at_s
        while not pace.is_due(at_s):
            at_s += 1.0
        waits.append(at_s - before_s)
    assert waits == [20.0, 40.0, 80.0, 160.0, 300.0, 300.0, 300.0, 300.0]
