"""Runs the training of bench/job with torchft's manager in each step. Started by its path, by torchft_job.py.

A replica group is one rank. The step and the batch are those of the other systems; only who takes part is torchft's.
"""

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2]))  # a launcher starts it by its path

from torchft import DistributedDataParallel, Manager, ProcessGroupGloo

from bench.faults.kinds import KINDS
from bench.faults.training import IN_RANK, rest_until_all_begin
from bench.job import training

GROUP, GROUPS = int(os.environ["REPLICA_GROUP_ID"]), int(os.environ["NUM_REPLICA_GROUPS"])
TIMEOUT = datetime.timedelta(seconds=10)
MEET_S, LOOK_S = 120.0, 0.05


def main() -> None:
    options = training.read_options()
    events = training.Events(options.folder, GROUP)
    events.tell("begun", training.BEGUN_S, master_port=int(os.environ["MASTER_PORT"]))
    events.tell("imported")
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Linear(training.FEATURES, training.HIDDEN),
        nn.ReLU(),
        nn.Linear(training.HIDDEN, training.CLASSES),
    )
    step, loss = train(options, network, events)
    if GROUP == 0:
        (options.folder / "result.json").write_text(json.dumps({"step": step, "loss": loss}))
    events.tell("done", step=step)


def train(options: argparse.Namespace, network: nn.Module, events: training.Events) -> tuple[int, float]:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def state() -> dict[str, object]:
        return {"network": network.state_dict(), "optimizer": optimizer.state_dict()}

    def load(saved: dict[str, dict[str, object]]) -> None:
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        use_async_quorum=False,
        timeout=TIMEOUT,
        quorum_timeout=datetime.timedelta(seconds=60),
        replica_id=f"replica_{GROUP}",
    )
    checkpoint = options.checkpoint or options.folder / "checkpoint.pt"
    loss = resume(checkpoint, manager, load)
    events.tell("met")
    meet(options.folder)
    model = DistributedDataParallel(manager, network)
    told = False
    while manager.current_step() < options.steps:
        begun_s = time.perf_counter()
        training.suffer(options, manager.current_step(), events)
        manager.start_quorum()  # a group that was away gets the others' state here
        if not told:
            events.tell("resumed", step=manager.current_step())
            told = True
        loss = training.one_step(model, optimizer, manager.current_step(), manager)
        step = manager.current_step()
        if step % options.checkpoint_every == 0 and GROUP == 0:
            save(checkpoint, manager, state(), loss)
        worked_s = time.perf_counter() - begun_s
        training.rest(options.step_s, worked_s)
        events.tell("step", step=step, took_s=time.perf_counter() - begun_s, worked_s=worked_s)
        if step % options.log_every == 0 and GROUP == 0:
            print(f"step {step}/{options.steps} loss {loss:.6f}", flush=True)
    manager.shutdown(wait=False)
    return manager.current_step(), loss


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, manager: Manager) -> float:
    dice = torch.Generator().manual_seed(step * GROUPS + GROUP)
    inputs = torch.randn(training.BATCH, training.FEATURES, generator=dice)
    labels = inputs[:, : training.CLASSES].argmax(dim=1)
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    if manager.should_commit():
        optimizer.step()
    return float(loss.item())


def meet(folder: Path) -> None:
    """Waits until every group has a manager: the first ones would train alone."""
    until_s = time.monotonic() + MEET_S
    while time.monotonic() < until_s:
        if sum(b'"met"' in path.read_bytes() for path in folder.glob("events.*.jsonl")) >= GROUPS:
            return
        time.sleep(LOOK_S)


def resume(path: Path, manager: Manager, load: Callable[[dict[str, dict[str, object]]], None]) -> float:
    if not path.exists():
        return float("nan")
    saved = torch.load(path, weights_only=True)
    load(saved)
    manager.load_state_dict(saved["manager"])
    return float(saved["loss"])


def save(path: Path, manager: Manager, state: dict[str, object], loss: float) -> None:
    part = path.with_suffix(".part")
    torch.save(state | {"manager": manager.state_dict(), "loss": loss}, part)
    part.replace(path)


if __name__ == "__main__":
    training.FAULTS.clear()
    training.FAULTS.update({kind.name: IN_RANK.get(kind.name, lambda: None) for kind in KINDS})
    training.dist = SimpleNamespace(get_rank=lambda: GROUP)  # of whom a fault is told
    training.one_step = one_step  # a fault may replace it
    training.rest = rest_until_all_begin
    main()
