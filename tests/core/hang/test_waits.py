"""Ranks of nodes apart, each looked at in a moment of its own: who never waits while the others do."""

import random

import pytest

from holdfast.core.stragglers.watch import StragglerWatch
from holdfast.model.flight.records import GroupStatus
from holdfast.model.samples import RankSample


def told(nodes, each, share, slow=(), looks=300, seed=1, groups=True):
    """One look at each node a second, in steps that are much shorter. `share`: of a step for which the others wait for
    the slow ranks, and a tenth of it for what is sent."""
    dice = random.Random(seed)
    watch = StragglerWatch(
        nodes={rank: f"n{rank // each}" for rank in range(nodes * each)}, apart=True, clock_error_s=0.01
    )
    found = []
    for look in range(looks):
        for node in range(nodes):
            at = dice.random()  # of the step
            samples = []
            for rank in range(node * each, (node + 1) * each):
                begins = 0.9 - (0.0 if rank in slow else share) * dice.uniform(0.8, 1.2)
                step = 10 * look + node
                is_waiting = at > begins
                samples.append(
                    RankSample(
                        at_s=look + node / nodes,
                        rank=rank,
                        pid=100 + rank,
                        state="S" if is_waiting else "R",
                        groups=(GroupStatus(0, step + is_waiting, -1, step),) if groups else None,
                        step=None if groups else step,
                    )
                )
            watch.look(samples)
        found += [(one.kind, one.numbers["ranks"]) for one in watch.findings(look, float(look))]
    return found


@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize(("nodes", "each"), [(2, 1), (2, 4), (16, 8)])
def test_a_rank_that_never_waits_is_named_and_nobody_else(nodes, each, groups):
    assert told(nodes, each, 0.4, slow=(1,), groups=groups) == [("straggler", [1.0])]


def test_a_node_that_is_slow_among_healthy_ones_is_named_with_its_ranks():
    found = told(4, 4, 0.4, slow=range(4, 8))
    ranks = {rank for kind, named in found for rank in named if kind == "straggler"}
    assert ranks == {4.0, 5.0, 6.0, 7.0}
    assert found[-1] == ("straggler", [4.0, 5.0, 6.0, 7.0])


@pytest.mark.parametrize("share", [0.0, 0.05, 0.4, 0.8])
def test_where_all_are_slow_alike_nobody_is_named(share):
    """Of half of the ranks one may be slower: of all of them none."""
    for seed in range(2):
        assert told(4, 4, share, looks=500, seed=seed) == []
        assert told(4, 4, share, slow=range(16), looks=500, seed=seed) == []


def test_many_looks_at_one_long_step_are_one():
    watch = StragglerWatch(nodes={0: "a", 1: "b"}, apart=True)
    for look in range(400):
        samples = [
            RankSample(
                at_s=float(look), rank=rank, pid=1, state="S", groups=(GroupStatus(0, 7 + rank, -1, 7),)
            )
            for rank in range(2)
        ]
        watch.look(samples)
        assert watch.findings(7, float(look)) == []


def test_a_rank_as_fast_as_the_others_again_is_reported_once():
    watch = StragglerWatch(nodes={rank: f"n{rank}" for rank in range(4)}, apart=True)
    dice, kinds = random.Random(3), []
    for look in range(900):
        late = 2 if 100 <= look < 400 else None
        for rank in range(4):
            waits = dice.random() < (0.1 if late in (None, rank) else 0.5)
            groups = (GroupStatus(0, 10 * look + waits, -1, 10 * look),)
            watch.look([RankSample(at_s=look + rank / 4, rank=rank, pid=1, state="S", groups=groups)])
        kinds += [(look, one.kind, one.numbers["ranks"]) for one in watch.findings(look, float(look))]
    (named, over) = kinds
    assert named[1:] == ("straggler", [2.0]) and 100 < named[0] < 250
    assert over[1:] == ("straggler-over", [2.0]) and 400 < over[0] < 500
