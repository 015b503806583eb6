"""The training of `warm_soak.py`: two ranks or one over gloo, with a checkpoint at each step and one fault in each attempt.

It prints what its start has given it, learns by a fixed rule, and ends after the last fault. `faults.json` in the folder: for
each attempt, after how many of its steps the last rank fails, and how.
"""

import json
import locale
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

FOLDER = Path(os.environ["WARM_FOLDER"])
STEPS_MIN = 40
STEP_S = 0.005


def setting() -> dict[str, object]:
    """What a script can see of how it was started."""
    return {
        "argv": sys.argv[1:],
        "path": [sys.path[0] == str(Path(__file__).parent), len(sys.path)],
        "flags": repr(sys.flags),
        "locale": [locale.setlocale(locale.LC_ALL), time.tzname],
        "folder": os.getcwd() == str(FOLDER),
        "signals": [
            repr(signal.getsignal(number)).partition(" at 0x")[0]
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        ],
        "limits": [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
        "threads": torch.get_num_threads(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def train(rank: int, size: int) -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        meeting = (
            f"file://{FOLDER}/meet-{os.getppid()}" if size > 1 else f"file://{FOLDER}/meet-{os.getpid()}"
        )
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    events = (FOLDER / f"events.{rank}").open("a", buffering=1)
    events.write(f"begun {json.dumps(setting())}\n")
    if Path(f"/proc/{os.getppid()}/comm").read_text().strip() == "holdfast-zygote":
        events.write("forked\n")
    faults = json.loads((FOLDER / "faults.json").read_text())
    count = FOLDER / f"count.{rank}"
    attempt = int(count.read_text()) if count.exists() else 0
    count.write_text(str(attempt + 1))
    step, loss = resume()
    for done in range(10**9):
        if attempt < len(faults) and done == faults[attempt][0]:
            dist.barrier()
            if rank == size - 1:
                fail(faults[attempt][1])
        if attempt >= len(faults) and done >= STEPS_MIN:
            break
        value = torch.tensor([1.0 / (1 + rank)], dtype=torch.float64)
        dist.all_reduce(value)
        step, loss = step + 1, float(value)
        if rank == 0:
            save(step, loss)
            print(f"step {step} loss {loss:.6f}", flush=True)
        events.write(f"step {step}\n")
        time.sleep(STEP_S)
    if rank == 0:
        (FOLDER / "loss").write_text(f"{loss:.12f}")
    dist.barrier()
    dist.destroy_process_group()


def resume() -> tuple[int, float]:
    path = FOLDER / "checkpoint.json"
    if not path.exists():
        return 0, 0.0
    step, loss = json.loads(path.read_text())
    return int(step), float(loss)


def save(step: int, loss: float) -> None:
    part = FOLDER / "checkpoint.part"
    part.write_text(json.dumps([step, loss]))
    part.replace(FOLDER / "checkpoint.json")


def fail(how: str) -> None:
    if how == "kill9":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "exit3":
        os._exit(3)
    raise ValueError("bad record in the batch")


if __name__ == "__main__":
    if "--spawn" in sys.argv:
        mp.spawn(train, args=(2,), nprocs=2)
    elif "--alone" in sys.argv:
        train(0, 1)
    else:
        train(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
