"""The standby beside a training without a zygote: when it is started, when it imports, and that it is released or gone.

The launcher is a small one by the name of torchrun. `torch` is a module of the test's own that notes who imports it.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

from run.place import is_over, wait_for

RESTARTS = ("--max-restarts", "3", "--unconditional-restart")
TORCHRUN = f"""#!{sys.executable} -S
import os, subprocess, sys, time
ranks = [
    subprocess.Popen(
        [{sys.executable!r}, "-u", sys.argv[1]],
        env=os.environ | {{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}},
    )
    for rank in range(2)
]
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() for rank in ranks):
        for rank in ranks:
            rank.kill()
    time.sleep(0.01)
while os.path.exists(os.environ["NOTES"] + "/stay"):
    time.sleep(0.01)
sys.exit(any(rank.returncode for rank in ranks))
"""
TORCH = """
import os, time
notes = os.environ["NOTES"]
attempt = os.environ["HOLDFAST_ATTEMPT"]
with open(f"{notes}/torch-{attempt}", "a") as file:
    file.write(os.environ["RANK"] + "\\n")
while attempt == "2" and os.path.exists(f"{notes}/slow"):
    time.sleep(0.01)
"""
TRAIN = """
import json, os, time
rank, notes, attempt = os.environ["RANK"], os.environ["NOTES"], os.environ["HOLDFAST_ATTEMPT"]
import torch
given = {key: os.environ[key] for key in ("MASTER_PORT", "MA_SCHEDULE_CNT")}
with open(f"{notes}/given-{rank}", "a") as file:
    file.write(json.dumps(given | {"pid": os.getpid()}) + "\\n")
step = 0
while not os.path.exists(f"{notes}/go"):
    if os.path.exists(f"{notes}/train"):
        step += 1
        print(f"step {step} of attempt {attempt} loss 0.5", flush=True)
    time.sleep(0.05)
"""


class Training:
    def __init__(self, place):
        self.place = place
        (place.path / "modules").mkdir()
        (place.path / "modules" / "torch.py").write_text(TORCH)
        (place.path / "train.py").write_text(TRAIN)
        self.launcher = place.path / "torchrun"
        self.launcher.write_text(TORCHRUN)
        self.launcher.chmod(0o755)

    def run(self, flag="--no-zygote", **more):
        path = self.place.path / "modules"
        return self.place.run(*RESTARTS, flag, "--", self.launcher, "train.py", PYTHONPATH=path, **more)

    def touch(self, name):
        (self.place.path / name).touch()

    def standby(self):
        """{rank: pid} of the second attempt, once both its ranks wait for a lock."""

        def waiting():
            ranks = {
                fact["rank"]: fact["pid"] for fact in self.place.facts(2) if fact["kind"] == "rank-started"
            }
            return ranks if len(ranks) == 2 and all(map(waits_for_lock, ranks.values())) else None

        return wait_for(lambda: f"the standby:\n{self.place.runs[-1].err}", waiting)

    def is_released(self):
        return any(fact["kind"] == "released" for fact in self.place.facts(2))

    def will_be_released(self):
        """The fact is written after the gate opens: a rank may already run."""
        wait_for("the fact that the standby is released", self.is_released)

    def imported(self, attempt):
        return sorted(self.place.notes(f"torch-{attempt}"))

    def kill_rank(self):
        """Once both ranks run: one that the launcher ends before its first line has noted nothing."""
        ranks = [self.place.given(rank, 1) for rank in (0, 1)]
        os.kill(ranks[1]["pid"], signal.SIGKILL)

    def ends_well(self, run):
        self.touch("train")
        self.place.go()
        assert run.code() == 0, run.err
        self.place.nothing_left()
        assert not self.place.worker(3).exists()


def waits_for_lock(pid):
    """The kernel lists who waits for a lock: `1: -> FLOCK  ADVISORY  READ 4711 ...`."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("-> FLOCK" in line and f" {pid} " in line for line in lines)


@pytest.fixture
def training(place):
    return Training(place)


needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: no early standby")


@needs_two_cores
def test_it_waits_with_python_alone_until_the_first_step(training):
    run = training.run()
    standby = training.standby()
    training.place.given(0, 1)
    assert training.imported(1)
    assert training.imported(2) == []
    assert not list(training.place.worker(2).glob("rank-*.ready"))
    training.touch("train")
    wait_for("its imports", lambda: training.imported(2) == ["0", "1"])
    assert not training.is_released()
    training.ends_well(run)
    assert all(map(is_over, standby.values()))


@needs_two_cores
@pytest.mark.parametrize("flag", ["--no-zygote", "--zygote"])
def test_a_fault_before_the_first_step_finds_it_at_the_gate(training, flag):
    """A zygote, too, is begun at the first step, in a script's first run."""
    run = training.run(flag)
    standby = training.standby()
    training.kill_rank()
    given = {rank: training.place.given(rank, 2) for rank in (0, 1)}
    assert {rank: one["pid"] for rank, one in given.items()} == standby
    training.will_be_released()
    assert [one["MA_SCHEDULE_CNT"] for one in given.values()] == ["2", "2"]
    assert given[0]["MASTER_PORT"] != training.place.given(0, 1)["MASTER_PORT"]
    training.ends_well(run)


def test_a_fault_in_the_middle_of_its_imports_has_the_ranks_import_all_at_once(training):
    """The first import does not end; the other rank's turn would come only after it."""
    training.touch("slow")
    training.touch("train")
    run = training.run()
    wait_for("the first import", lambda: len(training.imported(2)) == 1)
    training.kill_rank()
    wait_for("the second import", lambda: training.imported(2) == ["0", "1"])
    (training.place.path / "slow").unlink()
    run.prints("of attempt 2 ")
    training.will_be_released()
    training.ends_well(run)


def test_it_is_gone_before_the_launcher_of_a_job_that_is_done(training):
    """The launcher stays until the standby has gone: neither waits for the other."""
    training.touch("stay")
    training.touch("train")
    run = training.run()
    wait_for("its imports", lambda: training.imported(2) == ["0", "1"])
    standby = training.standby()
    training.place.go()
    wait_for("the end of the standby", lambda: all(map(is_over, standby.values())))
    assert run.process.poll() is None
    (training.place.path / "stay").unlink()
    training.ends_well(run)
    assert not training.place.worker(2).exists()


def test_on_one_core_it_leaves_the_start_to_the_training(training):
    run = training.run(prefix=("taskset", "-c", str(min(os.sched_getaffinity(0)))))
    training.place.given(0, 1)
    assert not training.place.worker(2).exists()
    training.touch("train")
    wait_for("its imports", lambda: training.imported(2) == ["0", "1"])
    training.ends_well(run)
