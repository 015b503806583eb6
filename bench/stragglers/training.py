"""The training of the straggler bench: each step is real work on one core, then gradients are summed over gloo.

    torchrun --standalone --nproc-per-node 4 bench/stragglers/training.py --folder F --steps 80 --work-s 0.05

How much a step computes is settled once, on rank 0, as a number of products of matrices: from then on all ranks have
the same work, however fast their processors are. `--slow RANK:STEP:SHARE` gives one rank more of it from a step on.
`--sums`: see `step_by_sums`. Every step goes with its wall-clock time to `events.<rank>.jsonl`.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[2]))  # torchrun starts it by its path

from bench.job.training import Events, step_by_sums

SIZE, FEATURES = 160, 64
LEARNING_RATE = 0.01


def main() -> None:
    options = read_options()
    rank = int(os.environ["RANK"])
    events = Events(options.folder, rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES))
    model: nn.Module = network if options.sums else DistributedDataParallel(network)
    optimizer = None if options.sums else torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    products = settled(options.work_s)
    events.tell("imported", step=products)
    slow_rank, slow_step, share = options.slow
    for step in range(options.steps):
        begun_s, ran_s = time.perf_counter(), time.thread_time()
        more = 1.0 + share if rank == slow_rank and step >= slow_step else 1.0
        work(round(products * more))
        model.zero_grad(set_to_none=True)
        loss = model(torch.randn(16, FEATURES)).square().mean()
        loss.backward()
        if optimizer is None:
            step_by_sums(network, LEARNING_RATE)
        else:
            optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        ran_s = time.thread_time() - ran_s  # however many want the processor
        events.tell("step", step=step, took_s=time.perf_counter() - begun_s, worked_s=ran_s)
        if rank == 0:
            print(f"step {step}/{options.steps} loss {mean.item():.6f}", flush=True)
    dist.barrier()  # a rank that leaves while gloo still frees its last operation can hang in its end
    dist.destroy_process_group()


def settled(work_s: float) -> int:
    """How many products take so long of rank 0's processor time, the same number on all ranks."""
    begun_s = time.thread_time()
    work(20)
    one_s = (time.thread_time() - begun_s) / 20
    number = torch.tensor([max(1, round(work_s / one_s))])
    dist.broadcast(number, src=0)
    return int(number.item())


def work(products: int) -> None:
    matrix = torch.eye(SIZE)
    for _ in range(products):
        matrix = matrix @ matrix


def slowed(text: str) -> tuple[int, int, float]:
    rank, step, share = text.split(":")
    return int(rank), int(step), float(share)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--work-s", type=float, default=0.05)
    parser.add_argument("--sums", action="store_true", help="without DistributedDataParallel and optimizer")
    parser.add_argument("--slow", type=slowed, default=(-1, 0, 0.0), metavar="RANK:STEP:SHARE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
