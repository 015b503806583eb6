"""The detector where the collectives of all ranks are known: faults found within seconds, their healthy twins not."""

import pytest

from core.hang.hang_kit import (
    BLOCKED,
    COMPILES,
    EVALUATES,
    GONE,
    LOOPS,
    POLLS,
    SLEEPS,
    TRACED,
    WAITS,
    WRITES,
    Doing,
    Job,
)
from holdfast.core.hang import detect as hang
from holdfast.model.samples import StackTrend

LOCKS = Doing(in_collective=False)
SPINS_IN_NCCL = Doing("R", "", 1.0, 1.0, in_collective=True)
LOADS_FROM_FIFO = Doing(
    channel="poll_schedule_timeout.constprop.0",
    children=("wait_for_partner", "poll_schedule_timeout"),
    in_collective=False,
)
LOADS_FROM_NETWORK = Doing(
    channel="poll_schedule_timeout.constprop.0", children=("sk_wait_data",), in_collective=False
)
LOADER_ASLEEP = Doing(
    channel="poll_schedule_timeout.constprop.0", children=("hrtimer_nanosleep",), in_collective=False
)
FROZEN = Doing("D", "percpu_rwsem_wait", in_collective=False)
GONE_WELL = GONE._replace(exit_code=0)


def known(job: Job | None = None) -> Job:
    """A job of 20 ms steps, some seconds old, whose collectives are known."""
    job = job or Job()
    job.knows_groups = True
    return job.train(8)


FAULTS = {
    "asleep": ({2: SLEEPS}, "quiet", (2,), 7),
    "in a lock that looks like its victims": ({2: LOCKS}, "quiet", (2,), 7),
    "all arrived, none completes": ({}, "quiet", (), 7),
    "its loader on a dead FIFO": ({2: LOADS_FROM_FIFO}, "quiet", (2,), 7),
    "half of them asleep": ({2: SLEEPS, 3: SLEEPS}, "quiet", (2, 3), 7),
    "a dead service": ({2: POLLS}, "quiet", (2,), 61),
    "ended well while others wait": ({2: GONE_WELL}, "left-early", (2,), 3),
    "waiting as NCCL does": (
        {0: SPINS_IN_NCCL, 1: SPINS_IN_NCCL, 2: LOCKS, 3: SPINS_IN_NCCL},
        "quiet",
        (2,),
        7,
    ),
}


@pytest.mark.parametrize(("doing", "kind", "culprits", "within_s"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_found_in_time_and_its_rank_named(doing, kind, culprits, within_s):
    job = known()
    fault_s = job.at_s
    found = job.stay(doing, 300)
    assert found is not None
    assert (found.kind, found.culprits) == (kind, culprits)
    assert job.at_s - fault_s <= within_s
    assert set(found.culprits).isdisjoint(found.waiting)
    assert job.stay(doing, 60) is None


def looped(job: Job, rank: int, *, distinct: int = 1, inside: str = "interpreter") -> None:
    job.trends = {
        rank: StackTrend(
            rank=rank, from_s=job.at_s, to_s=job.at_s + 4, samples=12, distinct=distinct, inside=inside
        )
    }


def test_a_loop_is_distinguished_from_an_evaluation_by_its_stacks():
    for distinct, inside, within_s in ((1, "interpreter", 8), (1, "library", 91), (3, "interpreter", 91)):
        job = known()
        fault_s = job.at_s
        assert job.stay({2: LOOPS}, 4) is None
        assert hang.to_sample(job.state) == (2,)
        looped(job, 2, distinct=distinct, inside=inside)
        found = job.stay({2: LOOPS}, 300)
        assert found and found.kind == "spinning" and found.culprits == (2,)
        assert within_s - 2 <= job.at_s - fault_s <= within_s


def test_a_rank_that_others_keep_from_the_processor_is_given_its_time():
    job = known()
    starved = LOOPS._replace(main_s=0.15, tree_s=0.15)
    assert job.stay({2: starved}, 4) is None
    looped(job, 2)
    assert job.stay({2: starved}, 8) is None
    assert job.stay({2: starved}, 4)


def test_stacks_of_an_earlier_standstill_prove_nothing():
    job = known()
    looped(job, 2)
    job.train(5)
    assert job.stay({2: LOOPS}, 80) is None


def test_a_frozen_disk_is_distinguished_from_a_flush_by_the_traffic_of_the_node():
    frozen, flushes = known(), known()
    frozen.node_busy_s = frozen.at_s
    assert frozen.stay({0: FROZEN}, 8)
    for _ in range(100):
        flushes.node_busy_s = flushes.at_s
        assert flushes.second({0: FROZEN}) is None
    remote = known()
    remote.node_busy_s = remote.at_s
    assert remote.stay({0: BLOCKED._replace(in_collective=False)}, 28) is None
    assert remote.stay({0: BLOCKED._replace(in_collective=False)}, 5)


HEALTHY = {
    "checkpoint by rank 0": ({0: WRITES}, 600),
    "quiet evaluation on rank 0": ({0: EVALUATES}, 600),
    "evaluation on rank 0 at full speed": ({0: LOOPS}, 80),
    "evaluation in all": ({rank: EVALUATES for rank in range(4)}, 600),
    "compilation in children of one": ({0: COMPILES._replace(in_collective=False)}, 600),
    "a pause of all, a hundred steps of half a second": ({rank: SLEEPS for rank in range(4)}, 50),
    "a short pause in one": ({0: SLEEPS}, 5),
    "a debugger holds one": ({2: TRACED}, 600),
    "a loader on the network": ({rank: LOADS_FROM_NETWORK for rank in range(4)}, 55),
    "a loader that sleeps in one": ({1: LOADER_ASLEEP}, 55),
    "one ends a little before the others": ({2: GONE_WELL, 0: EVALUATES, 1: EVALUATES, 3: EVALUATES}, 50),
}


@pytest.mark.parametrize(("doing", "for_s"), HEALTHY.values(), ids=HEALTHY.keys())
def test_healthy_phases_are_no_hang(doing, for_s):
    job = known()
    for _ in range(3):
        assert job.stay(doing, for_s) is None
        if any(one.state == "X" for one in doing.values()):
            break
        job.train(20)
    assert job.hangs == []


def test_pauses_of_one_rank_are_learned():
    job = known()
    for _ in range(3):
        assert job.stay({2: SLEEPS}, 5) is None
        job.train(3)
    assert job.stay({2: SLEEPS}, 11) is None  # three times the longest seen
    assert job.stay({2: SLEEPS}, 3)


def test_what_waiting_ranks_do_beside_is_no_progress():
    """Uploads, monitors and a spinning wait go on in ranks that wait."""
    job = known()
    uploads = Doing("S", "futex_do_wait", 0.0, 0.5, 10_000_000, in_collective=True)
    assert job.stay({0: uploads, 2: SLEEPS}, 8)


def test_slow_steps_without_any_log():
    """Steps of a second that nothing prints: the collectives alone prove that training has begun."""
    job = Job()
    job.knows_groups = True
    for _ in range(8):
        job.done += 1
        job.second({})
    fault_s = job.at_s
    found = job.stay({1: SLEEPS}, 60)
    assert found and found.culprits == (1,) and job.at_s - fault_s <= 8


def test_a_start_in_which_one_rank_does_nothing_while_others_wait():
    job = Job()
    job.knows_groups = True
    assert job.stay({1: LOCKS}, 24) is None
    assert job.stay({1: LOCKS}, 4)
    compiles = Job()
    compiles.knows_groups = True
    assert compiles.stay({1: LOOPS._replace(in_collective=False)}, 1500) is None


def test_a_rank_that_no_longer_answers_counts_as_far_as_it_was():
    job = known()
    job.second({2: WAITS})
    job.knows_groups = False
    found = job.stay({2: SLEEPS}, 10)
    assert found
