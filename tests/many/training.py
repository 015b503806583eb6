"""One worker of a training without arithmetic: its ranks take steps in lockstep over files, and so over any network.

    training.py RANKS

Each rank notes what it was given; rank 0 prints a step every 50 ms, of `$STEPS` if that is set. `$NOTES/go` ends it well. A rank that
fails takes the others of its worker with it, as torchrun has it.
"""

import os
import signal
import sys
import time

NAMES = (
    "HOLDFAST_JOB HOLDFAST_ATTEMPT HOLDFAST_NODE MA_SCHEDULE_CNT MA_PROC_START_CNT MASTER_ADDR MASTER_PORT "
    "NNODES NODE_RANK PET_NNODES PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT RANK WORLD_SIZE"
).split()
of_all = f"/{os.environ['STEPS']}" if "STEPS" in os.environ else ""
notes, attempt = os.environ["NOTES"], os.environ["HOLDFAST_ATTEMPT"]


def launch(count):
    first, world = int(os.environ["NODE_RANK"]) * count, int(os.environ["NNODES"]) * count
    ranks = [
        os.posix_spawn(
            sys.executable,
            [sys.executable, "-S", "-u", __file__],
            os.environ | {"RANK": str(first + k), "LOCAL_RANK": str(k), "WORLD_SIZE": str(world)},
        )
        for k in range(count)
    ]

    def end(number, frame):
        for rank in ranks:
            if code_of(rank) is None:
                os.kill(rank, signal.SIGTERM)
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    while any(code_of(rank) is None for rank in ranks):
        if any(map(code_of, ranks)):
            for rank in ranks:
                if code_of(rank) is None:
                    os.kill(rank, signal.SIGKILL)
        time.sleep(0.05)
    os._exit(1 if any(map(code_of, ranks)) else 0)


def code_of(rank):
    """None while it lives. It is left uncollected: of one that is collected only newer kernels tell others the code."""
    end = os.waitid(os.P_PID, rank, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    return None if end is None else end.si_status


def train():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with open(f"{notes}/given-{rank}", "a") as file:
        # By hand: hundreds of these processes start, and to import json is a third of it.
        given = ((name, os.environ.get(name)) for name in NAMES)
        pairs = (f'"{name}": null' if value is None else f'"{name}": "{value}"' for name, value in given)
        file.write("{" + ", ".join(pairs) + "}\n")
    step = 0
    while not os.path.exists(f"{notes}/go"):
        step += 1
        put(f"at-{attempt}-{rank}", step)
        for other in range(world):
            while at(other) < step and not os.path.exists(f"{notes}/go"):
                time.sleep(0.02)
        if rank == 0:
            sys.stdout.write(f"step {step}{of_all} loss 0.5\n")
        time.sleep(0.05)
    put(f"at-{attempt}-{rank}", 10**9)


def put(name, number):
    with open(f"{notes}/{name}.part", "w") as file:
        file.write(str(number))
    os.replace(f"{notes}/{name}.part", f"{notes}/{name}")


def at(other):
    try:
        with open(f"{notes}/at-{attempt}-{other}") as file:
            return int(file.read())
    except FileNotFoundError:
        return -1


if len(sys.argv) > 1:
    launch(int(sys.argv[1]))
else:
    train()
