"""Trains a small model with DDP for the demo, resuming from checkpoints, with injected faults.

It runs under torchrun and uses nothing of Holdfast. Data, model and order of steps depend on the step number
alone, so a run that is interrupted and resumed ends with the same loss as an uninterrupted one.
"""

import argparse
import json
import os
import signal
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, CLASSES, BATCH = 64, 10, 32


def main() -> None:
    options = read_options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.set_default_dtype(
        torch.float64
    )  # sums come in another order after a restart: in float32 the loss would drift
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, CLASSES))
    teacher = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(7))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    checkpoint = options.folder / "checkpoint.pt"
    step = resume(checkpoint, network, optimizer)
    loss = torch.tensor(float("nan"))
    while step < options.steps:
        begun_s = time.monotonic()
        suffer(options, step)
        inputs, labels = batch(step, teacher)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        if step % options.checkpoint_every == 0 and dist.get_rank() == 0:
            save(checkpoint, network, optimizer, step)
        time.sleep(max(0.0, options.step_s - (time.monotonic() - begun_s)))
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step}/{options.steps} loss {loss.item():.6f}", flush=True)
    dist.barrier()  # a rank that leaves while gloo still frees its last operation can hang in its end
    if dist.get_rank() == 0:
        (options.folder / options.result).write_text(json.dumps({"step": step, "loss": loss.item()}))
    dist.destroy_process_group()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--result", default="result.json")
    parser.add_argument("--fault", action="append", default=[], metavar="STEP:RANK:KIND")
    return parser.parse_args()


def batch(step: int, teacher: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns this rank's batch at a step: inputs (32, 64), labels (32,)."""
    dice = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(BATCH, FEATURES, generator=dice)
    return inputs, (inputs @ teacher).argmax(dim=1)


def resume(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    network.load_state_dict(saved["network"])
    optimizer.load_state_dict(saved["optimizer"])
    step: int = saved["step"]
    if dist.get_rank() == 0:
        print(f"resumed at step {step}", flush=True)
        with (path.parent / "resumed").open("a") as file:
            file.write(f"{step}\n")
    return step


def save(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    part = path.with_suffix(".part")
    torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, part)
    part.replace(path)


# Faults --------------------------------------------------------------------------------------------------


def suffer(options: argparse.Namespace, step: int) -> None:
    for fault in options.fault:
        at_step, rank, kind = fault.split(":")
        if int(at_step) == step and int(rank) == dist.get_rank() and is_first_time(options.folder, fault):
            FAULTS[kind]()


def is_first_time(folder: Path, fault: str) -> bool:
    """Returns True the first time: each fault is injected once in the life of the job; a file records it."""
    try:
        with (folder / f"fault-{fault.replace(':', '-')}").open("x") as file:
            file.write(json.dumps({"fault": fault, "time": time.time()}))
    except FileExistsError:
        return False
    return True


def raise_in_a_batch() -> None:
    raise ValueError("bad record in the batch")


def wait_for_a_lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


FAULTS = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exception": raise_in_a_batch,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "deadlock": wait_for_a_lock_twice,
}

if __name__ == "__main__":
    main()
