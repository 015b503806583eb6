"""One fault at one step of one rank, in the first attempt alone; and the result by which a run is compared."""

import os
import signal
import threading
import time

STEPS, AT_STEP, STEP_S = 80, 30, 0.05


def step(number: int, rank: int, size: int, summed: float) -> None:
    """To be called after each step by every rank. `summed`: the sum over all ranks of number + rank."""
    time.sleep(STEP_S)
    if rank == 0:
        expected = size * number + size * (size - 1) / 2
        loss = 1 / (number + 1) if abs(summed - expected) < 1e-6 else float("nan")
        print(f"step {number} loss {loss:.4f}", flush=True)
        if number == STEPS - 1:
            print(f"RESULT {loss:.4f}", flush=True)
    if rank == size - 1 and os.environ.get("HOLDFAST_ATTEMPT", "1") == "1":
        event = os.environ.get("BENCH_EVENT", "")
        if number == AT_STEP:
            happen(event)
        if number >= AT_STEP and event == "slow":
            time.sleep(3 * STEP_S)
        if number >= AT_STEP and event == "sigterm":
            time.sleep(3 * STEP_S)  # the signal comes while it trains


def happen(event: str) -> None:
    if not event or event == "healthy":
        return
    with open(os.environ["BENCH_NOTE"], "w") as note:
        note.write(f"{time.time()}\n")
    if event == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if event == "sigstop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if event == "exit3":
        os._exit(3)
    if event == "exception":
        raise ValueError("bad batch 7")
    if event == "deadlock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
