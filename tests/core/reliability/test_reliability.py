"""The failure model: fits, checkpoint intervals and spares, from none, few and many failures."""

from math import exp, sqrt
from random import Random

import pytest

from holdfast.core.reliability.advice import NodeFaults, Published, Record, advise, of_nodes
from holdfast.core.reliability.interval import Costs, best_interval, expected, goodput, seen_goodput
from holdfast.core.reliability.outages import (
    Outage,
    TraceRefused,
    between,
    gaps_of,
    outages_of,
    summary,
)
from holdfast.core.reliability.spares import enough, spares
from holdfast.core.reliability.weibull import Fit, Gaps, Point, Range, Weibull, exactly, fit

HOUR_S, DAY_S = 3_600.0, 86_400.0
PUBLISHED = Published(
    per_node_day=0.0038, source="a paper", repair_s=5.0 * DAY_S, repair_source="a trace", dispersion=5.0
)


def drawn(one, count, seed=1):
    dice = Random(seed)
    return tuple(one.quantile(dice.random()) for _ in range(count))


def test_a_weibull_has_the_mean_that_it_says():
    one = Weibull(0.6, 100.0)
    many = drawn(one, 20_000)
    assert abs(sum(many) / len(many) - 100.0) < 3.0
    assert abs(one.survival(one.quantile(0.3)) - 0.7) < 1e-9
    assert one.survival(-1.0) == 1.0


@pytest.mark.parametrize("shape", [0.5, 0.7, 1.0])
def test_many_failures_are_fitted(shape):
    truth = Weibull(shape, 10_000.0)
    found = fit(Gaps(failed=drawn(truth, 400)), expected_mean=50_000.0)
    assert found.mean.low < 10_000.0 < found.mean.high
    assert found.shape.low <= shape <= found.shape.high
    assert abs(sum(point.weight for point in found.points) - 1.0) < 1e-9


def test_the_range_holds_the_truth_about_as_often_as_it_says():
    truth, inside = Weibull(0.6, 10_000.0), 0
    for seed in range(40):
        found = fit(Gaps(failed=drawn(truth, 12, seed), censored=(3_000.0,)), expected_mean=12_000.0)
        inside += found.mean.low <= truth.mean <= found.mean.high
    assert inside >= 33  # of 40; 36 are expected


def test_zero_and_three_failures_say_how_little_is_known():
    none = fit(Gaps(censored=(5_000.0,)), 10_000.0)
    three = fit(Gaps(failed=(2_000.0, 9_000.0, 400.0)), 10_000.0)
    many = fit(Gaps(failed=drawn(Weibull(0.6, 10_000.0), 300)), 10_000.0)
    width = [one.mean.high / one.mean.low for one in (none, three, many)]
    assert width[0] > width[1] > width[2]
    assert "no failure was seen" in none.known and "only 3 failures" in three.known
    longer = fit(Gaps(censored=(500_000.0,)), 10_000.0)
    assert longer.mean.middle > none.mean.middle  # a long time without a failure is evidence, too


def test_failures_at_the_same_time_and_nonsense_do_not_break_the_fit():
    found = fit(Gaps(failed=(0.0, 0.0, float("nan"), -5.0, float("inf"), 100.0), censored=(0.0,)), 1_000.0)
    assert found.failures == 3 and found.mean.middle > 0.0


def test_the_exponential_gives_what_is_known_in_closed_form():
    """Without time down the best interval solves exp(-(t+c)/m) = 1 - t/m; Daly's estimate is within a percent."""
    costs, mean_s = Costs(save_s=30.0, down_s=0.0), 6_480.0
    one = Weibull(1.0, mean_s)
    step_s = 600.0 + 30.0
    closed = 600.0 / mean_s * exp(-step_s / mean_s) / (1.0 - exp(-step_s / mean_s))
    assert abs(goodput(one, 600.0, costs) - closed) < 1e-4
    found = best_interval(exactly(one), costs)
    assert abs(found.best_s / found.daly_s - 1.0) < 0.02
    assert found.young_s == sqrt(2.0 * 30.0 * mean_s)


def test_the_best_interval_is_better_than_its_neighbours_and_than_the_formulas():
    of_job, costs = exactly(Weibull(0.5, 7_200.0)), Costs(save_s=60.0, down_s=600.0)
    found = best_interval(of_job, costs)
    for other_s in (found.best_s * 0.7, found.best_s * 1.4, found.young_s, found.daly_s):
        assert expected(of_job, found.best_s, costs) >= expected(of_job, other_s, costs) - 1e-6
    assert found.low_s <= found.best_s <= found.high_s


def test_the_formula_agrees_with_failures_drawn_one_by_one():
    one, costs = Weibull(0.6, 7_200.0), Costs(save_s=20.0, down_s=300.0)
    gaps = drawn(one, 40_000)
    for interval_s in (200.0, 600.0, 2_400.0):
        assert abs(seen_goodput(gaps, interval_s, costs) - goodput(one, interval_s, costs)) < 0.02


def test_an_hour_long_save_and_no_save_at_all():
    for save_s in (0.0, 3_600.0):
        found = best_interval(exactly(Weibull(0.6, 7_200.0)), Costs(save_s=save_s, down_s=60.0))
        assert 0.0 < found.goodput <= 1.0 and found.best_s >= 1.0


def test_spares_of_a_poisson_and_of_bursts():
    assert enough(0.0, 1.0, 0.99) == 0
    assert enough(3.0, 1.0, 0.99) == 8  # of a table
    assert enough(9.4, 5.7, 0.99) > enough(9.4, 1.0, 0.99)
    found = spares(400, Range(0.001 / DAY_S, 0.0042 / DAY_S, 0.01 / DAY_S), 5.5 * DAY_S, 5.7)
    assert found.low < found.p95 < found.p99 < found.high


FAULTS = (
    Outage("a", 0.0, 10.0 * HOUR_S),
    Outage("a", 5.0 * HOUR_S, 20.0 * HOUR_S),  # overlaps
    Outage("b", 30.0 * HOUR_S, None),  # never ends
    Outage("a", 40.0 * HOUR_S, 50.0 * HOUR_S),
)


def test_overlapping_faults_are_one_and_unfinished_ones_last():
    found = outages_of(FAULTS, 4)
    assert (len(found.all), found.merged, found.unfinished) == (3, 1, 1)
    told = summary(found)
    assert told.repairs_s == (10.0 * HOUR_S, 20.0 * HOUR_S)
    assert told.again_s == (40.0 * HOUR_S,) and abs(told.repeated - 1 / 3) < 1e-9
    assert abs(told.down_mean - (20 + 20 + 10) / 50 / 4) < 0.01
    assert len(between(found, 20.0 * HOUR_S, 35.0 * HOUR_S).all) == 1
    assert gaps_of(found).failed == (30.0 * HOUR_S, 10.0 * HOUR_S)


def test_traces_of_nonsense_are_refused_and_an_empty_one_is_not():
    with pytest.raises(TraceRefused, match="ends before it starts"):
        outages_of([Outage("a", 10.0, 5.0)], 2)
    with pytest.raises(TraceRefused, match="names 2 nodes"):
        outages_of([Outage("a", 0.0, 1.0), Outage("b", 0.0, 1.0)], 1)
    empty = summary(outages_of([], 8))
    assert (empty.outages, empty.down_mean, empty.repeated) == (0, 0.0, 0.0)


def test_an_advice_without_a_record_rests_on_published_figures_and_says_so():
    found = advise(Record(gaps=Gaps(), nodes=2_048, gpus=16_384, save_s=30.0, interval_s=3_600.0), PUBLISHED)
    assert found.failures == 0 and "published" in found.known
    assert any("no recovery was observed" in text for text in found.unknown)
    assert found.interval is not None and found.now < found.interval.goodput
    assert found.gain_gpu_hours > 100_000.0
    assert found.curve and found.spares.p99 >= found.spares.p95 > 0


def test_without_a_checkpoint_there_is_no_interval_and_a_sentence_why():
    worst = (NodeFaults(node="n1", faults=4), NodeFaults(node="n2", faults=1))
    gaps = of_nodes([(1_000.0, 8, True), (2_000.0, 8, False)])
    found = advise(Record(gaps=gaps, nodes=8, gpus=64, worst=worst), PUBLISHED)
    assert found.interval is None and found.gain_gpu_hours is None and found.curve == ()
    assert any("--save" in text for text in found.unknown)
    assert [one.node for one in found.first_out] == ["n1"]
    assert gaps == Gaps(failed=(8_000.0,), censored=(16_000.0,))


def test_thinned_points_stand_for_all():
    many = fit(Gaps(failed=drawn(Weibull(0.6, 10_000.0), 10)), 10_000.0)
    mean = sum(point.weight * point.fit.mean for point in many.points)
    thin = sum(point.weight * point.fit.mean for point in many.few)
    assert abs(thin / mean - 1.0) < 0.1
    assert Fit(points=(Point(1.0, Weibull(1.0, 5.0)),), failures=0, exposure=0.0).few[0].fit.mean == 5.0
