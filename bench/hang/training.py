"""The training that the hang bench runs: real collectives over gloo, with one fault or one long healthy pause.

    torchrun --standalone --nproc-per-node 4 bench/hang/training.py --folder F --kind lock --at 40 --ranks 2

It knows nothing of who launched it. When the fault strikes goes with its wall-clock time to `events.<rank>.jsonl`.
A step is a list of operations; a fault of the kind that breaks their agreement edits the list of its own rank.

`--shape ddp`: DistributedDataParallel on the default group, then a metric on it and one on a second group.
`--shape groups`: explicit all_reduces on tensor-parallel pairs, on data-parallel groups across them, and on all.
`--shape sums`: each gradient is summed by one all_reduce on the default group, without DistributedDataParallel and optimizer.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

sys.path.insert(0, str(Path(__file__).parents[2]))  # torchrun starts it by its path

from bench.hang import faults as plants
from bench.job.training import Events, step_by_sums

FEATURES, HIDDEN, CLASSES, BATCH = 64, 128, 10, 16
LEARNING_RATE = 0.01
TENSOR_PARALLEL = 2
COMPUTE_SHARE = 0.3  # of a step; the rest is waited, as a rank waits for its device
STEPS_AFTER_JOIN = 30


class Operation(NamedTuple):
    """One collective of a step. `group`: a name in `Job.groups`; `kind`: model, all_reduce, broadcast."""

    group: str
    kind: str = "all_reduce"
    size: int = 1
    dtype: torch.dtype = torch.float32


class Job:
    """What every step needs."""

    def __init__(self, options: argparse.Namespace, events: Events) -> None:
        self.options, self.events = options, events
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(0)
        self.network: nn.Module = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)
        )
        self.optimizer = None
        if options.shape != "sums":
            self.optimizer = torch.optim.SGD(self.network.parameters(), lr=LEARNING_RATE)
        self.groups = {"all": dist.group.WORLD}
        self.usual: list[Operation] = []
        self.loss = float("nan")
        if options.shape == "ddp":
            self._set_up_ddp()
        elif options.shape == "groups":
            self._set_up_groups()
        else:
            self.usual = [Operation("all", "model"), Operation("all", size=8)]

    def _set_up_ddp(self) -> None:
        self.groups["metrics"] = dist.new_group(list(range(self.world)))
        model = self.network
        if self.options.kind == "compile":
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(
                self.options.folder / "inductor"
            )  # nothing is known yet
            model = torch.compile(model)
        self.network = DistributedDataParallel(model)
        self.usual = [Operation("all", "model"), Operation("all", size=8), Operation("metrics", size=4)]

    def _set_up_groups(self) -> None:
        width = TENSOR_PARALLEL
        pairs = [list(range(first, first + width)) for first in range(0, self.world, width)]
        across = [list(range(first, self.world, width)) for first in range(width)]
        for name, all_ranks in (("tp", pairs), ("dp", across)):
            for ranks in all_ranks:
                group = dist.new_group(ranks)
                if self.rank in ranks:
                    self.groups[name] = group
        collectives = [Operation("tp", size=2048), Operation("dp", size=8192), Operation("all", size=8)]
        self.usual = [Operation("", "model"), *collectives]  # which is local here

    def hits(self) -> bool:
        return self.rank in self.options.ranks


def main() -> None:
    options = read_options()
    rank = int(os.environ["RANK"])
    events = Events(options.folder, rank)
    events.tell("imported", master_port=int(os.environ["MASTER_PORT"]))
    torch.set_num_threads(1)
    if options.kind == "start-long":
        plants.tell_struck(events, options, 0)
        plants.compute_for(options.seconds)
    dist.init_process_group("gloo")
    job = Job(options, events)
    if options.kind == "join":
        train_with_join(job)
    else:
        train(job)
    dist.barrier()  # a rank that leaves while gloo still frees its last operation can hang in its end
    events.tell("done", step=options.steps)
    dist.destroy_process_group()


def train(job: Job) -> None:
    options = job.options
    batches = iter(loader(job))
    for step in range(options.steps):
        begun_s = time.perf_counter()
        struck = step == options.at
        if struck and (job.hits() or options.kind in plants.IN_ALL_RANKS):
            plants.tell_struck(job.events, options, step)
        batch = next(batches)
        operations = plants.edited(job, step, job.usual) if struck and job.hits() else job.usual
        if operations is None:  # this rank's data has ended
            break
        for operation in operations:
            carry_out(job, operation, batch)
        if struck:
            plants.suffer(job)
        pass_the_rest(job, begun_s)
        say(job, step)


def pass_the_rest(job: Job, begun_s: float) -> None:
    """Computes for its share of a step and waits for the rest of it."""
    step_s = job.options.step_s
    if job.options.kind == "slow-rank" and job.hits():
        step_s *= 3.0
    plants.compute_for(COMPUTE_SHARE * step_s - (time.perf_counter() - begun_s))
    time.sleep(max(0.0, step_s - (time.perf_counter() - begun_s)))


def say(job: Job, step: int) -> None:
    options = job.options
    quiet = options.kind == "quiet-log" and step > options.at
    if step % options.log_every == 0 and not quiet and (job.rank == 0 or options.all_say):
        print(f"step {step}/{options.steps} loss {job.loss:.6f}", flush=True)


def carry_out(job: Job, operation: Operation, batch: torch.Tensor) -> None:
    group = job.groups.get(operation.group)
    tensor = torch.ones(operation.size, dtype=operation.dtype)
    match operation.kind:
        case "model":
            job.loss = one_pass(job, batch)
        case "all_reduce":
            dist.all_reduce(tensor, group=group)
        case "broadcast":
            dist.broadcast(tensor, group=group, group_src=0)
        case "recv":
            dist.recv(tensor, src=(job.rank + 1) % job.world)


def one_pass(job: Job, batch: torch.Tensor) -> float:
    job.network.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(job.network(batch), batch[:, :CLASSES].argmax(dim=1))
    loss.backward()
    if job.optimizer is None:
        step_by_sums(job.network, LEARNING_RATE)
    else:
        job.optimizer.step()
    return float(loss.item())


def train_with_join(job: Job) -> None:
    """Ranks with unequal numbers of batches, joined as PyTorch means them to be: the early ones shadow the rest."""
    network = job.network
    assert isinstance(network, DistributedDataParallel), "join needs --shape ddp"
    few = job.options.steps - (STEPS_AFTER_JOIN if job.hits() else 0)
    batches = iter(loader(job))
    with Join([network]):
        for step in range(few):
            begun_s = time.perf_counter()
            job.loss = one_pass(job, next(batches))
            pass_the_rest(job, begun_s)
            say(job, step)
        if job.hits():
            plants.tell_struck(job.events, job.options, few)


# Data ----------------------------------------------------------------------------------------------------


class Batches(IterableDataset[torch.Tensor]):
    """Endless; the one with number `at` takes what `plants.before_batch` says."""

    def __init__(self, options: argparse.Namespace, rank: int) -> None:
        self.options, self.rank = options, rank

    def __iter__(self) -> Iterator[torch.Tensor]:
        number = 0
        dice = torch.Generator().manual_seed(self.rank)
        while True:
            if self.options.kind in plants.IN_LOADER and self.rank in self.options.ranks:
                plants.before_batch(self.options, number)
            yield torch.randn(BATCH, FEATURES, generator=dice)
            number += 1


def loader(job: Job) -> DataLoader[torch.Tensor] | Batches:
    """With a worker process where the kind is about loading; else the batches come out of thin air."""
    batches = Batches(job.options, job.rank)
    if job.options.kind in plants.IN_LOADER:
        return DataLoader(batches, batch_size=None, num_workers=1)
    return batches


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--shape", choices=("ddp", "groups", "sums"), default="groups")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--kind", default="none", help=f"one of {', '.join(plants.KINDS)}")
    parser.add_argument("--at", type=int, default=40, help="the step in which it strikes")
    parser.add_argument("--ranks", type=numbers, default=(), help="those it strikes, as in 1,3")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long a healthy pause takes")
    parser.add_argument("--log-every", type=int, default=1)
    parser.add_argument("--all-say", action="store_true", help="every rank prints its steps")
    parser.add_argument("--disk", type=Path, help="a folder on the file system that frozen-disk freezes")
    options = parser.parse_args()
    if options.kind not in plants.KINDS:
        sys.exit(f"--kind {options.kind} is not known; there are {', '.join(plants.KINDS)}")
    return options


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


if __name__ == "__main__":
    main()
