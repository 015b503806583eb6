"""Trains a small network with two or more ranks on one device, over gloo, with one fault on request.

Arguments: FOLDER STEPS [FAULT]. The last rank has the fault at step FAULT_AT, once in the life of the job. What is
learned depends on step and rank alone. Rank 0 prints `step N loss X`, and at the end `RESULT X`. Without CUDA it runs on the CPU.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

from faults import FAULTS

FAULT_AT, CHECKPOINT_EVERY = 30, 10
SIZE, STEP_S = 512, 0.03


def main() -> None:
    folder, steps, fault = Path(sys.argv[1]), int(sys.argv[2]), "".join(sys.argv[3:4])
    dist.init_process_group(os.environ.get("BENCH_BACKEND", "gloo"))
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    weight = torch.zeros(SIZE, SIZE, dtype=torch.float64, device=device)
    step, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True)
        step, weight = saved["step"], saved["weight"].to(device)
    loss = float("nan")
    while step < steps:
        started_s = time.monotonic()
        if step == FAULT_AT and fault and rank == size - 1 and is_first_time(folder, fault):
            FAULTS[fault](device)
        loss = trained(weight, step * size + rank, device, size)
        step += 1
        if rank == 0:
            print(f"step {step} loss {loss:.9f}", flush=True)
            if step % CHECKPOINT_EVERY == 0:
                torch.save({"step": step, "weight": weight.cpu()}, folder / "checkpoint.part")
                (folder / "checkpoint.part").replace(checkpoint)
        time.sleep(max(0.0, STEP_S - (time.monotonic() - started_s)))
    dist.barrier()
    if rank == 0:
        print(f"RESULT {loss:.9f}", flush=True)
    dist.destroy_process_group()


def trained(weight: torch.Tensor, seed: int, device: torch.device, size: int) -> float:
    """One step of least squares. The gradient is averaged over all ranks. Returns the loss over all ranks."""
    dice = torch.Generator().manual_seed(seed)
    inputs = torch.randn(64, SIZE, generator=dice, dtype=torch.float64).to(device)
    wrong = inputs @ weight - inputs.flip(1)
    gradient = inputs.T @ wrong / len(inputs)
    loss = wrong.pow(2).mean()
    dist.all_reduce(gradient)  # of CUDA tensors: gloo copies them through the host
    dist.all_reduce(loss)
    weight -= 0.05 * gradient / size
    return float(loss.item()) / size


def is_first_time(folder: Path, fault: str) -> bool:
    try:
        with (folder / "fault").open("x") as note:
            note.write(f"{time.time()} {fault}\n")
    except FileExistsError:
        return False
    return True


if __name__ == "__main__":
    main()
