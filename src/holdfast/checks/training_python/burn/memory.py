"""Measures the memory bandwidth of a device, and of copies between the host and the device."""

from __future__ import annotations

import os
import random
import time
from typing import Any, Sequence  # noqa: UP035 - as Python 3.8 has it

from .devices import REPEATS_MIN, SEED, Laps, Shared, Unable, library, rates, take

BLOCK = 1 << 16  # elements that numpy takes at once: they stay in a core's own cache


def triad(device: str, seconds: float, bytes_each: int) -> dict[str, Any]:
    """Measures memory bandwidth with a = b + 3 c over arrays far larger than the caches.

    Each element has 8 bytes and counts as 24 bytes of traffic, as in STREAM.

    source: J. McCalpin, STREAM, stream.c: "triad"
    """
    try:
        torch = library("torch")
    except Unable:
        if device != "cpu":
            raise
        return _numpy_triad(seconds, bytes_each)
    take(torch, device, 3 * bytes_each + (1 << 28))
    count = bytes_each // 8
    first, second, third = (torch.full((count,), value, dtype=torch.float64, device=device) for value in (0.0, 1.0, 2.0))  # fmt: skip
    torch.add(second, third, alpha=3.0, out=first)
    shared, began_s = Shared(torch.get_num_threads()), time.monotonic()
    times_s: list[float] = []
    while len(times_s) < REPEATS_MIN or time.monotonic() < began_s + seconds:
        laps = Laps(torch, device)
        for _ in range(1 if device == "cpu" else 10):
            laps.begin()
            torch.add(second, third, alpha=3.0, out=first)
            laps.end()
        times_s += laps.seconds()
    return _triad_answer(
        count,
        times_s,
        had=shared.had() if device == "cpu" else 1.0,
        wrong_elements=int(torch.count_nonzero(first != 7.0)),
        threads=torch.get_num_threads(),
        library=f"torch {torch.__version__}",
    )


def _triad_answer(count: int, times_s: list[float], **more: Any) -> dict[str, Any]:
    found = {"rates": rates(24.0 * count, times_s), "repeats": len(times_s), "bytes_each": 8 * count}
    return {**found, **more}


def _numpy_triad(seconds: float, bytes_each: int) -> dict[str, Any]:
    """Measures memory bandwidth with numpy in one thread for each CPU; numpy releases the GIL while it
    computes.
    """
    numpy = library("numpy")
    threads = len(os.sched_getaffinity(0))
    count = bytes_each // 8 // (BLOCK * threads) * BLOCK * threads or BLOCK * threads
    pool = library("concurrent.futures").ThreadPoolExecutor(threads)
    first, second, third = (numpy.empty(count) for _ in range(3))
    edges = [count * number // threads for number in range(threads + 1)]

    def over(work: Any) -> None:
        list(pool.map(work, edges[:-1], edges[1:]))

    def fill(low: int, high: int) -> None:  # each thread its own part: the memory is to lie near it
        first[low:high], second[low:high], third[low:high] = 0.0, 1.0, 2.0

    def add(low: int, high: int) -> None:
        piece = numpy.empty(BLOCK)
        for begin in range(low, high, BLOCK):
            numpy.multiply(third[begin : begin + BLOCK], 3.0, out=piece)
            numpy.add(second[begin : begin + BLOCK], piece, out=first[begin : begin + BLOCK])

    over(fill)
    over(add)
    shared, began_s = Shared(threads), time.monotonic()
    times_s: list[float] = []
    while len(times_s) < REPEATS_MIN or time.monotonic() < began_s + seconds:
        lap_s = time.perf_counter()
        over(add)
        times_s.append(time.perf_counter() - lap_s)
    had = shared.had()
    pool.shutdown()
    wrong = int(numpy.count_nonzero(first != 7.0))
    name = f"numpy {numpy.__version__}"
    return _triad_answer(count, times_s, had=had, wrong_elements=wrong, threads=threads, library=name)


def copy(device: str, seconds: float, bytes_each: int, cpus: Sequence[int] = ()) -> dict[str, Any]:
    """Measures copies from the host to a device and back, in pinned and pageable memory, and compares the
    returned data.

    `cpus`: the CPUs near the device, to which the measurement is bound.
    """
    torch = library("torch")
    if near := set(cpus) & os.sched_getaffinity(0):
        os.sched_setaffinity(0, near)
    take(torch, device, bytes_each + (1 << 28))
    is_gpu = device.startswith("cuda")
    pattern = torch.frombuffer(bytearray(random.Random(SEED).getrandbits(8 << 20).to_bytes(1 << 20, "little")), dtype=torch.uint8)  # fmt: skip
    ordinary = pattern.repeat(max(1, bytes_each >> 20))
    pinned = ordinary.pin_memory() if is_gpu else ordinary.clone()
    back = torch.zeros_like(pinned, pin_memory=True) if is_gpu else torch.zeros_like(pinned)
    there = torch.zeros_like(ordinary, device=device)
    ways = {
        "to device, pinned": (there, pinned),
        "to host, pinned": (back, there),
        "to device": (there, ordinary),
        "to host": (torch.zeros_like(ordinary), there),
    }
    found = {}
    for name, (to, source) in ways.items():
        to.copy_(source)
        found[name] = _timed_copies(torch, device, to, source, seconds / len(ways))
    return {
        "ways": found,
        "wrong_bytes": max(int(torch.count_nonzero(to != ordinary)) for to in (back, ways["to host"][0])),
        "bytes_each": ordinary.numel(),
        "library": f"torch {torch.__version__}",
    }


def _timed_copies(torch: Any, device: str, to: Any, source: Any, seconds: float) -> list[float]:
    times_s: list[float] = []
    began_s = time.monotonic()
    while len(times_s) < REPEATS_MIN or time.monotonic() < began_s + seconds:
        laps = Laps(torch, device)
        laps.begin()
        to.copy_(source, non_blocking=True)
        laps.end()
        times_s += laps.seconds()
    return rates(float(source.numel() * source.element_size()), times_s)
