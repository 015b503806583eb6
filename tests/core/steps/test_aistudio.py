"""The platform's rule, to the byte."""

import pytest

from holdfast.core.steps.aistudio import AistudioRule
from holdfast.model.steps import StepRecord


def lines(rule: AistudioRule, records: list[StepRecord]) -> list[str]:
    return [line for record in records if (line := rule.feed(record)) is not None]


def run(
    times_ms: list[float], *, first: int = 1, batch: float | None = None, run: int = 0
) -> list[StepRecord]:
    return [
        StepRecord(step=first + place, printed_s=time_ms / 1000, batch=batch, run=run)
        for place, time_ms in enumerate(times_ms)
    ]


def test_the_sample_of_the_documents() -> None:
    times_ms = [9000.0] * 2 + [3101.0] * 80 + [9465.0] * 5 + [16704.0] * 5
    assert lines(AistudioRule(), run(times_ms)) == [
        "Smoothed mean (iters 83-87: 9465.00 ms, baseline: 3101.00 ms), threshold ratio:2.05. Warning",
        "Smoothed mean (iters 88-92: 16704.00 ms, baseline: 3101.00 ms), threshold ratio:4.39. Warning",
    ]


@pytest.mark.parametrize(
    ("slow_ms", "warns"), [(1799.0, False), (1804.0, False), (1806.0, True), (1810.0, True)]
)
def test_above_080_after_rounding(slow_ms: float, warns: bool) -> None:
    assert bool(lines(AistudioRule(), run([1000.0] * 7 + [slow_ms] * 5))) == warns


def test_the_baseline_is_the_smallest_mean_so_far_and_may_be_the_window_itself() -> None:
    times_ms = [1.0] * 2 + [2000.0] * 5 + [1000.0] * 5 + [1900.0] * 5
    assert lines(AistudioRule(), run(times_ms)) == [
        "Smoothed mean (iters 13-17: 1900.00 ms, baseline: 1000.00 ms), threshold ratio:0.90. Warning"
    ]


def test_a_restart_begins_anew_with_two_steps_of_warm_up() -> None:
    rule = AistudioRule()
    rule_lines = lines(rule, run([1000.0] * 9))
    rule.restart()
    rule_lines += lines(rule, run([9000.0] * 7 + [90000.0] * 5, first=501))
    assert rule_lines == [
        "Smoothed mean (iters 508-512: 90000.00 ms, baseline: 9000.00 ms), threshold ratio:9.00. Warning"
    ]
    resumed = [*run([1000.0] * 9), *run([9000.0] * 7, first=5, run=1)]
    assert not lines(AistudioRule(), resumed)


def test_a_change_of_batch_drops_baseline_and_window() -> None:
    told = lines(AistudioRule(), [*run([1000.0] * 9, batch=64), *run([3000.0] * 10, first=10, batch=128)])
    assert not told
    sequence = [
        StepRecord(step=step, printed_s=1.0 if step < 10 else 3.0, sequence=step // 10) for step in range(30)
    ]
    assert not lines(AistudioRule(), sequence)


def test_other_ranks_and_unreadable_times_do_not_count() -> None:
    twice = [record for record in run([1000.0] * 7 + [4000.0] * 5) for _ in range(2)]
    broken = [
        StepRecord(step=1),
        StepRecord(step=1, printed_s=float("nan")),
        StepRecord(step=1, printed_s=0.0),
    ]
    assert len(lines(AistudioRule(), [*broken, *twice])) == 1


def test_five_printed_means_make_a_window() -> None:
    records = [
        StepRecord(step=10 * place, printed_s=1.0 if place < 8 else 2.0, steps=10) for place in range(1, 13)
    ]
    assert lines(AistudioRule(), records) == [
        "Smoothed mean (iters 80-120: 2000.00 ms, baseline: 1000.00 ms), threshold ratio:1.00. Warning"
    ]
