"""What repeated stacks of a running process show: a loop of Python, or a call that may end."""

import shutil
import subprocess
import sys
import time

import pytest

from agent.running import wait_for
from holdfast.agent.watch.loops import LoopWatch
from holdfast.observe.processes.pyspy import tool_path

PROGRAMS = {
    "a loop": ("def go():\n while True: pass\n", 1, "interpreter"),
    "a loop over lines": ("def go():\n x = 0\n while True:\n  x += 1\n  y = [x]\n", 1, "interpreter"),
    "a regular expression": ("import re\ndef go(): re.match('(a+)+$', 'a' * 60 + 'b')\n", 1, "library"),
    "garbage collected": (
        "import gc\nkept = [[n] for n in range(100_000)]\ndef go():\n while True: gc.collect()\n",
        1,
        "library",
    ),
}


@pytest.mark.skipif(tool_path() is None or not shutil.which("sh"), reason="py-spy is not installed")
@pytest.mark.parametrize(("program", "distinct", "inside"), PROGRAMS.values(), ids=PROGRAMS.keys())
def test_a_loop_is_told_from_a_call(tmp_path, program, distinct, inside):
    said = f"{program}print('go', flush=True)\ngo()\n"
    with subprocess.Popen([sys.executable, "-c", said], stdout=subprocess.PIPE) as running:
        assert running.stdout.readline() == b"go\n"
        watch = LoopWatch(tmp_path, time.monotonic)
        wait_for("a trend", lambda: watch.poll({0: (running.pid, 0)}) or watch.trends)
        watch.close()
        running.kill()
    trend = watch.trends[0]
    assert (trend.distinct, trend.inside) == (distinct, inside)
    assert trend.samples == 10
