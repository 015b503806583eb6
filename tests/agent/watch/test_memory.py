"""A real kill for want of memory, in a memory cgroup of the test's own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agent.watch.memory import MemoryWatch
from kernel_log import alone

pytestmark = pytest.mark.timeout(900)  # it waits until no job of other tests runs
ROOT = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 64 << 20
EATS = "import sys; sys.stdin.readline(); kept = [bytearray(1 << 20) for _ in range(1 << 10)]"


@pytest.fixture
def cgroup():
    folder = ROOT / f"holdfast-test-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    except OSError as error:
        pytest.skip(f"no memory cgroup (v1) can be made here: {error}")
    yield folder
    folder.rmdir()


def test_a_rank_killed_for_want_of_memory_is_distinguished_from_one_killed_by_hand(cgroup):
    rank = subprocess.Popen([sys.executable, "-c", EATS], stdin=subprocess.PIPE)
    (cgroup / "cgroup.procs").write_text(str(rank.pid))
    with alone():
        watch = MemoryWatch()
        watch.rank_found(rank.pid)
        assert watch.kills([rank.pid]) == ()
        rank.communicate(b"\n", timeout=200)
        assert rank.returncode == -9
        (said,) = watch.kills([rank.pid])
        watch.close()
    assert "cgroup" in said


def test_an_older_kill_is_not_taken_for_this_one():
    watch = MemoryWatch()
    assert watch.kills([os.getpid()]) == ()
    watch.close()
