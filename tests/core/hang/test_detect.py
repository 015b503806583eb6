"""The hang detector on simulated samples: each fault is found, and its healthy twin is not called a hang."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.hang.hang_kit import (
    BLOCKED,
    COMPILES,
    EVALUATES,
    GONE,
    LOOPS,
    POLLS,
    SLEEPS,
    STOPPED,
    TRACED,
    TRAINS,
    WAITS,
    WRITES,
    Doing,
    Job,
)
from holdfast.core.hang import detect as hang
from holdfast.core.hang.culprits import refine
from holdfast.model.samples import RankSample, Stack

# --- faults


FAULTS = {
    "stopped": ({2: STOPPED}, "stopped", 3),
    "asleep": ({2: SLEEPS}, "quiet", 7),
    "all in a lock or collective": ({}, "quiet", 7),
    "a loop": ({2: LOOPS}, "spinning", 91),
    "reads a dead service": ({2: POLLS}, "quiet", 61),
    "blocked on a file system": ({2: BLOCKED}, "blocked-io", 121),
    "its loader blocked": ({2: Doing(blocked=1)}, "blocked-io", 121),
}


@pytest.mark.parametrize(("doing", "kind", "within_s"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_after_training_is_found_in_time_and_reported_once(doing, kind, within_s):
    job = Job().train()
    fault_s = job.at_s  # at worst the fault came right after this sample, so 1 s more in real life
    found = job.stay(doing, 300)
    assert found is not None and found.kind == kind
    assert job.at_s - fault_s <= within_s
    assert found.culprits == ((2,) if doing else ())
    assert found.waiting == ((0, 1, 3) if doing else (0, 1, 2, 3))
    assert job.stay(doing, 60) is None
    assert found.why and 0 < found.confidence <= 1


def test_a_second_of_log_lag_and_unlucky_timing_still_leave_a_deadlock_under_8_5_s():
    job = Job().train(8)
    fault_s = job.at_s - 0.999  # right after the sample before the last
    job.second({2: SLEEPS}, log=400)  # lines of before, seen late
    assert job.stay({2: SLEEPS}, 60)
    assert job.at_s - fault_s <= 8.5


def test_a_job_that_logs_without_step_numbers_has_a_higher_floor():
    job = Job()
    for _ in range(30):
        job.second(job.all(TRAINS), log=400)
    fault_s = job.at_s
    assert job.stay({1: SLEEPS}, 100)
    assert 25 <= job.at_s - fault_s <= 31


def test_a_hang_at_the_start_is_found_after_the_start_limit():
    job = Job()
    found = job.stay({}, 700)
    assert found and found.kind == "quiet" and 599 <= job.at_s - 1000 <= 602


def test_ranks_that_run_and_get_nowhere_are_silent_after_half_an_hour():
    job = Job().train()
    found = job.stay(job.all(LOOPS), 2000)
    assert found and found.kind == "silent" and 1799 <= job.at_s - found.since_s <= 1801


def test_a_job_that_cannot_be_read_falls_back_to_its_log():
    job = Job()
    job.readable = False
    for _ in range(100):
        assert job.second({}, log=10) is None
    assert job.stay({}, 1700) is None
    found = job.stay({}, 200)
    assert found and found.kind == "silent"


def test_a_job_in_which_no_rank_was_found_falls_back_to_its_log():
    job = Job(ranks=0).train(50)
    assert job.stay({}, 1700) is None
    assert job.stay({}, 200)


def test_ranks_on_other_machines_may_be_at_work_unseen():
    assert Job(world_size=8).train().stay({}, 1700) is None
    assert Job(world_size=4).train().stay({}, 10)


def test_ranks_that_are_heard_again_after_a_while_are_no_sign_of_life():
    job = Job(world_size=4).train()
    fault_s = job.at_s
    assert job.stay({2: SLEEPS}, 3) is None
    job.ranks = 3
    assert job.stay({2: SLEEPS}, 2) is None
    job.ranks = 4
    found = job.stay({2: SLEEPS}, 60)
    assert found and found.kind == "quiet" and job.at_s - fault_s <= 8.5


def test_a_given_timeout_counts_steps_lines_and_bytes_alone():
    job = Job(hang_timeout_s=90).train()
    at_s = job.at_s
    found = job.stay(job.all(EVALUATES), 200)
    assert found and 89 <= job.at_s - at_s <= 91

    quick = Job(hang_timeout_s=90).train()
    assert quick.stay({2: SLEEPS}, 88) is None  # it bounds from below too
    assert quick.stay({2: SLEEPS}, 4)
    assert Job(hang_timeout_s=90).train().stay({0: WRITES}, 500) is None
    assert Job(hang_timeout_s=90).train().stay({2: STOPPED}, 4)


def test_some_ranks_end_and_the_others_do_not():
    job = Job().train()
    found = job.stay({0: GONE, 1: GONE}, 100)
    assert found and found.kind == "exit-hang" and found.culprits == (2, 3)
    assert 58 <= job.at_s - found.since_s <= 62
    assert "ranks 0, 1 ended" in found.why


def test_an_end_counts_as_a_sign_of_life_under_a_given_timeout():
    """The last line may be seconds older than the end: it is an exit hang all the same, and so for one that still runs."""
    for living in ({}, {2: LOOPS, 3: LOOPS}):
        job = Job(hang_timeout_s=5).train()
        assert job.stay({}, 3) is None
        found = job.stay({0: GONE, 1: GONE} | living, 20)
        assert found and found.kind == "exit-hang" and found.culprits == (2, 3)


def test_a_rank_that_failed_is_not_an_exit_hang():
    limits = hang.Settings()
    state, hangs = hang.start(), []
    for second in range(200):
        at_s = float(second)
        lives = RankSample(
            at_s=at_s, rank=1, pid=2, state="S", main_cpu_s=1, tree_cpu_s=1, io_bytes=1, disk_bytes=1
        )
        failed = RankSample(at_s=at_s, rank=0, pid=1, state="X", exit_code=1)
        state, found = hang.observe(state, (failed, lives), at_s, limits)
        hangs += [found] if found else []
    assert hangs == []  # a failure, and dealt with as one


# --- healthy twins


def test_stopped_for_less_than_a_second():
    job = Job().train()
    for _ in range(5):
        assert job.second({2: STOPPED}) is None
        assert job.second(job.all(TRAINS), steps=50) is None


def test_held_by_a_debugger():
    assert Job().train().stay({2: TRACED}, 1000) is None


HEALTHY = {
    "checkpoint by rank 0": ({0: WRITES}, 30),
    "slow checkpoint by rank 0": ({0: WRITES}, 900),
    "mapped weights read": ({0: Doing("D", "folio_wait_bit", disk=5_000_000)}, 300),
    "flush of a checkpoint": ({0: BLOCKED}, 100),
    "quiet evaluation in all": ({rank: EVALUATES for rank in range(4)}, 60),
    "long quiet evaluation in all": ({rank: EVALUATES for rank in range(4)}, 1200),
    "evaluation on rank 0": ({0: LOOPS}, 60),
    "compilation in children": ({rank: COMPILES for rank in range(4)}, 120),
    "compilation in children of one": ({0: COMPILES}, 600),
    "compilation in all": ({rank: LOOPS for rank in range(4)}, 600),
    "a retry of storage": ({0: POLLS}, 45),
    "a short pause in one": ({0: SLEEPS}, 5),
    "a pause in all": ({rank: SLEEPS for rank in range(4)}, 45),
}


@pytest.mark.parametrize(("doing", "for_s"), HEALTHY.values(), ids=HEALTHY.keys())
def test_healthy_phases_are_no_hang_and_do_not_slow_what_comes_after(doing, for_s):
    job = Job().train()
    for _ in range(3):
        assert job.stay(doing, for_s) is None
        job.train(20)
    assert job.hangs == []


def test_phases_of_every_kind_leave_the_limit_for_a_deadlock_as_it_was():
    job = Job().train()
    for doing in ({0: WRITES}, job.all(EVALUATES), job.all(COMPILES), {0: LOOPS}, {0: POLLS}):
        job.stay(doing, 40)
        job.train(20)
    assert hang.quiet_limit_s(job.state.learned, job.limits) == job.limits.floor_s


def test_a_long_first_step_with_cpu():
    job = Job()
    job.stay({}, 20, log=50)
    assert job.stay(job.all(LOOPS), 300) is None
    assert job.stay({0: LOOPS}, 300) is None
    job.train()
    assert job.hangs == []


def test_a_quiet_start_is_no_hang_and_is_not_taken_for_usual():
    job = Job()
    job.second({}, log=100)
    assert job.stay({}, 200) is None
    job.train(30)
    assert job.hangs == []
    assert job.stay({1: SLEEPS}, 10)


def test_slow_steps_with_quiet_waits_are_learned_and_a_hang_found_within_about_three():
    job = Job()
    for _ in range(25):
        job.stay({2: SLEEPS}, 39)
        job.train(1, steps=1)
    assert job.hangs == []
    at_s = job.at_s
    assert job.stay({2: SLEEPS}, 200)
    assert job.at_s - at_s <= 3 * 40 + 2


def test_what_an_attempt_learned_holds_in_the_next_once_it_trains():
    job = Job()
    for _ in range(25):
        job.stay({2: SLEEPS}, 20)
        job.train(1, steps=1)
    again = Job(knows=hang.learned(job.state))
    assert again.stay({}, 400) is None  # starting: its ranks load and meet again
    again.train(2, steps=1)
    assert again.stay({2: SLEEPS}, 40) is None
    assert again.stay({2: SLEEPS}, 30)


def test_steps_before_the_first_look_count():
    """A fast job may have made all its steps between two looks: the output names the first and the last."""
    job = Job()
    job.second(job.all(TRAINS))
    job.at_s += 1.0
    job.step = 60
    samples = tuple(job._sample(rank, TRAINS) for rank in range(job.ranks))
    job.state, _ = hang.observe(job.state, samples, job.at_s, job.limits, step=60, first_step=10)
    assert job.stay({2: SLEEPS}, 8)


def test_a_few_steps_shorten_the_wait_though_nothing_is_learned_yet():
    job = Job()
    job.second(job.all(TRAINS))
    job.train(1, steps=3)
    assert job.stay({2: SLEEPS}, 55) is None
    assert job.stay({2: SLEEPS}, 10)


def test_a_monitor_that_trickles_does_not_hide_a_hang():
    job = Job().train()
    monitor = {0: Doing(tree_s=0.02, io=3_000), 2: SLEEPS}
    at_s = job.at_s
    assert job.stay(monitor, 60)
    assert job.at_s - at_s <= 8


def test_the_last_rank_may_finish_its_work():
    job = Job().train()
    ended = {1: GONE, 2: GONE, 3: GONE}
    assert job.stay({**ended, 0: WRITES}, 900) is None
    assert job.stay({**ended, 0: LOOPS}, 500) is None
    assert job.stay({rank: GONE for rank in range(4)}, 300) is None


def test_nobody_watched_for_an_hour():
    job = Job().train()
    job.at_s += 3600
    assert job.second({}) is None
    assert job.stay({}, 4) is None


def test_life_after_a_hang_is_learned_and_a_new_hang_reported():
    job = Job().train()
    assert job.stay({2: SLEEPS}, 20)
    job.train(20)
    at_s = job.at_s
    assert job.stay({2: SLEEPS}, 100)
    assert job.at_s - at_s > 15


def test_a_rank_started_anew_is_no_progress_by_its_counters():
    job = Job().train()
    state, _ = hang.observe(
        job.state, (RankSample(at_s=job.at_s + 1, rank=0, pid=999, state="S"),), job.at_s + 1, job.limits
    )
    assert state.tracks[0].last.pid == 999


# --- always


SOME = st.sampled_from(
    [WAITS, TRAINS, SLEEPS, POLLS, LOOPS, EVALUATES, COMPILES, WRITES, BLOCKED, TRACED, GONE]
)
SECONDS = st.lists(st.tuples(SOME, SOME, SOME, st.integers(0, 3), st.booleans()), max_size=60)


@settings(max_examples=60, deadline=None)
@given(SECONDS)
def test_a_stopped_rank_is_always_found(seconds):
    job = Job(3)
    for *doing, steps, readable in seconds:
        job.readable = readable
        job.second(dict(enumerate(doing)), steps=steps)
    job.readable = True
    found = job.second({1: STOPPED}) or job.second({1: STOPPED}) or job.second({1: STOPPED})
    assert any(one.kind == "stopped" and 1 in one.culprits for one in [found, *job.hangs] if one)


@settings(max_examples=60, deadline=None)
@given(SECONDS)
def test_a_job_with_a_step_each_second_is_never_called_hung(seconds):
    job = Job(3)
    for *doing, steps, _ in seconds:
        job.second(dict(enumerate(doing)), steps=steps + 1)
    assert job.hangs == []


COUNTER = st.none() | st.integers(0, 10**9)
SAMPLES = st.builds(
    RankSample,
    at_s=st.floats(0, 1e5),
    rank=st.integers(0, 3),
    pid=st.integers(1, 3),
    state=st.sampled_from("RSDITtZX?"),
    main_cpu_s=COUNTER,
    tree_cpu_s=COUNTER,
    io_bytes=COUNTER,
    disk_bytes=COUNTER,
    wait_channel=st.sampled_from(["", "futex_do_wait", "hrtimer_nanosleep", "ep_poll"]),
    step=COUNTER,
    exit_code=st.none() | st.integers(-9, 3),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.lists(SAMPLES, max_size=4)), max_size=15))
def test_never_raises_and_time_goes_only_forward(calls):
    state, limits = hang.start(), hang.Settings(watch_gap_s_max=1e6)
    for at_s, samples in calls:
        before_s = state.at_s
        state, found = hang.observe(state, tuple(samples), at_s, limits)
        assert before_s is None or state.at_s >= before_s
        assert found is None or refine(found, [Stack(rank=0, frames=("a.py:1 f",))]).why


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_longer_usual_stretch_never_shortens_a_limit(one, other):
    low, high = sorted((one, other))
    for stretch in ("waiting", "outside", "blocked", "running", "busy", "unseen"):
        limits = [
            hang.quiet_limit_s(
                hang.Learned(marks=99, calls=99, has_steps=True, waiting_s=usual_s), hang.Settings(), stretch
            )
            for usual_s in (low, high)
        ]
        assert limits[0] <= limits[1] <= 1800
