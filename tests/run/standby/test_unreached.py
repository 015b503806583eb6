"""Ranks that the shim does not reach would not wait at a gate: beside them no second training is started."""

import os
import signal
import sys

import pytest

from run.place import wait_for

RESTARTS = ("--max-restarts", "3", "--unconditional-restart")
TORCHRUN = f"""#!{sys.executable}
import os, subprocess, sys, time
assert sys.argv.pop(1) == "--no-python"
ranks = [
    subprocess.Popen(
        sys.argv[1:],
        env=os.environ | {{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}},
        start_new_session=True,
    )
    for rank in range(2)
]
while any(rank.poll() is None for rank in ranks):
    if any(rank.poll() for rank in ranks):
        for rank in ranks:
            rank.kill()
    time.sleep(0.01)
sys.exit(any(rank.returncode for rank in ranks))
"""
TRAIN = """
import json, os, time
rank, notes, attempt = os.environ["RANK"], os.environ["NOTES"], os.environ["HOLDFAST_ATTEMPT"]
with open(f"{notes}/given-{rank}", "a") as file:
    file.write(json.dumps({"pid": os.getpid(), "attempt": attempt}) + "\\n")
step = 0
while not os.path.exists(f"{notes}/go"):
    step += 1
    print(f"step {step} of attempt {attempt} loss 0.5", flush=True)
    time.sleep(0.02)
"""
UNREACHED = (sys.executable, "-I", "train.py")


@pytest.fixture
def launcher(place):
    (place.path / "train.py").write_text(TRAIN)
    path = place.path / "torchrun"
    path.write_text(TORCHRUN)
    path.chmod(0o755)
    return path


def step_of(run, attempt):
    wait_for(f"steps of attempt {attempt}", lambda: f"step 20 of attempt {attempt}" in run.out)


def ends_well_after_a_kill(place, run):
    """Each rank has begun once in each of two attempts, in the first before the kill."""
    ranks = [place.given(rank, 1) for rank in (0, 1)]
    os.kill(ranks[1]["pid"], signal.SIGKILL)
    step_of(run, 2)
    place.go()
    assert run.code() == 0, run.err
    assert [len(place.notes(f"given-{rank}")) for rank in (0, 1)] == [2, 2]
    place.nothing_left()


@pytest.mark.parametrize("zygote", ["no", "yes"])
def test_no_standby_beside_ranks_that_would_not_wait(place, launcher, zygote):
    run = place.run(*RESTARTS, "--", launcher, "--no-python", *UNREACHED, HOLDFAST_ZYGOTE=zygote)
    step_of(run, 1)
    if zygote == "yes":
        run.says("no zygote is made: no rank is a Python process that has loaded Holdfast's shim")
        wait_for("more steps", lambda: "step 300 of attempt 1" in run.out)
    assert not place.worker(2).exists()
    ends_well_after_a_kill(place, run)


def test_a_standby_waits_once_an_attempt_has_shown_that_its_ranks_do(place, launcher):
    (place.path / "modules").mkdir()
    (place.path / "modules" / "torch.py").touch()  # what a rank imports is known without waiting for more
    (place.path / "train.py").write_text("import torch\n" + TRAIN)
    words = [launcher, "--no-python", sys.executable, "-u", "train.py"]
    run = place.run(*RESTARTS, "--", *words, PYTHONPATH=place.path / "modules")
    ready = [place.worker(2) / f"rank-{rank}.ready" for rank in (0, 1)]
    wait_for("the standby", lambda: all(path.exists() for path in ready))
    ends_well_after_a_kill(place, run)
