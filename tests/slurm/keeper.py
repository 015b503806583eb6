"""Without namespaces: starts the daemons of a cluster, and ends them and all they began when its test process ends.

    keeper.py LIFELINE_DESCRIPTOR FIFO

Each line of the fifo is a command, its words with NUL bytes between. Daemons put themselves into the background.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def children(pid):
    found = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, listing.read_text().split())
    return found


def end_all():
    while left := [pid for pid in children(os.getpid())]:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, 0)[0]:
                pass


def main():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    lifeline, fifo = int(sys.argv[1]), sys.argv[2]
    os.mkfifo(fifo)
    todo = os.open(fifo, os.O_RDWR)
    while True:
        ready = select.select([lifeline, todo], [], [], 0.2)[0]
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if lifeline in ready and not os.read(lifeline, 1):
            end_all()
            return
        if todo in ready:
            for line in os.read(todo, 1 << 16).decode().splitlines():
                subprocess.Popen(line.split("\0"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


main()
