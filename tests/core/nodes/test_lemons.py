"""The lemon score: what each kind of evidence says, exact answers where they can be worked out, and whole fleets."""

from itertools import product
from math import exp, log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.nodes.lemon_evidence import observed
from holdfast.core.nodes.lemons import FIELD, Failure, Judged, Observed, judge, not_together
from holdfast.model.nodes.book import (
    AnyLine,
    AttemptRan,
    ExonerationLine,
    IncidentLine,
    RepairLine,
    WarningLine,
)
from holdfast.sim.fleet import FleetPlan, simulate

MONTH_H = 28 * 24.0
HOUR_S = 3600.0
# So heavy that nothing is learned: the rates are given, and the posterior can be worked out by hand.
FIXED = replace(
    FIELD, base_weight=1e12, factor_weight=1e12, share_weight=1e12, job_weight=1e12, likeness=1e12
)


def _fleet(count: int, hours: float = MONTH_H) -> dict[str, float]:
    return {f"n{number}": hours for number in range(count)}


def _of(judged: Judged, node: str) -> float:
    return next(score.posterior for score in judged.scores if score.node == node)


def _own(node: str, at_h: float, sure: float = 1.0) -> Failure:
    return Failure(run="r", at_s=at_h * HOUR_S, node=node, confidence=sure)


def _shared(at_h: float, *nodes: str, run: str = "r") -> Failure:
    return Failure(run=run, at_s=at_h * HOUR_S, suspects=nodes)


def _judged(*failures: Failure) -> Judged:
    """100 nodes for a month; the jobs that failed, and others on the other nodes that did not."""
    jobs = {"others": 90 * MONTH_H} | {failure.run: MONTH_H for failure in failures}
    return judge(Observed(hours=_fleet(100), job_hours=jobs, failures=failures))


def test_a_fleet_without_failures_has_no_lemon_and_all_nodes_are_alike():
    judged = _judged()
    assert not any(score.named for score in judged.scores)
    assert len({round(score.posterior, 12) for score in judged.scores}) == 1


def test_nothing_at_all_is_an_answer():
    assert judge(Observed(hours={}, job_hours={})).scores == ()
    assert judge(Observed(hours={"a": 0.0}, job_hours={}, failures=(_own("a", 1.0),))).scores == ()


def test_a_node_that_fails_again_and_again_is_named():
    judged = _judged(*(_own("n7", 10.0 * number) for number in range(8)))
    assert [score.node for score in judged.scores if score.named] == ["n7"]
    assert judged.scores[0].attributed == 8


def test_the_terms_add_up_to_the_score():
    failures = (_own("n1", 5.0), _own("n1", 9.0, 0.7), _shared(20.0, "n1", "n2", "n3"), _shared(40.0, "n1"))
    warnings = {f"n{number}": {"link-flap": float(number % 3)} for number in range(100)}
    given = Observed(hours=_fleet(100), job_hours={"r": MONTH_H}, failures=failures, warnings=warnings)
    for score in judge(given).scores:
        odds = sum(term.nats for term in score.terms)
        assert score.posterior == pytest.approx(1 / (1 + exp(-odds)), abs=1e-3)


def test_a_shared_failure_weighs_less_the_more_nodes_share_it():
    alone = _judged(_shared(1.0, "n1"))
    of_four = _judged(_shared(1.0, "n1", "n2", "n3", "n4"))
    of_all = _judged(_shared(1.0, *(f"n{number}" for number in range(100))))
    own = _judged(_own("n1", 1.0))
    assert _of(own, "n1") > _of(alone, "n1") > _of(of_four, "n1") > _of(of_all, "n1")
    assert _of(of_four, "n1") > _of(of_four, "n50")


def test_a_known_lemon_explains_what_it_shares_with_others():
    """The same failures with a sound partner, and with one that fails all the time."""
    shared = tuple(_shared(100.0 * number, "n1", "n2", run=f"r{number}") for number in range(1, 4))
    lemon = tuple(_own("n2", 7.0 * number) for number in range(1, 9))
    assert _of(_judged(*shared, *lemon), "n1") < 0.5 * _of(_judged(*shared), "n1")


def test_a_job_that_fails_wherever_it_runs_is_its_own_cause():
    """Six failures of one job on six nodes, against six of six jobs on one node."""
    by_job = tuple(_shared(30.0 * number, f"n{number}", run="bad") for number in range(6))
    by_node = tuple(_shared(30.0 * number, "n9", run=f"r{number}") for number in range(6))
    first, other = _judged(*by_job), _judged(*by_node)
    assert not any(score.named for score in first.scores)
    assert other.scores[0].node == "n9"
    assert other.scores[0].named


def test_a_doubtful_attribution_says_less_and_none_at_all_when_it_is_worth_nothing():
    sure, doubtful, worthless = (_of(_judged(_own("n1", 1.0, much)), "n1") for much in (1.0, 0.5, 0.0))
    assert sure > doubtful > worthless
    assert worthless == pytest.approx(_of(_judged(), "n1"), rel=0.2)


def test_hours_without_failure_speak_for_a_node():
    given = Observed(hours={**_fleet(50), "new": 5.0}, job_hours={})
    judged = judge(given)
    assert _of(judged, "new") > _of(judged, "n1")


def test_failures_of_many_jobs_at_one_moment_are_no_nodes():
    together = tuple(_shared(50.0, f"n{number}", run=f"r{number}") for number in range(3))
    alone = _shared(90.0, "n1", run="r9")
    assert not_together((*together, alone)) == (alone,)
    assert not_together((*together[:2], alone)) == (*together[:2], alone)
    of_one_job = tuple(_shared(50.0 + number / 1000, "n1") for number in range(5))
    assert not_together(of_one_job) == of_one_job
    assert _judged(*together).learned.together == 3


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(st.integers(0, 4), min_size=1, max_size=3, unique=True)),
        max_size=5,
    )
)
@settings(max_examples=60, deadline=None)
def test_it_is_near_the_exact_posterior_of_small_fleets(drawn):
    """All 2^5 ways in which nodes can be lemons, weighed: what belief propagation comes near to."""
    failures = tuple(
        _own(f"n{nodes[0]}", 10.0 * at)
        if own
        else _shared(10.0 * at, *(f"n{node}" for node in nodes), run=f"r{at}")
        for at, (own, nodes) in enumerate(drawn)
    )
    hours = _fleet(5)
    jobs = {f"r{at}": 1.0 for at in range(5)}
    judged = judge(Observed(hours=hours, job_hours=jobs, failures=failures), FIXED)
    exact = _exact(failures, hours)
    for score in judged.scores:
        assert abs(_odds(score.posterior) - _odds(exact[score.node])) < 0.7


def _exact(failures: tuple[Failure, ...], hours: dict[str, float]) -> dict[str, float]:
    good = FIELD.base_per_day / 24
    bad, own = good * FIELD.factor, FIELD.job_per_day / 24
    total, weights = 0.0, dict.fromkeys(hours, 0.0)
    for lemons in product((False, True), repeat=len(hours)):
        rate = {node: bad if lemon else good for node, lemon in zip(hours, lemons, strict=True)}
        weight = 1.0
        for node, lemon in zip(hours, lemons, strict=True):
            weight *= (FIELD.share if lemon else 1 - FIELD.share) * exp(-rate[node] * hours[node])
        for failure in failures:
            one = rate[failure.node] if failure.node else own + sum(rate[node] for node in failure.suspects)
            weight *= one
        total += weight
        for node, lemon in zip(hours, lemons, strict=True):
            weights[node] += weight if lemon else 0.0
    return {node: weight / total for node, weight in weights.items()}


def _odds(share: float) -> float:
    share = min(1 - 1e-9, max(1e-9, share))
    return log(share / (1 - share))


# Whole fleets -----------------------------------------------------------------------------------------------

SMALL = FleetPlan(nodes=512, lemons=10, sizes=(1, 2, 4, 8, 16, 32, 64))


def test_lemons_of_a_fleet_are_named_and_its_numbers_are_learned():
    right = named = 0
    for seed in range(3):
        month = simulate(SMALL, seed)
        judged = judge(month.observed)
        found = {score.node for score in judged.scores if score.named}
        right, named = right + len(found & month.lemons), named + len(found)
        assert 0.002 < judged.learned.base_per_day < 0.013
        assert 10 < judged.learned.factor < 60
        assert 0.25 < judged.learned.attribution < 0.55
    assert right >= 0.6 * 30
    assert right >= 0.75 * named


def test_a_fleet_without_lemons_hardly_names_any():
    plan = replace(SMALL, lemons=0)
    named = sum(score.named for seed in range(3) for score in judge(simulate(plan, seed).observed).scores)
    assert named <= 4


def test_the_same_seed_gives_the_same_month_and_the_same_scores():
    plan = FleetPlan(nodes=64, lemons=2, sizes=(1, 4, 16), days=14)
    assert judge(simulate(plan, 7).observed) == judge(simulate(plan, 7).observed)
    assert simulate(plan, 7) != simulate(plan, 8)


# From the book ----------------------------------------------------------------------------------------------


def _incident(at_h: float, number: int, **more: object) -> IncidentLine:
    line = IncidentLine(
        at_s=at_h * HOUR_S,
        run="r",
        attempt=1,
        incident=number,
        category="unknown",
        title="?",
        weighs="shared",
    )
    return replace(line, **more)


RAN = [AttemptRan(run="r", attempt=1, nodes=("a", "b"), started_s=0.0, hours=100.0)]


def test_what_the_book_holds_becomes_evidence():
    lines: list[AnyLine] = [
        _incident(10, 1),
        _incident(20, 2, weighs="node", node="a", confidence=0.9),
        _incident(30, 3, weighs="program"),
        _incident(40, 4, weighs="asked"),
        _incident(50, 5, suspects=("b",)),
        WarningLine(at_s=1.0, node="b", warning="link-flap", count=3),
        WarningLine(at_s=2.0, node="b", warning="link-flap"),
    ]
    found = observed(lines, RAN, since_s=0.0)
    assert found.hours == {"a": 100.0, "b": 100.0}
    assert found.job_hours == {"r": 100.0}
    assert [(one.node, one.suspects, one.confidence) for one in found.failures] == [
        ("", ("a", "b"), 1.0),
        ("a", (), 0.9),
        ("", ("b",), 1.0),
    ]
    assert found.warnings == {"b": {"link-flap": 4.0}}


def test_exonerations_are_taken_out_for_one_node_or_for_all():
    lines: list[AnyLine] = [
        _incident(10, 1),
        _incident(20, 2, weighs="node", node="a"),
        _incident(30, 3),
        ExonerationLine(at_s=99.0, node="a", run="r", incident=1, reason="checked"),
        ExonerationLine(at_s=99.0, node="a", run="r", incident=2, reason="checked"),
        ExonerationLine(at_s=99.0, run="r", incident=3, reason="the program"),
    ]
    found = observed(lines, RAN, since_s=0.0)
    assert [one.suspects for one in found.failures] == [("b",)]


def test_what_was_before_a_repair_or_the_window_is_not_held_against_a_node():
    lines: list[AnyLine] = [
        _incident(10, 1, weighs="node", node="a"),
        _incident(20, 2),
        WarningLine(at_s=5 * HOUR_S, node="a", warning="throttling"),
        RepairLine(at_s=60 * HOUR_S, node="a", text="new board", by="kim"),
        _incident(70, 3, weighs="node", node="a"),
    ]
    found = observed(lines, RAN, since_s=0.0)
    assert found.hours == {"a": 40.0, "b": 100.0}
    assert [(one.node, one.suspects) for one in found.failures] == [("", ("b",)), ("a", ())]
    assert found.warnings == {}
    later = observed(lines, RAN, since_s=50 * HOUR_S)
    assert later.hours == {"a": 40.0, "b": 50.0}
    assert [one.node for one in later.failures] == ["a"]


def test_a_node_that_failed_before_it_was_at_work_is_scored_too():
    found = observed([_incident(1, 1, weighs="node", node="z")], (), since_s=0.0)
    assert found.hours == {"z": 1.0}


def test_numbers_of_any_size_have_an_answer():
    """Ten years at work, a thousand failures, rates that no node has."""
    failures = tuple(_own("n1", number / 10) for number in range(1000))
    shared = tuple(_shared(number / 7, "n1", "n2", "n3", run=f"r{number}") for number in range(300))
    given = Observed(hours=_fleet(4, 90_000.0), job_hours={}, failures=(*failures, *shared))
    judged = judge(given)
    assert judged.scores[0].node == "n1"
    assert all(0 <= score.posterior <= 1 for score in judged.scores)
