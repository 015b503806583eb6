"""What is drawn of step times, before anybody draws it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.steps import CurvePoint, HeatMap, LossReport, Phase, Slowdown, Spike, StepReport
from holdfast.settings.times import duration
from holdfast.views.steps.chart import chart, column_ticks, hours, ratios, steps_words, ticks
from views.steps.step_values import curve, heat_map, report, single, two_runs


def test_a_single_run_is_drawn_at_its_own_steps():
    drawn = chart(StepReport(), curve(4, start=1000))
    (run,) = drawn.runs
    assert (run.first_step, run.last_step, run.offset) == (1000, 1039, 0)
    assert [point.x for point in drawn.curve] == [1004.5, 1014.5, 1024.5, 1034.5]
    assert not drawn.is_empty


def test_a_run_that_repeats_steps_is_laid_behind_the_one_before():
    first, second = chart(report(), two_runs()).runs
    assert (first.first_x, first.last_x) == (0, 399)
    assert (second.first_step, second.first_x) == (300, 400)


def test_a_run_that_goes_on_later_keeps_its_place():
    runs = chart(StepReport(), [*curve(10), *curve(10, run=1, start=500)]).runs
    assert [run.offset for run in runs] == [0, 0]


def test_slowdowns_lie_in_their_own_run():
    first, second = chart(report(), two_runs()).bands
    assert (first.first_x, first.last_x, first.label) == (100, 150, "1.40×")
    assert (second.first_x, second.last_x) == (600, 699)  # step 500 of the second run, to its end


def test_a_slowdown_beyond_what_is_drawn_stays_at_the_edge():
    slow = Slowdown(
        first_step=9000, last_step=9100, before_s=3, after_s=4, ratio=1.33, kind="lasting",
        cost_gpu_hours=None, explanation="",
    )  # fmt: skip
    (band,) = chart(report(slowdowns=(slow,)), curve(10)).bands
    assert (band.first_x, band.last_x) == (99, 99)


def test_one_compilation_does_not_flatten_the_curve():
    drawn = chart(report(), two_runs())
    assert drawn.cut_s == pytest.approx(4.2 * 1.15)
    assert drawn.top_s == 300
    assert [point.kind for point in drawn.long].count("checkpoint") == 5


def test_what_is_slow_for_long_is_not_cut_away():
    drawn = chart(StepReport(), [*curve(40), *curve(5, base_s=12.0, start=400)])
    assert drawn.cut_s is None
    assert drawn.top_s > 12


def test_phases_that_the_curve_does_not_tell_are_shaded_where_their_steps_follow_each_other():
    phases = (
        Phase(kind="warmup", first_step=0, last_step=9, count=10, median_s=5.0),
        Phase(kind="checkpoint", first_step=9, last_step=39, count=2, median_s=20.0),
    )
    (shade,) = chart(report(phases=phases), curve(4)).shades
    assert (shade.kind, shade.first_x, shade.last_x) == ("warmup", -0.5, 9.5)
    assert chart(report(phases=phases), two_runs()).shades == ()  # of which run, is not told


def test_a_spike_is_placed_in_its_run():
    drawn = chart(
        report(spikes=(Spike(first_step=350, count=3, time_s=9, ratio=3, run=1, period=50, kind="gc"),)),
        two_runs(),
    )
    (dot,) = drawn.spikes
    assert (dot.x, dot.y) == (450, 9)
    assert dot.label == "9.00 s, 3.0× the usual step: gc, every 50 steps"


def test_marks_of_the_loss():
    drawn = chart(report(loss=LossReport(nan_at=350, diverged_at=10)), two_runs())
    assert [(mark.x, mark.label) for mark in drawn.loss] == [
        (450, "loss is NaN or infinite"),
        (10, "loss diverges"),
    ]


def test_values_that_are_no_times_are_left_out():
    broken = [
        CurvePoint(first_step=1, last_step=1, median_s=value, low_s=1, high_s=1)
        for value in (math.nan, math.inf, -1.0)
    ]
    assert chart(StepReport(), broken).is_empty
    assert len(chart(StepReport(), [*broken, *curve(3)]).curve) == 3


def test_nothing_at_all():
    drawn = chart(report(), [])
    assert drawn.is_empty
    assert (drawn.bands, drawn.spikes, drawn.loss) == ((), (), ())


def test_points_of_ranks_are_joined_where_there_are_no_others():
    points = [
        CurvePoint(first_step=1, last_step=5, median_s=s, low_s=s - 0.1, high_s=s + 0.1, rank=rank)
        for rank, s in enumerate((1.0, 1.2, 3.0))
    ]
    (point,) = chart(StepReport(), points).curve
    assert (point.median_s, point.low_s, point.high_s) == (1.2, 0.9, 3.1)


def test_a_log_of_checkpoints_only_is_drawn_all_the_same():
    assert len(chart(StepReport(), [single(1, 2.0, "checkpoint")]).curve) == 1


def test_steps_on_the_axis_are_round_and_of_their_runs():
    drawn = chart(report(), two_runs())
    places = ticks(drawn.runs, -5, 705, 8)
    assert [step for _, step in places] == [0, 100, 200, 300, 300, 400, 500]
    assert [x for x, _ in places] == [0, 100, 200, 300, 400, 500, 600]


@given(
    spans=st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**6)), min_size=1, max_size=30),
    count=st.integers(1, 20),
)
def test_the_axis_never_has_many_more_labels_than_wanted(spans, count):
    points = [
        CurvePoint(first_step=first, last_step=first + size, median_s=1, low_s=1, high_s=1, run=run)
        for run, (first, size) in enumerate(spans)
    ]
    runs = chart(StepReport(), points).runs
    low, high = runs[0].first_x, max(run.last_x for run in runs)
    places = ticks(runs, low, high, count)
    assert len(places) <= count / 0.6 + 2
    assert [x for x, _ in places] == sorted({x for x, _ in places})


@pytest.mark.parametrize(
    ("value_s", "words"),
    [
        (0.0000123, "12.3 µs"), (0.0, "0.00 ms"), (0.00431, "4.31 ms"), (0.0431, "43.1 ms"), (0.4306, "431 ms"), (0.9994, "999 ms"),
        (0.9996, "1.00 s"), (3.101, "3.10 s"), (31.25, "31.2 s"), (119.9, "120 s"), (573.0, "573 s"), (725.0, "12min5s"), (7200.0, "2h"),
        (math.nan, "unknown"), (None, "unknown"),
    ],
)  # fmt: skip
def test_times_in_words(value_s, words):
    assert duration(value_s) == words


def test_costs_in_words():
    assert [hours(value) for value in (None, 0.0, 0.0006, 0.4884, 27.71, 12345.6)] == [
        "unknown", "0 GPU-hours", "under 0.01 GPU-hours", "0.488 GPU-hours", "27.7 GPU-hours", "12,346 GPU-hours",
    ]  # fmt: skip


def test_steps_in_words():
    assert steps_words(7, 7) == "step 7"
    assert steps_words(7, 9000) == "steps 7 to 9,000"
    assert steps_words(7, None) == "since step 7"
    assert steps_words(None, 9) == "to step 9"
    assert steps_words(None, None) == "at unknown steps"


# Ranks


def test_ranks_are_compared_with_the_median_of_the_same_steps():
    found = ratios(heat_map())
    assert found.ratios[5][39] == pytest.approx(1.2, abs=0.03)
    assert found.ratios[5][12] == pytest.approx(1.0, abs=0.03)  # slow for all: nobody is to blame
    assert found.ratios[3][6] is None
    assert found.slowest[0].rank == 5
    assert found.slowest[0].worst == pytest.approx(1.2, abs=0.03)
    assert 1.15 < found.reach < 1.25


def test_one_outlier_does_not_pale_the_colours():
    rows = [[3.0, 3.0, 3.0] * 100 for _ in range(64)]
    rows[7][5] = 300.0
    map_ = HeatMap(ranks=tuple(range(64)), steps=tuple(range(300)), values=tuple(map(tuple, rows)))
    assert ratios(map_).reach == 1.05


def test_many_columns_are_made_fewer():
    found = ratios(heat_map(4, 1000), columns_max=100)
    assert len(found.steps) == len(found.middle_s) == len(found.ratios[0]) == 100
    assert found.steps[:2] == (0, 100)
    assert all(value is not None for value in found.ratios[0])


@pytest.mark.parametrize(
    "map_",
    [
        None,
        HeatMap(ranks=(), steps=(), values=()),
        HeatMap(ranks=(0,), steps=(1, 2), values=((1.0, 2.0),)),
        HeatMap(ranks=(0, 1), steps=(1, 2), values=((None, None), (None, math.nan))),
        HeatMap(ranks=(0, 1), steps=(), values=((), ())),
    ],
)
def test_no_heat_map_where_nothing_can_be_compared(map_):
    assert ratios(map_) is None


def test_round_steps_below_the_heat_map():
    assert column_ticks(tuple(range(0, 400, 10)), 4) == [(0, 0), (10, 100), (20, 200), (30, 300)]
    assert column_ticks((5, 3), 8) == [(0.5, 5), (1.5, 3)]
    assert column_ticks((5, 9, 2, 7), 2) == [(0.5, 5), (2.5, 2)]
