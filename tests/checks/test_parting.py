"""Processes that were killed and take their time to go."""

import gc
import os
import signal
import subprocess
import sys

from holdfast.checks.parting import part_with


def test_one_that_is_not_gone_yet_is_collected_with_the_next():
    slow = subprocess.Popen(["sleep", "1000"])
    pid = slow.pid
    part_with(slow, 0.0)
    assert slow.returncode is None
    del slow
    gc.collect()  # nobody is told of a process that still runs
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    part_with(subprocess.Popen(["true"]), 60.0)
    assert not os.path.exists(f"/proc/{pid}")


def test_one_that_goes_is_collected_at_once():
    quick = subprocess.Popen(["sleep", "1000"])
    quick.kill()
    part_with(quick, 60.0)
    assert quick.returncode == -signal.SIGKILL


def test_one_that_goes_before_the_program_ends_is_collected_with_it():
    script = (
        "import os, subprocess\n"
        "from holdfast.checks.parting import part_with\n"
        "slow = subprocess.Popen(['sleep', '1000'])\n"
        "part_with(slow, 0.0)\n"
        "slow.kill()\n"
        "os.waitid(os.P_PID, slow.pid, os.WEXITED | os.WNOWAIT)"
    )
    ended = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")  # no "subprocess is still running"
