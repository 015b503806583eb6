"""Planned growth of a step's work is no slowdown; a real one under a plan is one."""

import pytest
from msgspec.structs import replace

from core.steps.step_kit import fed, records, scaled, times
from holdfast.core.steps.watch import StepWatch
from holdfast.model.steps import MarkKind, PhaseMark


def watched(values: list[float], *marks: tuple[int, MarkKind]) -> StepWatch:
    """`marks`: each before the step of that number."""
    watch = StepWatch()
    for record in records(values):
        for step, kind in marks:
            if step == record.step:
                watch.feed(PhaseMark(kind=kind))
        watch.feed(record)
    return watch


def stages(place: int) -> float:
    """Of modded-nanogpt's records with a batch and window that grow: 34, 60 and 88 ms a step."""
    return 1.0 if place < 707 else 1.8 if place < 1413 else 2.6


@pytest.mark.parametrize("marks", [[(1, "schedule")], [(707, "stage"), (1413, "stage")]])
def test_a_batch_that_grows_in_stages_is_no_slowdown(marks: list[tuple[int, MarkKind]]) -> None:
    values = scaled(times(2160, usual_s=0.034), stages)
    assert not watched(values, *marks).slowdowns()
    assert watched(values).slowdowns()


def test_steps_that_take_longer_because_each_has_more_tokens_are_no_slowdown() -> None:
    values = scaled(times(800), lambda place: 2.0 if place > 400 else 1)
    for tokens, is_slow in ((lambda step: 16384 if step > 400 else 8192, False), (lambda step: 8192, True)):
        watch = StepWatch()
        for record in records(values):
            step = record.step or 0
            rate = tokens(step) / (record.time_s or 1) if step > 1 else None  # the first line has none
            watch.feed(replace(record, throughput=rate))
        assert bool(watch.slowdowns()) is is_slow


def test_a_slowdown_under_a_plan_that_comes_bit_by_bit_is_found() -> None:
    values = scaled(times(800, jitter=0.03), lambda place: 1 + 0.4 * min(max(place - 400, 0) / 25, 1))
    assert watched(values, (1, "schedule")).slowdowns()


def test_a_slowdown_elsewhere_than_at_the_announced_step_is_found() -> None:
    values = scaled(times(800), lambda place: 1.4 if place > 500 else 1)
    assert watched(values, (300, "stage")).slowdowns()


def test_lines_that_come_all_the_time_announce_nothing() -> None:
    values = scaled(times(800), lambda place: 1.4 if place > 500 else 1)
    marks: list[tuple[int, MarkKind]] = [(step, "stage") for step in range(1, 801)]
    assert watched(values, *marks).slowdowns()


def test_marks_of_a_plan_are_no_pauses() -> None:
    watch = watched(times(300), (1, "schedule"), (150, "stage"))
    assert {phase.kind for phase in watch.phases()} == {"step"}
    assert not fed(watch, records(times(50), first=301))
