"""Step times in buckets: every step is in one of them, whatever the zoom; marks in their order."""

from hypothesis import given
from hypothesis import strategies as st

from cli.journals import START_S, one_failure_and_on
from holdfast.model.documents.jobs import LogLine
from holdfast.views.jobs.series import Steps, marks_of, step_series
from views.jobs.test_documents import summary_of


def steps_of(*reached: tuple[float, int, int]) -> Steps:
    made = Steps()
    for at_s, step, attempt in reached:
        made.add(at_s, step, attempt)
    return made


def test_few_steps_are_shown_as_they_are() -> None:
    series = step_series(steps_of((0.0, 1, 1), (1.0, 2, 1), (4.0, 4, 1)), from_s=None, to_s=None, points=10)
    assert [(one.at_s, one.first_step, one.count, one.median_s) for one in series.buckets] == [
        (1.0, 2, 1, 1.0),
        (4.0, 3, 2, 1.5),
    ]
    assert (series.steps, series.from_s, series.to_s) == (3, 0.0, 4.0)


def test_no_time_is_counted_between_attempts_or_where_the_counter_steps_back() -> None:
    reached = ((0.0, 1, 1), (1.0, 2, 1), (100.0, 1, 2), (101.0, 2, 2), (102.0, 1, 2), (103.0, 2, 2))
    series = step_series(steps_of(*reached), from_s=None, to_s=None, points=10)
    assert [one.at_s for one in series.buckets] == [1.0, 101.0, 103.0]


def test_a_job_without_steps_has_no_series() -> None:
    assert step_series(Steps(), from_s=None, to_s=None, points=10).buckets == ()


@given(
    st.lists(st.tuples(st.floats(0.01, 50), st.integers(1, 9)), min_size=1, max_size=300), st.integers(1, 40)
)
def test_every_step_is_in_one_bucket(pieces: list[tuple[float, int]], points: int) -> None:
    at_s, step = 0.0, 0
    made = steps_of((0.0, 0, 1))
    for took_s, count in pieces:
        at_s, step = at_s + took_s, step + count
        made.add(at_s, step, 1)
    series = step_series(made, from_s=None, to_s=None, points=points)
    assert len(series.buckets) <= points or len(series.buckets) == len(pieces)
    assert sum(one.count for one in series.buckets) == step == series.steps
    assert all(one.low_s <= one.median_s <= one.high_s for one in series.buckets)
    assert [one.at_s for one in series.buckets] == sorted(one.at_s for one in series.buckets)


def test_a_zoom_shows_its_part_alone() -> None:
    made = steps_of(*((float(number), number, 1) for number in range(1000)))
    series = step_series(made, from_s=100.0, to_s=199.5, points=1000)
    assert (series.buckets[0].at_s, series.buckets[-1].at_s, series.steps) == (100.0, 199.0, 100)
    coarse = step_series(made, from_s=100.0, to_s=199.5, points=10)
    assert len(coarse.buckets) == 10 and coarse.steps == 100


def test_marks_name_attempts_incidents_and_findings() -> None:
    finding = LogLine(seq=9, at_s=START_S + 60, kind="news", text="slower", finding="slowdown")
    marks = marks_of(summary_of(one_failure_and_on()), [finding])
    assert [mark.kind for mark in marks] == ["attempt", "slowdown", "incident", "attempt"]
    incident = marks[2]
    assert incident.incident == 1 and incident.until_s is not None and "GPU memory" in incident.text
