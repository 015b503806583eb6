"""Rounds of pairs over clusters that are a function: who is named, who is not, and when nobody can be."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.checks.pairs.plan import next_round
from holdfast.core.checks.pairs.results import Limits, Measured, NodeSample, PairSample, Verdict
from holdfast.core.checks.pairs.verdict import verdict

WHAT = "all-reduce 8 MiB"
LIMITS = Limits()


def names(count):
    return tuple(f"gpu-{number:02}" for number in range(1, count + 1))


def played(nodes, speed, *, compute=lambda node, turn: 100.0, dead=(), limits=LIMITS, **known) -> Verdict:
    """`speed(a, b, turn)`: GB/s; None: they do not reach each other."""
    measured = Measured(nodes=nodes, **known)
    while (chosen := next_round(measured, limits)) is not None:
        turn = measured.rounds
        asked = [*chosen.alone, *(node for pair in chosen.pairs for node in pair)]
        assert len(set(asked)) == len(asked), "a node is in one pair at most"
        singles = tuple(
            NodeSample(round=turn, node=node, error="no answer")
            if node in dead
            else NodeSample(round=turn, node=node, compute={"cpu": compute(node, turn)})
            for node in asked
        )
        pairs = []
        for a, b in chosen.pairs:
            if a in dead or b in dead:
                continue
            found = speed(a, b, turn)
            seen = {"error": "no connection"} if found is None else {"speeds": {WHAT: found}}
            pairs.append(PairSample(round=turn, a=a, b=b, **seen))
        measured = Measured(
            nodes=nodes,
            rounds=turn + 1,
            pairs=(*measured.pairs, *pairs),
            singles=(*measured.singles, *singles),
            **known,
        )
        assert measured.rounds <= limits.rounds_max
    return verdict(measured, limits)


def slow_with(bad, factor=0.1):
    return lambda a, b, turn: 10.0 * (factor if {a, b} & set(bad) else 1.0) * (1 + 0.01 * (turn % 3))


def said(told):
    return {(blame.kind, blame.nodes) for blame in told.blames}


@pytest.mark.parametrize("count", range(3, 18))
def test_one_slow_node_is_named_among_even_and_odd_counts(count):
    for bad in names(count):
        told = played(names(count), slow_with([bad]))
        assert said(told) == {("communication", (bad,))}
        assert bad not in told.blames[0].partners


@pytest.mark.parametrize("count", range(1, 40))
def test_nobody_is_named_where_all_are_well(count):
    told = played(names(count), slow_with([]))
    assert not told.blames and not told.unsure and told.settled


@pytest.mark.parametrize("count", [5, 6, 7, 8, 9, 16, 33])
def test_two_slow_nodes_are_both_named(count):
    told = played(names(count), slow_with(["gpu-01", "gpu-04"]))
    assert said(told) == {("communication", ("gpu-01",)), ("communication", ("gpu-04",))}


@pytest.mark.parametrize("count", [3, 4, 5, 6, 8, 9, 24])
def test_a_slow_link_is_no_slow_node(count):
    def speed(a, b, turn):
        return 1.0 if {a, b} == {"gpu-02", "gpu-03"} else 10.0

    assert said(played(names(count), speed)) == {("link", ("gpu-02", "gpu-03"))}


def test_two_nodes_that_do_not_reach_each_other_cannot_be_distinguished():
    told = played(names(2), lambda a, b, turn: None)
    assert said(told) == {("one-of", ("gpu-01", "gpu-02"))}


def test_two_nodes_slower_than_learned_cannot_be_distinguished():
    told = played(names(2), lambda a, b, turn: 1.0, usual={WHAT: 10.0})
    assert said(told) == {("one-of", ("gpu-01", "gpu-02"))}
    assert told.blames[0].whence == "baseline"


def test_a_spare_tells_which_of_two_nodes_it_is():
    told = played(names(2), slow_with(["gpu-02"]), spares=("spare-1", "spare-2"))
    assert said(told) == {("communication", ("gpu-02",))}


def test_three_nodes_all_slow_with_each_other_cannot_be_distinguished():
    told = played(names(3), lambda a, b, turn: None)
    assert said(told) == {("one-of", names(3))}


def test_half_of_the_nodes_is_no_majority():
    """Which half is the slow one, who can say: two groups, and nobody is named."""
    told = played(names(4), slow_with(["gpu-01", "gpu-02"]))
    assert {blame.kind for blame in told.blames} <= {"split"}


def test_what_was_learned_tells_which_half_is_slow():
    told = played(names(4), slow_with(["gpu-01", "gpu-02"]), spares=("gpu-03",))
    assert said(told) == {("communication", ("gpu-01",)), ("communication", ("gpu-02",))}


def test_a_slow_processor_is_scored_apart_from_the_network():
    told = played(
        names(7), slow_with(["gpu-05"]), compute=lambda node, turn: 40.0 if node == "gpu-02" else 100.0
    )
    assert said(told) == {("compute", ("gpu-02",)), ("communication", ("gpu-05",))}


def test_dead_nodes_are_silent_and_their_partners_are_not_to_blame():
    told = played(names(8), slow_with(["gpu-05"]), dead=("gpu-02", "gpu-07"))
    assert said(told) == {
        ("silent", ("gpu-02",)),
        ("silent", ("gpu-07",)),
        ("communication", ("gpu-05",)),
    }


def test_all_nodes_dead_is_an_answer_too():
    told = played(names(3), slow_with([]), dead=names(3))
    assert {blame.kind for blame in told.blames} == {"silent"} and len(told.blames) == 3


def test_nodes_behind_one_switch_are_one_group_and_no_bad_nodes():
    behind = {"gpu-05", "gpu-06", "gpu-07", "gpu-08"}

    def speed(a, b, turn):
        return 2.0 if (a in behind) != (b in behind) else 10.0

    assert said(played(names(24), speed)) == {("group", tuple(sorted(behind)))}


def test_a_pair_that_was_slow_once_is_nobodys_fault():
    told = played(names(9), lambda a, b, turn: 1.0 if turn == 0 and "gpu-01" in (a, b) else 10.0)
    assert not told.blames and not told.unsure and told.settled


def test_a_node_slow_every_other_round_is_named_when_looked_at_long_enough():
    def speed(a, b, turn):
        return 2.0 if "gpu-03" in (a, b) and turn % 2 else 10.0

    told = played(names(20), speed, limits=Limits(rounds_min=12))
    assert said(told) == {("communication", ("gpu-03",))}
    assert told.blames[0].times < told.blames[0].looks


def test_a_round_in_which_everything_is_slower_is_nobodys_fault():
    told = played(names(40), lambda a, b, turn: 4.0 if turn == 2 else 10.0)
    assert not told.blames and not told.unsure


def test_faults_that_settle_soon_take_few_rounds():
    for bad in (["gpu-07"], ["gpu-07", "gpu-40", "gpu-63"]):
        told = played(names(64), slow_with(bad), limits=Limits(rounds_max=7))
        assert said(told) == {("communication", (name,)) for name in bad} and told.settled


@settings(deadline=None)
@given(
    st.integers(3, 14).flatmap(
        lambda count: st.tuples(st.just(count), st.sets(st.integers(1, count), max_size=(count - 1) // 2))
    )
)
def test_whoever_is_bad_no_good_node_is_named(case):
    count, bad = case
    slow = {f"gpu-{number:02}" for number in bad}
    told = played(names(count), slow_with(slow))
    assert {node for blame in told.blames for node in blame.nodes} <= slow


@settings(deadline=None)
@given(st.integers(1, 30), st.randoms(use_true_random=False))
def test_any_answers_whatever_give_a_verdict_within_the_rounds(count, dice):
    speeds = [None, 0.0, 0.1, 5.0, 7.5, 8.7, 10.0, 1e6]
    played(names(count), lambda a, b, turn: dice.choice(speeds))
