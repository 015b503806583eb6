"""The training that the benches run: small real DDP over gloo, resuming from checkpoints, with faults on request.

It knows nothing of who launched it. Each moment worth measuring goes with its wall-clock time to
`events.<rank>.jsonl` in its folder. What is learned depends on step, rank and number of ranks alone, so a
run that was broken and resumed ends with the loss of one that never was.
"""

import argparse
import json
import os
import signal
import threading
import time
from pathlib import Path

BEGUN_S = time.time()

import torch  # noqa: E402  its import is one of the moments measured
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

LOOKS_EVERY = 10  # steps
FEATURES, HIDDEN, CLASSES, BATCH = 128, 256, 10, 16
LEARNING_RATE = 0.01
COUNTERS = ("HOLDFAST_ATTEMPT", "MA_SCHEDULE_CNT", "MA_PROC_START_CNT")
LAUNCHERS = (b"torchrun", b"torch.distributed.run", b"ft_launcher", b"dlrover-run")


class Events:
    """Written line by line, so that a kill loses none but the one being written."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._file = (folder / f"events.{rank}.jsonl").open("a", buffering=1)
        self._rank = rank

    def tell(self, kind: str, at_s: float | None = None, **more: object) -> None:
        moment = {"at_s": time.time() if at_s is None else at_s, "kind": kind, "rank": self._rank}
        self._file.write(json.dumps(moment | {"pid": os.getpid()} | more) + "\n")


def main() -> None:
    options = read_options()
    events = Events(options.folder, int(os.environ["RANK"]))
    counted = {key.lower(): int(os.environ.get(key, "0")) for key in COUNTERS}
    events.tell("begun", BEGUN_S, master_port=int(os.environ["MASTER_PORT"]), **counted)
    events.tell("imported")
    torch.set_num_threads(1)
    # The first step after a start sums over ranks in another order than later ones: in single precision, a run that was
    # resumed a dozen times had drifted by 6e-4 from one that never was, after 2,770 steps.
    torch.set_default_dtype(torch.float64)
    dist.init_process_group("gloo")
    events.tell("met")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    step, loss = train(options, network, events)
    dist.barrier()  # a rank that leaves while gloo still frees its last operation can hang in its end
    if dist.get_rank() == 0:
        (options.folder / "result.json").write_text(json.dumps({"step": step, "loss": loss}))
    events.tell("done", step=step)
    dist.destroy_process_group()


def train(options: argparse.Namespace, network: nn.Module, events: Events) -> tuple[int, float]:
    model = network if options.sums else DistributedDataParallel(network)
    optimizer = None if options.sums else torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    checkpoint = options.checkpoint or options.folder / "checkpoint.pt"
    step, loss = resume(checkpoint, network, optimizer)
    events.tell("resumed", step=step)
    while step < last_step(options, step):
        begun_s = time.perf_counter()
        suffer(options, step, events)
        loss = one_step(model, optimizer, step)
        step += 1
        if step % options.checkpoint_every == 0 and dist.get_rank() == 0:
            save(checkpoint, network, optimizer, step, loss, options.checkpoint_mib)
        worked_s = time.perf_counter() - begun_s
        rest(options.step_s, worked_s)
        events.tell("step", step=step, took_s=time.perf_counter() - begun_s, worked_s=worked_s)
        if step % options.log_every == 0 and dist.get_rank() == 0:
            print(f"step {step}/{options.steps} loss {loss:.6f}", flush=True)
    return step, loss


def rest(step_s: float, worked_s: float) -> None:
    """Sleeps for the rest of a step."""
    time.sleep(max(0.0, step_s - worked_s))


def last_step(options: argparse.Namespace, step: int) -> int:
    """`last-step` in the folder, written well before that step is reached, ends the training there."""
    if step % LOOKS_EVERY == 0 and (options.folder / "last-step").exists():
        options.steps = int((options.folder / "last-step").read_text())
    return int(options.steps)


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer | None, step: int) -> float:
    """Gives back the loss over all ranks. Without an optimizer: see `step_by_sums`."""
    dice = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    inputs = torch.randn(BATCH, FEATURES, generator=dice)
    labels = inputs[:, :CLASSES].argmax(dim=1)
    model.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    if optimizer is None:
        step_by_sums(model, LEARNING_RATE)
    else:
        optimizer.step()
    return float(loss.item())


@torch.no_grad()
def step_by_sums(network: nn.Module, rate: float) -> None:
    """A step of gradient descent with the mean of all ranks' gradients, by one all_reduce for each tensor.

    DistributedDataParallel and optimizers import torch._dynamo, which is half of a rank's start. This does without.
    """
    for weights in network.parameters():
        assert weights.grad is not None, "each tensor takes part in the loss"
        dist.all_reduce(weights.grad)
        weights -= rate / dist.get_world_size() * weights.grad


def resume(path: Path, network: nn.Module, optimizer: torch.optim.Optimizer | None) -> tuple[int, float]:
    if not path.exists():
        return 0, float("nan")
    saved = torch.load(path, weights_only=True)
    network.load_state_dict(saved["network"])
    if optimizer is not None:
        optimizer.load_state_dict(saved["optimizer"])
    return saved["step"], saved["loss"]


def save(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    step: int,
    loss: float,
    ballast_mib: int = 0,
) -> None:
    part = path.with_suffix(".part")
    state = {"network": network.state_dict(), "optimizer": optimizer.state_dict() if optimizer else {}}
    if ballast_mib:  # as large as the checkpoint of a larger model
        state["ballast"] = torch.full((ballast_mib << 20,), step % 256, dtype=torch.uint8)
    torch.save(state | {"step": step, "loss": loss}, part)
    part.replace(path)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--checkpoint", type=Path, help="file; default: checkpoint.pt in the folder")
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--checkpoint-mib", type=int, default=0, help="so much larger")
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--sums", action="store_true", help="without DistributedDataParallel: starts faster")
    parser.add_argument("--fault", action="append", default=[], metavar="STEP:RANK:KIND")
    return parser.parse_args()


# Faults --------------------------------------------------------------------------------------------------


def suffer(options: argparse.Namespace, step: int, events: Events) -> None:
    for fault in options.fault:
        at_step, rank, kind = fault.split(":")
        if int(at_step) == step and int(rank) == dist.get_rank() and is_first_time(options.folder, fault):
            events.tell("struck", step=step, fault=fault)
            if kind == "wait":
                wait_and_die(options.folder)
            FAULTS[kind]()


def is_first_time(folder: Path, fault: str) -> bool:
    """Each fault strikes once in the life of the job; the file tells the bench that it has."""
    try:
        (folder / f"struck-{fault.replace(':', '-')}").open("x").close()
    except FileExistsError:
        return False
    return True


def raise_in_a_batch() -> None:
    raise ValueError("bad record in the batch")


def wait_for_a_lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def exit_with_7() -> None:
    raise SystemExit(7)


def wait_and_die(folder: Path) -> None:
    """Until the bench has done its part: a file `go-on` in the folder."""
    while not (folder / "go-on").exists():
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_the_launcher() -> None:
    """Only a parent that is seen to be a launcher: an orphan's parent is somebody else."""
    parent = os.getppid()
    words = Path(f"/proc/{parent}/cmdline").read_bytes()
    assert parent > 1 and any(name in words for name in LAUNCHERS), f"the parent is no launcher: {words!r}"
    os.kill(parent, signal.SIGKILL)


FAULTS = {
    "kill9": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "sigstop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "exception": raise_in_a_batch,
    "deadlock": wait_for_a_lock_twice,
    "exit7": exit_with_7,
    "kill-launcher": kill_the_launcher,
    "kill-holdfast": lambda: None,  # the bench does it: the training does not know who watches it
}

if __name__ == "__main__":
    main()
