"""A launcher as small as can be: starts N ranks, ends the others when one fails, and ends with 1 as torchrun does.

    launcher.py N SCRIPT [--lame]

`--lame`: does not notice when a rank ends, and waits for all.
"""

import os
import signal
import subprocess
import sys
import time

count, script, lame = int(sys.argv[1]), sys.argv[2], "--lame" in sys.argv
ranks = [
    subprocess.Popen(
        [sys.executable, "-S", "-u", script],
        env=os.environ | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)},
    )
    for rank in range(count)
]


def end(number, frame):
    for rank in ranks:
        if rank.poll() is None:
            rank.send_signal(signal.SIGTERM)
    sys.exit(128 + number)


signal.signal(signal.SIGTERM, end)
failed = False
while any(rank.poll() is None for rank in ranks):
    failed = failed or any(rank.poll() not in (None, 0) for rank in ranks)
    if failed and not lame:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    time.sleep(0.05)
sys.exit(1 if any(rank.returncode for rank in ranks) else 0)
