"""The slow one is named, nobody who waits for it, and nobody where all are alike."""

import random
from array import array

import pytest

from holdfast.core.stragglers.limits import CROWDED
from holdfast.core.stragglers.matrix import analyse
from holdfast.core.stragglers.panel import Panel
from holdfast.core.stragglers.panel_numpy import NumpyPanel
from holdfast.core.stragglers.watch import StragglerSettings, StragglerWatch
from holdfast.model.flight.records import GroupStatus
from holdfast.model.samples import RankSample

NODES = {rank: f"node-{rank // 8}" for rank in range(32)}


def table(ranks, steps, jitter=0.02, seed=1):
    dice = random.Random(seed)
    return [[1.0 + jitter * dice.gauss(0, 1) for _ in range(steps)] for _ in range(ranks)]


def slowed(rows, ranks, share, at=0, until=None):
    for rank in ranks:
        rows[rank][at:until] = [time_s * (1 + share) for time_s in rows[rank][at:until]]
    return rows


def kinds(findings):
    return [(finding.kind, finding.numbers["ranks"]) for finding in findings]


# Tables


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 64, 1024])
def test_one_slow_rank_is_named_with_its_ratio_and_its_first_step(ranks):
    (found,) = analyse(slowed(table(ranks, 120), [1], 0.10, at=60), first_step=1000)
    assert found.ranks == (1,)
    assert found.ratio == pytest.approx(1.10, abs=0.03)
    assert found.first_step == pytest.approx(1060, abs=6)
    assert "since step" in found.explanation
    assert "rank 1" in found.explanation_zh


@pytest.mark.parametrize(
    ("share", "named"), [(0.3, []), (0.45, []), (0.8, [("straggler", [1.0])]), (3.0, [("straggler", [1.0])])]
)
def test_ranks_that_share_processors_are_named_only_if_much_slower(share, named):
    watch = StragglerWatch(CROWDED)
    told = []
    for step, column in enumerate(zip(*slowed(table(4, 200), [1], share, at=60), strict=True)):
        watch.own_work(step, dict(enumerate(column)))
        told += kinds(watch.findings(step, float(step)))
    assert told == named


@pytest.mark.parametrize("ranks", [1, 2, 4, 64, 1024])
@pytest.mark.parametrize("jitter", [0.0, 0.001, 0.02, 0.2])
def test_where_all_are_alike_nobody_is_named(ranks, jitter):
    assert analyse(table(ranks, 300, jitter)) == ()


def test_what_all_ranks_share_is_nobodys_fault():
    rows = table(8, 300)
    for row in rows:
        row[150:] = [2 * time_s for time_s in row[150:]]
        row[99::100] = [8 * time_s for time_s in row[99::100]]
    assert analyse(rows) == ()


def test_single_long_steps_do_not_make_a_straggler():
    rows = table(64, 400)
    dice = random.Random(7)
    for row in rows:
        for step in range(400):
            if dice.random() < 0.01:
                row[step] *= dice.uniform(2, 10)
    assert analyse(rows) == ()


def test_a_rank_that_writes_checkpoints_is_no_straggler():
    rows = table(8, 400)
    rows[0][49::50] = [10 * time_s for time_s in rows[0][49::50]]
    assert analyse(rows) == ()


def test_slow_from_the_beginning_is_reported_as_such():
    (found,) = analyse(slowed(table(64, 80), [5], 0.08))
    assert "since the start" in found.explanation
    (later,) = analyse(slowed(table(64, 80), [5], 0.08, at=40))
    assert later.confidence > found.confidence


def test_a_third_of_the_ranks_that_take_longer_by_design_are_left_alone():
    assert analyse(slowed(table(32, 200), range(0, 32, 2), 0.08)) == ()


def test_a_rank_with_more_work_by_design_is_reported_again_only_when_it_gets_slower():
    watch = StragglerWatch()
    rows = slowed(slowed(table(16, 200), [15], 0.08), [15], 0.2, at=120)
    told = []
    for step, column in enumerate(zip(*rows, strict=True)):
        watch.own_work(step, dict(enumerate(column)))
        told += [(step, *one) for one in kinds(watch.findings(step, float(step)))]
    assert [one[1:] for one in told] == [("straggler", [15.0])]


def test_all_ranks_of_a_node_are_one_finding():
    found = analyse(slowed(table(32, 120), range(8, 16), 0.08, at=40), nodes=NODES)
    assert {one.node for one in found} == {"node-1"}
    assert max(len(one.ranks) for one in found) >= 6


def test_of_two_nodes_one_may_be_slow():
    nodes = {rank: NODES[rank] for rank in range(16)}
    found = analyse(slowed(table(16, 120), range(8, 16), 0.15, at=40), nodes=nodes)
    assert {rank for one in found for rank in one.ranks} == set(range(8, 16))


def test_missing_values_and_rows_of_other_lengths():
    rows = slowed(table(8, 120), [3], 0.2, at=40)
    for row in rows:
        row[60:64] = [float("nan")] * 4
    rows[1][:30] = [float("inf")] * 30
    (found,) = analyse(rows)
    assert found.ranks == (3,)
    assert analyse([]) == ()
    assert analyse([[], []]) == ()
    with pytest.raises(ValueError, match="rank 1 has 1 steps, rank 0 has 2"):
        analyse([[1.0, 1.0], [1.0]])


def test_numpy_changes_nothing():
    numpy = pytest.importorskip("numpy")
    rows = slowed(table(100, 150, seed=3), [4, 50], 0.08, at=60)
    slow, fast = Panel(100, StragglerSettings()), NumpyPanel(numpy, 100, StragglerSettings())
    for step, values in enumerate(zip(*rows, strict=True)):
        column = array("d", values)
        one, other = slow.add(step, column), fast.add(step, column)
        assert one == other
        assert list(slow._sums) == list(fast._sums)
    assert slow.flags.keys() == {4, 50}


# Arrivals


def arrivals_of(watch, ranks, steps, slow, share, at, nodes=None, clocks=None, seed=1):
    """A synchronous job of three collectives a step, the last of them right after another. What was told."""
    dice, now_s, sequence, told = random.Random(seed), 1e9, 0, []
    for step in range(steps):
        for work_s in (0.3, 0.05, 0.001):
            own = {}
            for rank in range(ranks):
                more = 1 + share if rank in slow and step >= at else 1
                own[rank] = now_s + work_s * max(0.5, 1 + 0.02 * dice.gauss(0, 1)) * more
            now_s, sequence = max(own.values()) + 0.002, sequence + 1
            seen = {rank: when + clocks.get(nodes[rank], 0) if clocks else when for rank, when in own.items()}
            watch.arrivals("0", sequence, seen)
        told += watch.findings(step, now_s)
    return told


def test_who_comes_late_is_named_and_not_who_waits():
    (found,) = arrivals_of(StragglerWatch(), 4, 70, {2}, 0.3, 40)
    assert found.numbers["ranks"] == [2.0]
    assert found.numbers["ratio"] == pytest.approx(1.3, abs=0.05)
    assert found.numbers["source"] == "arrivals"
    assert abs(found.numbers["first_step"] - 40) <= 2
    assert found.step - 40 <= 12


def test_nobody_is_named_where_all_come_as_they_do():
    assert arrivals_of(StragglerWatch(), 4, 400, set(), 0, 0) == []


def test_a_rank_that_is_fast_again_is_reported_once():
    watch = StragglerWatch()
    told = arrivals_of(watch, 4, 60, {2}, 0.3, 30)
    assert kinds(told) == [("straggler", [2.0])]
    assert [one.ranks for one in watch.stragglers()] == [(2,)]
    watch = StragglerWatch()
    rows = slowed(table(4, 200), [2], 0.3, at=30, until=80)
    told = []
    for step, column in enumerate(zip(*rows, strict=True)):
        watch.own_work(step, dict(enumerate(column)))
        told += watch.findings(step, float(step))
    assert kinds(told) == [("straggler", [2.0]), ("straggler-over", [2.0])]
    assert told[1].step <= 100
    assert watch.stragglers() == ()


@pytest.mark.parametrize("at", [0, 40])
def test_a_slow_node_is_distinguished_from_a_clock_that_is_wrong(at):
    watch = StragglerWatch(nodes=NODES)
    clocks = {"node-1": 3.0, "node-2": -7.0}
    told = arrivals_of(watch, 32, 90, set(range(8, 16)), 0.08, at, NODES, clocks)
    assert {one.numbers["node"] for one in told} == {"node-1"}
    assert len(watch.stragglers()[0].ranks) >= 6


def test_a_wrong_clock_alone_is_no_straggler():
    clocks = {"node-1": 3.0, "node-2": -7.0}
    assert arrivals_of(StragglerWatch(nodes=NODES), 32, 90, set(), 0, 0, NODES, clocks) == []


def test_a_rank_held_up_in_its_own_group_is_not_blamed_in_another():
    """Ranks 0-1 and 2-3 are pairs, 0-2 and 1-3 too: rank 1 is slow, rank 0 waits for it and so is late for rank 2."""
    watch, dice, now_s = StragglerWatch(), random.Random(3), dict.fromkeys(range(4), 0.0)
    told = []
    for step in range(1, 120):
        for name, groups in (("tp", ((0, 1), (2, 3))), ("dp", ((0, 2), (1, 3)))):
            for ranks in groups:
                at = {}
                for rank in ranks:
                    slow = 1.5 if rank == 1 and step > 50 else 1.0
                    at[rank] = now_s[rank] + 0.1 * slow * (1 + 0.02 * dice.gauss(0, 1))
                for rank in ranks:
                    now_s[rank] = max(at.values()) + 0.001
                watch.arrivals(f"{name}{ranks}", step, at)
        told += watch.findings(step, max(now_s.values()))
    assert kinds(told) == [("straggler", [1.0])]


def test_arrivals_reported_twice_and_with_gaps():
    watch = StragglerWatch()
    for sequence in (1, 2, 3, 2, 3, 50, 51, 7):
        watch.arrivals("0", sequence, {0: sequence * 1.0, 1: sequence + 0.1})
    watch.arrivals("1", 1, {0: 1.0})
    watch.arrivals("2", 1, {})
    assert watch.findings(None, 0.0) == []


# Looks


def status(enqueued, completed, started=-1):
    return (GroupStatus(0, enqueued, started, completed),)


def looks(watch, count, awaited, *, ranks=4, groups=True, move=True, throttled=None):
    """Once a second; `awaited(look)`: the rank that has not come, or None. What was told."""
    told = []
    for look in range(count):
        late = awaited(look)
        at = 10 * look if move else 10
        samples = [
            RankSample(
                at_s=float(look),
                rank=rank,
                pid=100 + rank,
                state="R" if rank == late else "S",
                main_cpu_s=0.5 * look if move else 0.0,
                groups=(status(at, at) if rank == late else status(at + 1, at)) if groups else None,
            )
            for rank in range(ranks)
        ]
        watch.look(samples, throttled(look) if throttled else {})
        told += watch.findings(look, float(look))
    return told


@pytest.mark.parametrize("groups", [True, False])
def test_a_rank_for_which_the_others_wait_again_and_again_is_named(groups):
    told = looks(StragglerWatch(), 40, lambda look: 2, groups=groups)
    assert kinds(told) == [("straggler", [2.0])]
    assert told[0].numbers["source"] == "awaited"
    assert told[0].step <= 20


def test_a_throttled_rank_is_named_sooner():
    told = looks(
        StragglerWatch(),
        40,
        lambda look: 2,
        throttled=lambda look: dict.fromkeys(range(4), 0.0) | {2: 0.6 * look},
    )
    assert kinds(told) == [("straggler", [2.0])]
    assert told[0].numbers["source"] == "cpu"
    assert told[0].step <= 10
    assert "CPU quota" in told[0].text


def test_where_all_are_throttled_alike_it_explains_nothing():
    told = looks(
        StragglerWatch(), 40, lambda look: 2, throttled=lambda look: dict.fromkeys(range(4), 0.6 * look)
    )
    assert told[0].numbers["source"] == "awaited"


def test_somebody_is_always_last():
    dice = random.Random(5)
    assert looks(StragglerWatch(), 2000, lambda look: dice.randrange(4)) == []


def test_one_long_wait_is_no_straggler():
    assert looks(StragglerWatch(), 300, lambda look: 2, move=False) == []
    assert looks(StragglerWatch(), 300, lambda look: 2, move=False, groups=False) == []


def test_an_old_answer_is_not_taken_for_a_late_rank():
    """The others have completed what this one would not have entered: they cannot have, so its answer is old."""
    watch = StragglerWatch()
    for look in range(100):
        samples = [
            RankSample(
                at_s=float(look),
                rank=rank,
                pid=rank,
                state="S",
                groups=status(10 * look - 25 * (rank == 2), 10 * look - 1 - 25 * (rank == 2)),
            )
            for rank in range(4)
        ]
        watch.look(samples)
    assert watch.findings(1, 1.0) == []


def test_on_a_device_who_has_not_begun_is_awaited():
    watch = StragglerWatch()
    told = []
    for look in range(40):
        samples = [
            RankSample(
                at_s=float(look), rank=rank, pid=rank, state="R", groups=status(9 * look + 5, 9 * look, begun)
            )
            for rank, begun in enumerate([9 * look + 1, 9 * look + 1, 9 * look, 9 * look + 1])
        ]
        watch.look(samples)
        told += watch.findings(look, float(look))
    assert kinds(told) == [("straggler", [2.0])]


def test_who_waits_in_one_group_is_not_awaited_in_another():
    """Rank 1 waits for rank 0 in their pair; rank 3 waits for rank 1 in theirs."""
    watch = StragglerWatch()
    pairs = {0: {1: (0, 1)}, 1: {1: (0, 1), 2: (1, 3)}, 3: {2: (1, 3)}}
    for rank, groups in pairs.items():
        watch.teams(rank, groups)
    told = []
    for look in range(40):
        at = 10 * look
        states = {
            0: (GroupStatus(1, at, -1, at),),
            1: (GroupStatus(1, at + 1, -1, at), GroupStatus(2, at, -1, at)),
            3: (GroupStatus(2, at + 1, -1, at),),
        }
        watch.look(
            [
                RankSample(at_s=float(look), rank=rank, pid=rank, state="S", groups=groups)
                for rank, groups in states.items()
            ]
        )
        told += watch.findings(look, float(look))
    assert kinds(told) == [("straggler", [0.0])]


def test_records_are_wanted_each_minute_and_sooner_on_suspicion():
    watch = StragglerWatch()
    assert [at_s for at_s in range(130) if watch.wants_records(float(at_s))] == [60, 120]
    watch = StragglerWatch()
    watch.wants_records(0.0)
    looks(watch, 6, lambda look: 1)
    wanted = [at_s for at_s in range(1, 200) if watch.wants_records(float(at_s))]
    assert wanted[:4] == [5, 10, 15, 75]


def test_who_logs_longer_times_only_because_it_waits_is_not_named():
    """Some logs count the wait in what looks like own time: then rank 2, the slow one, seems the fastest."""
    watch = StragglerWatch()
    rows = slowed(table(4, 80), [0], 0.3)
    for step, column in enumerate(zip(*rows, strict=True)):
        looks(watch, 1, lambda look: 2)
        watch.look(
            [
                RankSample(
                    at_s=float(step),
                    rank=rank,
                    pid=rank,
                    state="S",
                    groups=status(20 * step + 9 + (rank != 2), 20 * step + 9),
                )
                for rank in range(4)
            ]
        )
        watch.own_work(step, dict(enumerate(column)))
    assert [0.0] not in [one.numbers["ranks"] for one in watch.findings(80, 80.0)]


# The watch as a whole


def test_nothing_reported_is_nothing_found():
    watch = StragglerWatch(StragglerSettings())
    watch.own_work(1, {})
    watch.own_work(1, {0: float("nan"), 1: 1.0})
    watch.step_times(1, {0: 1.0})
    watch.look((), {})
    assert watch.findings(None, 0.0) == []
    assert watch.stragglers() == ()
    assert watch.heat() is None or watch.heat().ranks == (0,)


def test_data_times_far_below_a_step_are_measured_by_the_step():
    watch = StragglerWatch()
    dice = random.Random(2)
    for step in range(100):
        watch.step_times(step, dict.fromkeys(range(4), 1.0))
        watch.own_work(
            step, {rank: 0.0005 * (1 + (rank == 1)) * (1 + 0.1 * dice.random()) for rank in range(4)}
        )
        assert watch.findings(step, float(step)) == []


def test_ranks_that_come_later_begin_anew():
    watch = StragglerWatch()
    for step in range(50):
        watch.own_work(step, dict.fromkeys(range(4 if step < 10 else 6), 1.0))
    assert watch.findings(50, 50.0) == []
    assert watch.heat().ranks == tuple(range(6))
    assert watch.heat().values[5][0] is None


def test_the_heat_map_is_bounded():
    watch = StragglerWatch()
    for step in range(3000):
        watch.own_work(step, {0: 1.0, 1: 2.0})
    heat = watch.heat()
    assert len(heat.steps) <= 200
    assert heat.steps == tuple(sorted(heat.steps))
    assert {row[-1] for row in heat.values} == {1.0, 2.0}
