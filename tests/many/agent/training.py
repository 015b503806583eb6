"""A worker of a training without arithmetic: N ranks that print a step each 50 ms, and do what a file says.

    training.py N

Each rank notes what it was given. `$NOTES/go` ends all well. `$NOTES/do-RANK`: "exit CODE", "raise MESSAGE",
"deaf" (SIGTERM does nothing from then on).
"""

import json
import os
import signal
import subprocess
import sys
import time

NAMES = (
    "HOLDFAST_JOB HOLDFAST_ATTEMPT HOLDFAST_NODE HOLDFAST_CONTROLLER HOLDFAST_SECRET_FILE MA_SCHEDULE_CNT "
    "MA_PROC_START_CNT MASTER_PORT MASTER_ADDR NNODES NODE_RANK PET_NNODES WORLD_SIZE LOCAL_RANK"
).split()
notes = os.environ["NOTES"]


def launch(count):
    first = int(os.environ["NODE_RANK"]) * count
    world = int(os.environ["NNODES"]) * count
    ranks = [
        subprocess.Popen(
            [sys.executable, "-S", "-u", __file__],
            env=os.environ
            | {
                "RANK": str(first + place),
                "LOCAL_RANK": str(place),
                "LOCAL_WORLD_SIZE": str(count),
                "WORLD_SIZE": str(world),
            },
        )
        for place in range(count)
    ]
    # They are left uncollected: of one that is collected only newer kernels tell others how it ended.
    ends = [os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT) for rank in ranks]
    os._exit(1 if any(end.si_status for end in ends) else 0)


def train():
    rank = os.environ["RANK"]
    given = {name: os.environ.get(name) for name in NAMES} | {"pid": os.getpid(), "launcher": os.getppid()}
    with open(f"{notes}/given-{rank}", "a") as file:
        file.write(json.dumps(given) + "\n")
    step = 0
    while not os.path.exists(f"{notes}/go"):
        step += 1
        sys.stdout.write(f"step {step} loss 0.5\n")
        trouble(f"{notes}/do-{rank}")
        time.sleep(0.05)


def trouble(path):
    if not os.path.exists(path):
        return
    with open(path) as file:
        what, _, rest = file.read().partition(" ")
    os.unlink(path)
    if what == "raise":
        raise RuntimeError(rest)
    if what == "exit":
        sys.exit(int(rest))
    if what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


if "RANK" in os.environ:
    train()
else:
    launch(int(sys.argv[1]))
