"""Two ranks by torch.multiprocessing.spawn or by multiprocessing.Process, named by arguments or by variables."""

import multiprocessing
import os
import sys

import torch.distributed as dist
import torch.multiprocessing as mp
from ddp import train


def work(rank: int, size: int, way: str) -> None:
    if way == "environment":
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
        dist.init_process_group("gloo")
    else:
        url = f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
        dist.init_process_group("gloo", init_method=url, rank=rank, world_size=size)
    train(rank, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    how, way = sys.argv[1:]
    if how == "spawn":
        mp.spawn(work, (2, way), nprocs=2)
    else:
        context = multiprocessing.get_context("spawn")
        ranks = [context.Process(target=work, args=(rank, 2, way)) for rank in range(2)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
        sys.exit(max(abs(one.exitcode or 0) for one in ranks))
