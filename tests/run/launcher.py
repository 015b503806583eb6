"""A launcher as small as can be: starts N ranks, ends the others when one fails, and ends with 1 as torchrun does.

    launcher.py N SCRIPT [--lame] [-- WORDS]

`--lame`: does not notice when a rank ends, and waits for all. `--`: the ranks have installed packages and the shim; they
are started with WORDS.
"""

import os
import signal
import subprocess
import sys
import time

count, script, lame = int(sys.argv[1]), sys.argv[2], "--lame" in sys.argv
with_packages = "--" in sys.argv
words = sys.argv[sys.argv.index("--") + 1 :] if with_packages else []
ranks = [
    subprocess.Popen(
        [sys.executable, *([] if with_packages else ["-S"]), "-u", script, *words],
        env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)},
    )
    for rank in range(count)
]


def code_of(rank):
    """None while it lives. It is left uncollected: of one that is collected only newer kernels tell others the code."""
    end = os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    return None if end is None else end.si_status


def end(number, frame):
    for rank in ranks:
        if code_of(rank) is None:
            os.kill(rank.pid, signal.SIGTERM)
    os._exit(128 + number)


signal.signal(signal.SIGTERM, end)
failed = False
while any(code_of(rank) is None for rank in ranks):
    failed = failed or any(map(code_of, ranks))
    if failed and not lame:
        time.sleep(1.0)  # who watches sees who was first, on a busy machine too: the others end alike
        for rank in ranks:
            if code_of(rank) is None:
                os.kill(rank.pid, signal.SIGKILL)
    time.sleep(0.05)
os._exit(1 if any(map(code_of, ranks)) else 0)
