"""What repeated stacks of a running process show: a loop of Python, or a call that may end."""

import shutil
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from agent.running import wait_for
from holdfast.agent.watch.loops import SAMPLES, LoopWatch
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


def is_whole(watch):
    """Whether there is a trend of each, of all samples and with native frames.

    On a busy machine py-spy may have too little time for one of them: there are more looks, after 10, 20 and 40 s.
    """
    trends = watch.trends.values()
    return len(trends) == len(PROGRAMS) and all(
        trend.samples == SAMPLES and trend.inside != "unknown" for trend in trends
    )


@pytest.mark.skipif(tool_path() is None or not shutil.which("sh"), reason="py-spy is not installed")
def test_loops_are_distinguished_from_calls(tmp_path):
    """Of four ranks at once. Each takes what others leave of the processors: it runs until it is killed."""
    with ExitStack() as stack:
        suspects = {}
        for rank, (program, _, _) in enumerate(PROGRAMS.values()):
            said = program.replace("def go():", "def go():\n print('go', flush=True);", 1) + "go()\n"
            running = subprocess.Popen(["nice", sys.executable, "-c", said], stdout=subprocess.PIPE)
            stack.enter_context(running)
            stack.callback(running.kill)
            assert running.stdout.readline() == b"go\n"
            suspects[rank] = (running.pid, 0)
        watch = LoopWatch(tmp_path, time.monotonic)
        stack.callback(watch.close)
        wait_for("a trend of each", lambda: watch.poll(suspects) or is_whole(watch))
    for rank, (name, (_, distinct, inside)) in enumerate(PROGRAMS.items()):
        trend = watch.trends[rank]
        assert (trend.distinct, trend.inside) == (distinct, inside), name
