"""Four real ranks, one of them held back: by a cpu quota of its own control group where one can be made here, else by
being stopped in turns."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[3]
TRIES = 3  # other work of the machine slows the other ranks as well, which is then seen rightly


def run(kind, seed, *more):
    words = [sys.executable, "-m", "bench.stragglers.real", "--kinds", kind, "--seed", str(seed), *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=400, check=False, cwd=ROOT)


def test_a_rank_that_is_held_back_is_named_within_thirty_steps():
    """The bench ends with 1 where another rank is named, or the slow one not within 30 steps."""
    said = ""
    for seed in range(1, TRIES + 1):
        done = run("quota", seed)
        has_quota = "left out" not in done.stdout
        if not has_quota:
            done = run("duty", seed, "--work-s", "0.2")
        said += done.stdout + done.stderr
        if done.returncode == 0:
            break
    assert done.returncode == 0, said
    assert "is slower than the others" in done.stdout
    assert not has_quota or "CPU quota" in done.stdout
