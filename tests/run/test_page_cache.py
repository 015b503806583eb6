"""A job that failed finds its newest checkpoint in the page cache."""

import os
import sys

import pytest

from cached import evict, is_cached
from run.place import wait_for

TRAIN = """
import os, sys, time
if os.environ["HOLDFAST_ATTEMPT"] == "1":
    open("begun", "w").close()
    while not os.path.exists("fail"):
        time.sleep(0.01)
    sys.exit(3)
while not os.path.exists("go"):
    time.sleep(0.01)
"""
RESTARTS = ("--max-restarts", "1", "--unconditional-restart")


def run(place, *flags):
    """Of a training whose newest checkpoint is on the disk alone; and that checkpoint."""
    saved = place.path / "out" / "checkpoint-500" / "model.safetensors"
    saved.parent.mkdir(parents=True)
    saved.write_bytes(os.urandom(1 << 20))
    (place.path / "train.py").write_text(TRAIN)
    words = (sys.executable, "-S", "train.py", "--output-dir", "out")
    started = place.run(*RESTARTS, *flags, "--", *words)
    wait_for("the first attempt", (place.path / "begun").exists)
    evict(saved)
    if is_cached(saved):
        place.go()
        pytest.skip("this file system keeps its files in memory")
    (place.path / "fail").touch()
    return started, saved


def test_the_newest_checkpoint_is_read_when_the_attempt_fails(place):
    started, saved = run(place)
    wait_for("the page cache", lambda: is_cached(saved))
    place.go()
    assert started.code() == 0, started.err
    place.nothing_left()


def test_nothing_is_read_without_a_standby(place):
    started, saved = run(place, "--no-standby")
    started.says("attempt 2 starts")
    place.go()
    assert started.code() == 0, started.err
    assert not is_cached(saved)
