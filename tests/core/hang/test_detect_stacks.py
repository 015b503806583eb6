"""The hang detector on stacks, early in a run, and on a process that trains alone."""

from collections.abc import Mapping

import pytest

from core.hang.hang_kit import (
    COMPILES,
    EVALUATES,
    POLLS,
    SLEEPS,
    STOPPED,
    TRACED,
    WAITS,
    WRITES,
    Doing,
    Job,
)
from holdfast.core.hang import detect as hang
from holdfast.core.hang.culprits import refine
from holdfast.model.samples import Hang, Stack

# --- stacks


BACKWARD = (
    "/venv/lib/python3.11/site-packages/torch/autograd/graph.py:979 _engine_run_backward",
    "/venv/lib/python3.11/site-packages/torch/_tensor.py:623 backward",
    "/job/train.py:23 <module>",
)
BARRIER = (
    "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py:4700 barrier",
    "/job/train.py:40 save",
)
ASLEEP = ("/job/train.py:16 stuck", "/job/train.py:21 <module>")
LOCKED = ("/usr/lib/python3.11/threading.py:327 wait", "/job/data.py:88 next_batch")


def stacks(*frames: tuple[str, ...]) -> list[Stack]:
    return [Stack(rank=rank, frames=one) for rank, one in enumerate(frames)]


def found_quiet(doing: Mapping[int, Doing], ranks: int = 4) -> Hang:
    found = Job(ranks).train().stay(doing, 100)
    assert found
    return found


def test_stacks_name_a_rank_in_a_lock_that_looks_like_its_victims():
    refined = refine(found_quiet({}), stacks(BACKWARD, BACKWARD, LOCKED, BACKWARD))
    assert refined.culprits == (2,) and refined.waiting == (0, 1, 3)
    assert refined.why.startswith(
        "rank 2 waits at data.py:88 in next_batch; 3 ranks wait for it in _engine_run_backward (train.py:23)"
    )


def test_knowledge_of_waits_decides_between_two():
    refined = refine(found_quiet({1: SLEEPS}, 2), stacks(BACKWARD, ASLEEP))
    assert refined.culprits == (1,) and "rank 1 sleeps at train.py:16 in stuck" in refined.why


def test_a_rank_in_another_collective_than_the_others():
    assert refine(found_quiet({}), stacks(BACKWARD, BARRIER, BACKWARD, BACKWARD)).culprits == (1,)


def test_stacks_that_tell_nobody_apart_name_nobody():
    assert refine(found_quiet({}), stacks(BACKWARD, BACKWARD, BACKWARD, BACKWARD)).culprits == ()
    assert refine(found_quiet({}), stacks(BACKWARD, BARRIER, BACKWARD, BARRIER)).culprits == ()


def test_a_stopped_rank_stays_the_culprit_as_it_gives_no_stack():
    found = Job().train().stay({2: STOPPED}, 5)
    assert found
    refined = refine(found, [Stack(rank=rank, frames=BACKWARD) for rank in (0, 1, 3)])
    assert refined.culprits == (2,) and "3 ranks wait for it in _engine_run_backward" in refined.why
    assert refine(found, []) == found


# --- early in a run, and one process alone


@pytest.mark.parametrize("steps", [5, 20])
def test_a_rank_that_stands_still_after_a_few_steps_is_found_soon(steps):
    job = Job()
    job.knows_groups = True
    job.train(1, steps=1)
    job.train(1, steps=steps - 1)
    fault_s = job.at_s
    assert job.stay({2: SLEEPS._replace(in_collective=False)}, 30)
    assert job.at_s - fault_s <= 10


def alone(steps=1, **limits):
    job = Job(1, world_size=1, **limits)
    return job.train(30, steps=steps)


@pytest.mark.parametrize("doing", [WAITS, SLEEPS])
def test_one_process_that_trained_and_stands_still(doing):
    job = alone()
    fault_s = job.at_s
    found = job.stay({0: doing}, 40)
    assert found and found.culprits == (0,) and found.category == "unknown"
    assert 19 <= job.at_s - fault_s <= 27


PAUSES = {
    "a checkpoint": (WRITES, 200),
    "an evaluation": (EVALUATES, 300),
    "a compilation": (COMPILES, 300),
    "a debugger": (TRACED, 1000),
    "a short wait": (WAITS, 18),
    "a download": (POLLS, 50),
}


@pytest.mark.parametrize(("doing", "for_s"), PAUSES.values(), ids=PAUSES.keys())
def test_a_pause_of_one_process_is_no_hang(doing, for_s):
    assert alone().stay({0: doing}, for_s) is None


def test_one_process_that_names_no_step_is_left_to_the_rule_of_the_platforms():
    server = Job(1, world_size=1)
    server.train(60, steps=0)
    assert server.stay({0: POLLS}, 4000) is None
    assert server.stay({0: WAITS}, 4000) is None


def test_a_process_alone_that_waits_for_its_gpu_does_not_hang():
    job = alone()
    for _ in range(100):
        job.at_s += 1.0
        samples = (job._sample(0, WAITS),)
        job.state, found = hang.observe(
            job.state,
            samples,
            job.at_s,
            job.limits,
            step=job.step,
            log_bytes=job.log_bytes,
            device_busy_s=job.at_s,
        )
        assert found is None
    assert job.stay({0: WAITS}, 30)


def test_a_given_timeout_holds_for_one_process_too():
    job = alone(hang_timeout_s=5.0)
    assert job.stay({0: SLEEPS}, 8)
