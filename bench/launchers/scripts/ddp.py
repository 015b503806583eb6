"""A rank of PyTorch over gloo, whose launcher names it by whatever variables it has."""

import os

import torch
import torch.distributed as dist
from fault import STEPS, step


def first(*names: str, default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name)), default)


def train(rank: int, size: int) -> None:
    torch.set_num_threads(1)
    for number in range(STEPS):
        value = torch.tensor([float(number + rank)])
        dist.all_reduce(value)
        step(number, rank, size, value.item())


if __name__ == "__main__":
    rank = first("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", default=0)
    size = first("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS", default=1)
    url = "env://" if "TORCHELASTIC_RUN_ID" in os.environ else f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=size)
    train(rank, size)
    dist.destroy_process_group()
