"""What goes wrong in the hang bench's training, and what only looks so: each kind by its name.

Everything here is the real thing: a lock that is held, a FIFO nobody writes to, a file system that is frozen.
"""

import argparse
import ctypes
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from training import Events

    from bench.hang.training import Job, Operation

FOREVER_S = 10**6
CHUNK_BYTES = 8 << 20
CHUNKS_IN_FILE = 16
WRITE_PAUSE_S = 0.1
EVALUATION_BATCH = 256
SUMMED_FIRST = 10**7
BATCH_PARTS = 4  # of a slow epoch: so many batches take long

# They strike while a batch is loaded, in the loader's own process.
IN_LOADER = ("loader-fifo", "loader-slow")
# These change what a rank does in the collectives of one step.
EDITED = ("skip", "operation", "size", "dtype", "order", "uneven", "recv")
IN_ALL_RANKS = ("evaluate-all", "pause-all", "first-step-long", "compile", "quiet-log", "loader-slow")


def tell_struck(events: "Events", options: argparse.Namespace, step: int) -> None:
    """The moment from which a verdict's time is measured."""
    events.tell("struck", step=step, fault=options.kind)


# Operations that no longer agree -------------------------------------------------------------------------


def edited(job: "Job", step: int, usual: "list[Operation]") -> "list[Operation] | None":
    """What the struck rank does in this step instead. None: it has no more batches."""
    kind = job.options.kind
    if kind not in EDITED or (kind == "uneven"):
        return None if kind == "uneven" else usual
    match kind:
        case "skip":
            return skip_by_exception(usual)
        case "order":
            return usual[::-1]
        case "operation":
            return [*usual[:-1], usual[-1]._replace(kind="broadcast")]
        case "size":
            return [*usual[:-1], usual[-1]._replace(size=usual[-1].size * 3)]
        case "dtype":
            return [*usual[:-1], usual[-1]._replace(dtype=torch.float64)]
        case _:
            return [usual[-1]._replace(group="all", kind="recv"), *usual]


def skip_by_exception(usual: "list[Operation]") -> "list[Operation]":
    """A bad sample, and an `except` that means well: the first operation of this step is left out."""
    try:
        raise ValueError("bad sample")
    except ValueError:
        first = next(number for number, one in enumerate(usual) if one.group)
        return usual[:first] + usual[first + 1 :]


# Faults --------------------------------------------------------------------------------------------------


def suffer(job: "Job") -> None:
    """In every rank, after the operations of the step in which it strikes."""
    kind = job.options.kind
    if kind in FAULTS and job.hits():
        FAULTS[kind](job)
    elif kind in PAUSES:
        PAUSES[kind](job)


def wait_for_a_lock_twice(job: "Job") -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hold_the_gil(job: "Job") -> None:
    """PyDLL, unlike CDLL, calls with the lock of the interpreter held."""
    ctypes.PyDLL(None).sleep(FOREVER_S)


def loop(job: "Job") -> None:
    number = 0
    while True:
        number += 1


def loop_in_c(job: "Job") -> None:
    """A pattern that backtracks without end: one call into C, the interpreter's lock held, a whole core."""
    re.match(r"(a+)+$", "a" * 60 + "b")


def exit_quietly(job: "Job") -> None:
    sys.exit(0)


def wait_for_a_child(job: "Job") -> None:
    subprocess.run(["sleep", str(FOREVER_S)], check=False)


def read_a_silent_socket(job: "Job") -> None:
    """A storage service that has accepted the connection and says nothing more."""
    ours, _theirs = socket.socketpair()
    ours.recv(1)


def write_to_a_frozen_disk(job: "Job") -> None:
    disk = job.options.disk
    subprocess.run(["fsfreeze", "--freeze", str(disk)], check=True)
    with (disk / "checkpoint.pt").open("wb") as file:
        file.write(bytes(CHUNK_BYTES))
        os.fsync(file.fileno())


FAULTS: "dict[str, Callable[[Job], object]]" = {
    "sigstop": lambda job: os.kill(os.getpid(), signal.SIGSTOP),
    "killed": lambda job: os.kill(os.getpid(), signal.SIGKILL),
    "sleep": lambda job: time.sleep(FOREVER_S),
    "lock": wait_for_a_lock_twice,
    "gil": hold_the_gil,
    "loop": loop,
    "loop-c": loop_in_c,
    "exit": exit_quietly,
    "child": wait_for_a_child,
    "socket": read_a_silent_socket,
    "frozen-disk": write_to_a_frozen_disk,
    "link": lambda job: None,  # the bench cuts it: it lies between two hosts
}


# Healthy pauses ------------------------------------------------------------------------------------------


def compute_for(seconds: float) -> None:
    """Arithmetic as an evaluation does it: many small products."""
    until_s = time.perf_counter() + seconds
    numbers = torch.ones(64, 64)
    while time.perf_counter() < until_s:
        numbers = (numbers @ numbers).clamp(max=1.0)


def checkpoint(job: "Job") -> None:
    """Rank by rank bytes reach the disk, and all others wait for them."""
    until_s = time.perf_counter() + job.options.seconds
    if job.hits():
        with (job.options.folder / "checkpoint.part").open("wb") as file:
            number = 0
            while time.perf_counter() < until_s:
                file.seek(number % CHUNKS_IN_FILE * CHUNK_BYTES)
                file.write(os.urandom(CHUNK_BYTES))
                os.fsync(file.fileno())
                time.sleep(WRITE_PAUSE_S)
                number += 1
    dist.barrier()


def evaluate(job: "Job") -> None:
    """Without a word, a collective or a byte of I/O: the model on batch after batch."""
    if job.hits() or job.options.kind == "evaluate-all":
        model = getattr(job.network, "module", job.network)
        until_s = time.perf_counter() + job.options.seconds
        with torch.no_grad():
            while time.perf_counter() < until_s:
                model(torch.randn(EVALUATION_BATCH, next(model.parameters()).shape[1]))
    dist.barrier()


def call_once(job: "Job") -> None:
    """One call into C that takes long, as packing a large object does: its Python stack never changes."""
    if job.hits():
        begun_s = time.perf_counter()
        sum(range(SUMMED_FIRST))
        sum(range(int(SUMMED_FIRST * job.options.seconds / (time.perf_counter() - begun_s))))
    dist.barrier()


def pause(job: "Job") -> None:
    if job.hits() or job.options.kind == "pause-all":
        time.sleep(job.options.seconds)


def work_in_a_child(job: "Job") -> None:
    """One rank has a program of its own do something for it: pack files, sync a folder."""
    if job.hits():
        script = f"import time, zlib\nend = time.time() + {job.options.seconds}\n"
        script += "while time.time() < end: zlib.compress(bytes(1 << 20), 9)"
        subprocess.run([sys.executable, "-S", "-c", script], check=True)
    dist.barrier()


def collect_garbage(job: "Job") -> None:
    if job.hits():
        kept = [[number] for number in range(2_000_000)]
        until_s = time.perf_counter() + job.options.seconds
        while time.perf_counter() < until_s:
            gc.collect()
        del kept


PAUSES: "dict[str, Callable[[Job], object]]" = {
    "checkpoint": checkpoint,
    "evaluate-one": evaluate,
    "evaluate-all": evaluate,
    "first-step-long": lambda job: compute_for(job.options.seconds),
    "pause-one": pause,
    "pause-all": pause,
    "one-call": call_once,
    "child-works": work_in_a_child,
    "garbage": collect_garbage,
    "debugger": lambda job: None,  # the bench attaches it
}
# Healthy all through, or by other means than a pause after a step.
OTHERS = ("none", "compile", "start-long", "join", "slow-rank", "quiet-log", "loader-slow")
KINDS = (*FAULTS, *EDITED, "loader-fifo", *PAUSES, *OTHERS)


# In the loader's process ---------------------------------------------------------------------------------


def before_batch(options: argparse.Namespace, number: int) -> None:
    if options.kind == "loader-fifo" and number == options.at:
        with dead_fifo(options.folder).open("rb") as file:  # nobody will ever write to it
            file.read(1)
    elif options.kind == "loader-slow" and options.at <= number < options.at + BATCH_PARTS:
        compute_for(options.seconds / BATCH_PARTS)


def dead_fifo(folder: Path) -> Path:
    path = folder / f"shard-{os.getpid()}.bin"
    os.mkfifo(path)
    return path
