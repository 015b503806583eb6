"""Four real ranks, one of them held back: by a cpu quota of its own control group where one can be made here, else by
being stopped in turns."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

BENCH = Path(__file__).parents[2] / "bench" / "straggler_run.py"


def run(kind, *more):
    words = [sys.executable, str(BENCH), "--kinds", kind, *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=290, check=False)


def test_a_rank_that_is_held_back_is_named_within_thirty_steps():
    """The bench ends with 1 where another rank is named, or the slow one not within 30 steps."""
    pytest.importorskip("torch")
    done = run("quota")
    has_quota = "left out" not in done.stdout
    if not has_quota:
        done = run("duty", "--work-s", "0.2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "is slower than the others" in done.stdout
    assert not has_quota or "cpu quota" in done.stdout
