"""Runs the training of bench/job with the faults that a rank does to itself. Started by its path, by a launcher."""

import ctypes
import importlib
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))  # a launcher starts it by its path

from bench.faults.kinds import KINDS
from bench.job import training

FOREVER_S, PAUSE_S = 10**6, 3.0
MORE_BYTES, PIECE_BYTES = 64 << 20, 16 << 20
SLOWER = 4


def hold_the_gil() -> None:
    """PyDLL, unlike CDLL, calls with the interpreter's lock held."""
    ctypes.PyDLL(None).sleep(FOREVER_S)


def cut_connections() -> None:
    """Shuts down the TCP connections of this rank to other ranks; the one to the launcher's store stays."""
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        try:
            with socket.socket(fileno=os.dup(number)) as one:
                if one.type == socket.SOCK_STREAM and one.family in (socket.AF_INET, socket.AF_INET6):
                    ends = {one.getpeername()[1], one.getsockname()[1]}
                    if int(os.environ["MASTER_PORT"]) not in ends:
                        one.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # no socket, or not connected


def allocate_beyond_the_limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE_BYTES, used + MORE_BYTES))
    activations = []
    while True:
        activations.append(torch.ones(PIECE_BYTES // 8, dtype=torch.float64))


def open_beyond_the_limit() -> None:
    limit = len(os.listdir("/proc/self/fd")) + 16
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    opened = []
    while True:
        opened.append(open("/proc/self/status"))  # they stay open: this is the leak


def read_a_cut_record() -> None:
    json.loads('{"tokens": [12, 7, 301, 4')


def read_a_missing_shard() -> None:
    (training.read_options().folder / "shard-00017.bin").read_bytes()


def multiply_what_does_not_fit() -> None:
    torch.ones(16, 128) @ torch.ones(64, 10)


def import_what_is_missing() -> None:
    importlib.import_module("tokenizer_extras")


def become_slower() -> None:
    usual, more_s = training.one_step, SLOWER * training.read_options().step_s

    def slower(*given: object) -> float:
        time.sleep(more_s)
        return usual(*given)  # type: ignore[arg-type]

    training.one_step = slower


def rest_until_all_begin(step_s: float, worked_s: float) -> None:
    """Sleeps until the next step of all ranks: each begins where the monotonic clock has a multiple of the step's time.

    Ranks that each rest for the remainder of their own step keep the distance that one pause put between them: the paused
    rank would come later than the others at every step from then on, as a slow one does. Steps without a time of their
    own have no rest.
    """
    if step_s > 0.0:
        time.sleep(step_s - time.monotonic() % step_s)


IN_RANK: dict[str, Callable[[], None]] = {
    "sigkill": training.FAULTS["kill9"],
    "sigsegv": training.FAULTS["segv"],
    "sigterm": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "exit7": training.FAULTS["exit7"],
    "sigstop": training.FAULTS["sigstop"],
    "lock": training.FAULTS["deadlock"],
    "sleep": lambda: time.sleep(FOREVER_S),
    "gil": hold_the_gil,
    "cut": cut_connections,
    "allocation": allocate_beyond_the_limit,
    "files": open_beyond_the_limit,
    "record": read_a_cut_record,
    "shard": read_a_missing_shard,
    "shape": multiply_what_does_not_fit,
    "import": import_what_is_missing,
    "slow-rank": become_slower,
    "pause": lambda: time.sleep(PAUSE_S),
    "launcher": training.FAULTS["kill-launcher"],
}

if __name__ == "__main__":
    # What the benchmark does from outside only needs its moment told.
    training.FAULTS.clear()
    training.FAULTS.update({kind.name: IN_RANK.get(kind.name, lambda: None) for kind in KINDS})
    training.rest = rest_until_all_begin
    training.main()
