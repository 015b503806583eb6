"""Provides helpers for benchmarks: imports by name, rates, times on a device, and the share of CPU time
received.
"""

from __future__ import annotations

import importlib
import os
import statistics
import sys
import time
from typing import Any

SEED = 20_080_417
REPEATS_MIN = 3


class Unable(Exception):
    """Raised when the benchmark cannot run on this machine. The message says why."""


def library(name: str) -> Any:
    """Imports a module by name and returns it. Raises Unable if it cannot be imported."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Unable(f"{name} cannot be imported by {sys.executable}: {error}") from error


def rates(amount: float, times_s: list[float]) -> list[float]:
    """Returns four rates (amount per second) from measured times: lower quartile, median, upper quartile,
    and highest.
    """
    found = sorted(amount / max(one_s, 1e-9) for one_s in times_s)
    return [found[len(found) // 4], statistics.median(found), found[len(found) * 3 // 4], found[-1]]


class Laps:
    """Stopwatch for repeated operations on a device; uses CUDA events if the device has them.

    `seconds()` waits for the device.
    """

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        self._device = device
        self._is_gpu = device.startswith("cuda")
        self._marks: list[tuple[Any, Any]] = []

    def begin(self) -> None:
        self._marks.append((self._now(), None))

    def end(self) -> None:
        self._marks[-1] = (self._marks[-1][0], self._now())

    def seconds(self) -> list[float]:
        if not self._is_gpu:
            return [end - begin for begin, end in self._marks]
        self._torch.cuda.synchronize(self._device)
        return [begin.elapsed_time(end) / 1000 for begin, end in self._marks]

    def _now(self) -> Any:
        if not self._is_gpu:
            return time.perf_counter()
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self._device))
        return event


class Shared:
    """Measures which share of the CPU time that our threads needed they received; less than 1 means that
    others competed.

    It is computed from the time that threads waited in run queues. `threads`: their number, for a kernel that
    does not report this time.

    source: Documentation/scheduler/sched-stats.rst, /proc/PID/task/TID/schedstat: ns run, ns waited, slices
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._began_s, self._used_s = time.perf_counter(), time.process_time()
        self._before = _run_and_waited()

    def had(self) -> float:
        now = _run_and_waited()
        if self._before and now:
            ran, waited = now[0] - self._before[0], now[1] - self._before[1]
            return ran / (ran + waited) if ran > 0 and waited > 0 else 1.0
        wanted_s = (time.perf_counter() - self._began_s) * self._threads
        return min(1.0, (time.process_time() - self._used_s) / wanted_s) if wanted_s > 0 else 1.0


def _run_and_waited() -> tuple[int, int] | None:
    """Returns nanoseconds that all threads of this process ran, and waited for a CPU; None if the kernel
    does not count.
    """
    ran = waited = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                words = file.read().split()
            ran, waited = ran + int(words[0]), waited + int(words[1])
    except (OSError, ValueError, IndexError):
        return None
    return ran, waited


def take(torch: Any, device: str, need_bytes: int) -> None:
    """Makes a device the current one of torch.

    Raises Unable if it has fewer than `need_bytes` of free memory.
    """
    if not device.startswith("cuda"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return
    torch.cuda.set_device(device)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    if free_bytes < need_bytes:
        raise Unable(
            f"{free_bytes / 2**30:.1f} GiB of GPU memory are free, {need_bytes / 2**30:.1f} are needed"
        )
