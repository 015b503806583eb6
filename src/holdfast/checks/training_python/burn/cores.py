"""Tests all CPUs: multiplies the same two matrices on each of them at once, and compares the products bit
by bit.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .devices import REPEATS_MIN, Shared, Unable, library, rates
from .matrices import WHERE_MAX, content, dice, matrix


def cores(seconds: float, size: int) -> dict[str, Any]:
    """Multiplies two matrices on all available CPUs at once, and returns speed and wrong products for each
    CPU.

    One process is bound to each CPU. They are forked after the library has chosen its kernels, so that all
    run the same code.
    """
    multiply, name = multiplier(size)
    allowed = os.sched_getaffinity(0)
    reference = agreed(multiply, sorted(allowed))
    os.sched_setaffinity(0, allowed)
    pipes = []
    for core in sorted(allowed):
        ours, theirs = os.pipe()
        if (pid := os.fork()) == 0:
            os.close(ours)
            _on_core(theirs, core, multiply, reference, seconds, size)
        os.close(theirs)
        pipes.append((core, pid, ours))
    found = []
    for core, pid, ours in pipes:
        with os.fdopen(ours, "rb") as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        found.append(json.loads(text) if text else {"core": core, "ended": status})
    return {"cores": found, "library": name, "size": size, "is_exact": is_exact(size, reference)}


def agreed(multiply: Any, on: list[int]) -> bytes:
    """Returns the product that most of three CPUs compute, as the reference, because a single CPU may be broken."""
    votes: list[bytes] = []
    for number in range(3):
        os.sched_setaffinity(0, {on[number * len(on) // 3]})
        votes.append(bytes(multiply()))
    return max(votes, key=votes.count)


def multiplier(size: int) -> tuple[Any, str]:
    """Returns a single-threaded function that multiplies two matrices and returns the product's bytes, and
    its library name.

    Raises Unable if neither torch nor numpy can be imported.
    """
    try:
        torch = library("torch")
    except Unable as no_torch:
        try:
            numpy = library("numpy")
        except Unable:
            raise no_torch from None
        first, second = (
            numpy.frombuffer(dice(size, part), dtype=numpy.int8).reshape(size, size).astype(numpy.float32)
            for part in range(2)
        )
        out = numpy.empty((size, size), dtype=numpy.float32)
        return (
            lambda: memoryview(numpy.matmul(first, second, out=out)).cast("B"),
            f"numpy {numpy.__version__}",
        )
    torch.set_num_threads(1)  # before the fork, after which threads of the library are gone
    left, right = (matrix(torch, size, "fp32", part) for part in range(2))
    product = torch.empty((size, size))
    return lambda: content(torch.mm(left, right, out=product)), f"torch {torch.__version__}"


def is_exact(size: int, product: bytes, rows: int = 2) -> bool:
    """Returns True if sampled rows of a float32 matrix product equal the exact integer result."""
    left, right = (memoryview(dice(size, part)).cast("b").tolist() for part in range(2))
    values = memoryview(product).cast("f")
    return all(
        values[at + column] == sum(map(int.__mul__, left[at : at + size], right[column::size]))
        for at in (size * (size * number // rows) for number in range(rows))
        for column in range(size)
    )


def _on_core(pipe: int, core: int, multiply: Any, reference: bytes, seconds: float, size: int) -> None:
    """Tests one CPU in a forked process, writes the result to a pipe and exits. Never returns."""
    try:
        os.sched_setaffinity(0, {core})
        os.write(pipe, json.dumps(on_core(core, multiply, reference, seconds, size)).encode())
    except Exception as error:  # noqa: BLE001 - a fork must not go on as its parent
        os.write(pipe, json.dumps({"core": core, "error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(0)


def on_core(core: int, multiply: Any, reference: bytes, seconds: float, size: int) -> dict[str, Any]:
    """Multiplies for `seconds` on one CPU, compares each product with `reference`, and returns speed and
    differences.
    """
    multiply()
    shared, began_s = Shared(1), time.monotonic()
    times_s: list[float] = []
    wrong_repeats = 0
    places: list[list[Any]] = []
    while len(times_s) < REPEATS_MIN or time.monotonic() < began_s + seconds:
        lap_s = time.perf_counter()
        product = multiply()
        times_s.append(time.perf_counter() - lap_s)
        if product != reference:
            wrong_repeats += 1
            places = places or _differing(product, reference, size)
    return {
        "core": core,
        "rates": rates(2.0 * size**3, times_s),
        "repeats": len(times_s),
        "wrong_repeats": wrong_repeats,
        "where": places,
        "had": shared.had(),
    }


def _differing(product: memoryview, reference: bytes, size: int) -> list[list[Any]]:
    ours, theirs = memoryview(product).cast("I"), memoryview(reference).cast("I")
    found: list[list[Any]] = []
    for place, (one, other) in enumerate(zip(ours, theirs)):  # noqa: B905 - Python 3.9 has no strict
        if one != other:
            found.append([place // size, place % size, f"{one ^ other:08x}"])
            if len(found) == WHERE_MAX:
                break
    return found
