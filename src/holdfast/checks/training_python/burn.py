"""Measures one device with torch, or the CPUs with torch or numpy, and prints the result as a line of JSON.

A program of its own, run by whichever Python the training has: it imports nothing of Holdfast, and torch and numpy
by name. `python burn.py '{"work": "matmul", "device": "cuda:0", "seconds": 20, ...}'`. What a library prints goes to
stderr. Each work ends soon after its seconds, whatever the device does, unless the driver itself hangs.

Matrices hold whole numbers of 8 bits. All sums of their products are then exact in 24 bits, so a right result has the
same bits in whatever order it is summed, by whatever kernel, on whatever device. A bit that differs is wrong.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import random
import statistics
import sys
import time
import zlib
from typing import Any, Callable, Sequence  # noqa: UP035 - as Python 3.8 has it

SEED = 20_080_417
WHERE_MAX = 8
EXACT_ROWS = 16
COLUMNS_AT_ONCE = 1024
ROUND_S = 0.25
REPEATS_MIN = 3
TYPES = {"bf16": "bfloat16", "fp16": "float16", "tf32": "float32", "fp32": "float32", "fp64": "float64"}
FEWER_BITS = {"fp16": 4}  # sums must stay below 65,504
BITS = {2: "int16", 4: "int32", 8: "int64"}
BLOCK = 1 << 16  # elements that numpy takes at once: they stay in a core's own cache


class Unable(Exception):
    """It cannot be measured here; the text says why."""


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)
    if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.dirname(os.path.realpath(__file__)):
        del sys.path[0]  # our modules must not stand in for those that torch imports
    asked = json.loads(sys.argv[1])
    work = asked.pop("work")
    try:
        answer = WORKS[work](**asked)
    except Unable as error:
        answer = {"unable": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a driver throws is the finding
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(answers, json.dumps(answer).encode() + b"\n")
    os._exit(0)  # a driver that hangs on the way out must not keep us


def library(name: str) -> Any:
    """raises: Unable"""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Unable(f"{name} cannot be imported by {sys.executable}: {error}") from error


def rates(amount: float, times_s: list[float]) -> list[float]:
    """Amount per second: the lowest quarter, the middle, the upper quarter, and the best."""
    found = sorted(amount / max(one_s, 1e-9) for one_s in times_s)
    return [found[len(found) // 4], statistics.median(found), found[len(found) * 3 // 4], found[-1]]


# Which devices there are ---------------------------------------------------------------------------------


def about() -> dict[str, Any]:
    """Those that torch sees, with the names by which the driver knows them."""
    torch = library("torch")
    if not torch.cuda.is_available():
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        why = "it finds no GPU that it can use" if built else "it is built without CUDA"
        raise Unable(f"torch {torch.__version__} of {sys.executable} cannot use a GPU: {why}")
    devices = []
    for index in range(torch.cuda.device_count()):
        of = torch.cuda.get_device_properties(index)
        devices.append(
            {
                "device": f"cuda:{index}",
                "name": of.name,
                "uuid": str(getattr(of, "uuid", "")),
                "address": f"{of.pci_domain_id:04x}:{of.pci_bus_id:02x}:{of.pci_device_id:02x}.0"
                if hasattr(of, "pci_device_id")  # not told by an older torch
                else "",
            }
        )
    return {"torch": torch.__version__, "devices": devices}


# Time on a device ----------------------------------------------------------------------------------------


class Laps:
    """Times of pieces of work, by the device's own clock where it has one. `seconds()` waits for the device."""

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
    """Which share of the processors that we asked for we had: below one, others were at work too.

    From the time that our threads waited in run queues. `threads`: for a kernel that does not tell it.
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
    """Nanoseconds of all our threads; None where the kernel does not tell."""
    ran = waited = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat", encoding="ascii") as file:
                words = file.read().split()
            ran, waited = ran + int(words[0]), waited + int(words[1])
    except (OSError, ValueError, IndexError):
        return None
    return ran, waited


def _take(torch: Any, device: str, need_bytes: int) -> None:
    """Makes the device the current one. raises: Unable, where too little of its memory is free"""
    if not device.startswith("cuda"):
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return
    torch.cuda.set_device(device)
    free_bytes, _ = torch.cuda.mem_get_info(device)
    if free_bytes < need_bytes:
        raise Unable(
            f"{free_bytes / 2**30:.1f} GiB of its memory are free, {need_bytes / 2**30:.1f} are needed"
        )


# Matrix multiplication -----------------------------------------------------------------------------------


def matmul(device: str, seconds: float, size: int, type: str) -> dict[str, Any]:
    """The same product again and again: how fast, and whether each has the same bits, and the right ones."""
    torch = library("torch")
    type = _type(torch, device) if type == "auto" else type
    element = {"bf16": 2, "fp16": 2, "fp64": 8}.get(type, 4)
    _take(torch, device, 7 * element * size * size + (1 << 29))
    torch.backends.cuda.matmul.allow_tf32 = type == "tf32"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    left, right = (_matrix(torch, size, type, part).to(device) for part in range(2))
    first = torch.mm(left, right)
    found = repeated(torch, device, left, right, first, seconds)
    found["wrong_rows"] = wrong_rows(torch, left, right, first)
    found["checksum"] = f"{zlib.crc32(_content(first.cpu())):08x}"
    return found | {"size": size, "type": type, "library": f"torch {torch.__version__}"}


def _type(torch: Any, device: str) -> str:
    """bf16 where the device multiplies it; before Ampere fp16."""
    if not device.startswith("cuda"):
        return "fp32"
    return "bf16" if torch.version.hip or torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"


def _matrix(torch: Any, size: int, type: str, part: int) -> Any:
    whole = torch.frombuffer(_dice(size, part), dtype=torch.int8).reshape(size, size)
    return torch.bitwise_right_shift(whole, FEWER_BITS.get(type, 0)).to(getattr(torch, TYPES[type]))


def _dice(size: int, part: int) -> bytearray:
    """The same bytes wherever it runs."""
    count = size * size
    return bytearray(random.Random(SEED + part).getrandbits(8 * count).to_bytes(count, "little"))


def _content(tensor: Any) -> memoryview:
    """The bytes of a whole tensor in the memory of the host, without numpy."""
    count = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * count).from_address(tensor.data_ptr())).cast("B")


def repeated(torch: Any, device: str, left: Any, right: Any, first: Any, seconds: float) -> dict[str, Any]:
    """Multiplies for so long, and compares each product with `first`, bit by bit, on the device."""
    out = torch.empty_like(first)
    right_bits, out_bits = _bits(torch, first), _bits(torch, out)
    flipped = torch.zeros_like(right_bits)
    times_s: list[float] = []
    wrong: list[int] = []
    began_s = time.monotonic()
    in_round = 1
    while len(times_s) < REPEATS_MIN or time.monotonic() < began_s + seconds:
        laps = Laps(torch, device)
        counts = []
        for _ in range(in_round):
            laps.begin()
            torch.mm(left, right, out=out)
            laps.end()
            differs = torch.bitwise_xor(out_bits, right_bits)
            counts.append(torch.count_nonzero(differs))
            flipped.bitwise_or_(differs)
        lap_s = laps.seconds()
        wrong += [int(count) for count in counts]
        times_s += lap_s
        in_round = max(1, min(200, int(ROUND_S / max(lap_s[-1], 1e-6))))
    operations = 2.0 * left.shape[0] * left.shape[1] * right.shape[1]
    return {
        "rates": rates(operations, times_s[1:]),
        "repeats": len(times_s),
        "wrong_repeats": sum(count > 0 for count in wrong),
        "wrong_elements": sum(wrong),
        "where": where(torch, flipped),
    }


def _bits(torch: Any, matrix: Any) -> Any:
    return matrix.view(getattr(torch, BITS[matrix.element_size()]))


def where(torch: Any, flipped: Any) -> list[list[Any]]:
    """[row, column, bits that were flipped] of the first elements that were wrong."""
    if not int(torch.count_nonzero(flipped)):
        return []
    digits = 2 * flipped.element_size()
    mask = (1 << 4 * digits) - 1
    places = torch.nonzero(flipped)[:WHERE_MAX].tolist()
    return [[row, column, f"{int(flipped[row, column]) & mask:0{digits}x}"] for row, column in places]


def wrong_rows(torch: Any, left: Any, right: Any, product: Any) -> int:
    """Of a few rows, spread over the matrix, how many differ from the exact result, computed by the processor."""
    size = left.shape[0]
    rows = sorted({size * number // EXACT_ROWS for number in range(EXACT_ROWS)})
    some, whole = left[rows].cpu().double(), right.cpu()
    pieces = torch.split(whole, COLUMNS_AT_ONCE, dim=1)
    exact = torch.cat([some @ piece.double() for piece in pieces], dim=1)
    return int((exact.to(product.dtype) != product[rows].cpu()).any(dim=1).sum())


# The processors, each by itself --------------------------------------------------------------------------


def cores(seconds: float, size: int) -> dict[str, Any]:
    """The same product on all processors that we may use at once, one process bound to each; bits compared with one.

    The processes are forked after the library has chosen its code for this machine, so that all run the same.
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
    """What most of three processors say that the product is: the one that is wrong must not be the judge."""
    votes: list[bytes] = []
    for number in range(3):
        os.sched_setaffinity(0, {on[number * len(on) // 3]})
        votes.append(bytes(multiply()))
    return max(votes, key=votes.count)


def multiplier(size: int) -> tuple[Any, str]:
    """What multiplies with one thread and gives the bytes of the product, and the library's name. raises: Unable"""
    try:
        torch = library("torch")
    except Unable as no_torch:
        try:
            numpy = library("numpy")
        except Unable:
            raise no_torch from None
        first, second = (
            numpy.frombuffer(_dice(size, part), dtype=numpy.int8).reshape(size, size).astype(numpy.float32)
            for part in range(2)
        )
        out = numpy.empty((size, size), dtype=numpy.float32)
        return (
            lambda: memoryview(numpy.matmul(first, second, out=out)).cast("B"),
            f"numpy {numpy.__version__}",
        )
    torch.set_num_threads(1)  # before the fork, after which threads of the library are gone
    left, right = (_matrix(torch, size, "fp32", part) for part in range(2))
    product = torch.empty((size, size))
    return lambda: _content(torch.mm(left, right, out=product)), f"torch {torch.__version__}"


def is_exact(size: int, product: bytes, rows: int = 2) -> bool:
    """Whether rows of a float32 product are what Python's own whole numbers give."""
    left, right = (memoryview(_dice(size, part)).cast("b").tolist() for part in range(2))
    values = memoryview(product).cast("f")
    return all(
        values[at + column] == sum(map(int.__mul__, left[at : at + size], right[column::size]))
        for at in (size * (size * number // rows) for number in range(rows))
        for column in range(size)
    )


def _on_core(pipe: int, core: int, multiply: Any, reference: bytes, seconds: float, size: int) -> None:
    """In a process of its own. Never returns."""
    try:
        os.sched_setaffinity(0, {core})
        os.write(pipe, json.dumps(on_core(core, multiply, reference, seconds, size)).encode())
    except Exception as error:  # noqa: BLE001 - a fork must not go on as its parent
        os.write(pipe, json.dumps({"core": core, "error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(0)


def on_core(core: int, multiply: Any, reference: bytes, seconds: float, size: int) -> dict[str, Any]:
    """Multiplies for so long, and compares each product with `reference`."""
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


# Memory --------------------------------------------------------------------------------------------------


def triad(device: str, seconds: float, bytes_each: int) -> dict[str, Any]:
    """a = b + 3 c over arrays far larger than the caches, with 24 bytes an element of 8, as STREAM counts them.

    source: J. McCalpin, STREAM, stream.c: "triad"
    """
    try:
        torch = library("torch")
    except Unable:
        if device != "cpu":
            raise
        return _numpy_triad(seconds, bytes_each)
    _take(torch, device, 3 * bytes_each + (1 << 28))
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
    """In as many threads as processors: numpy lets go of the interpreter while it computes."""
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


# Copies between host and device --------------------------------------------------------------------------


def copy(device: str, seconds: float, bytes_each: int, cpus: Sequence[int] = ()) -> dict[str, Any]:
    """To the device and back, from pinned and from ordinary memory near it (`cpus`); what comes back is compared."""
    torch = library("torch")
    if near := set(cpus) & os.sched_getaffinity(0):
        os.sched_setaffinity(0, near)
    _take(torch, device, bytes_each + (1 << 28))
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


# A small training ----------------------------------------------------------------------------------------


def train(device: str, seconds: float, layers: int, width: int, length: int, batch: int) -> dict[str, Any]:
    """Steps of a small decoder: forward, backward, AdamW. bf16 where a GPU has it, else float32."""
    torch = library("torch")
    _take(torch, device, 4 << 30)
    is_gpu = device.startswith("cuda")
    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high" if is_gpu else "highest")
    model, words = _decoder(torch, layers, width, length)
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(0, words, (batch, length + 1)).to(device)
    half = is_gpu and torch.cuda.get_device_capability(device) >= (8, 0)
    shared, began_s = Shared(torch.get_num_threads()), time.monotonic()
    times_s: list[float] = []
    losses: list[Any] = []
    while len(times_s) < REPEATS_MIN + 2 or time.monotonic() < began_s + seconds:
        laps = Laps(torch, device)
        laps.begin()
        with torch.autocast("cuda" if is_gpu else "cpu", dtype=torch.bfloat16, enabled=half):
            loss = torch.nn.functional.cross_entropy(
                model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten()
            )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        laps.end()
        times_s += laps.seconds()
        losses.append(loss.detach())
    steady_s = times_s[2:]  # the first two build what the others use
    return {
        "rates": rates(float(batch * length), steady_s),
        "step_s": statistics.median(steady_s),
        "repeats": len(steady_s),
        "is_finite": all(abs(float(loss)) < float("inf") for loss in losses),
        "type": "bf16" if half else "fp32",
        "had": 1.0 if is_gpu else shared.had(),
        "library": f"torch {torch.__version__}",
    }


def _decoder(torch: Any, layers: int, width: int, length: int, words: int = 4096) -> tuple[Any, int]:
    nn = torch.nn

    class Decoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    width, max(1, width // 64), 4 * width, 0.0, batch_first=True, norm_first=True
                )
                for _ in range(layers)
            )
            self.head = nn.Linear(width, words, bias=False)
            mask = torch.full((length, length), float("-inf")).triu(1)
            self.register_buffer("mask", mask, persistent=False)
            self.register_buffer("order", torch.arange(length), persistent=False)

        def forward(self, tokens: Any) -> Any:
            state = self.words(tokens) + self.places(self.order)
            for layer in self.layers:
                state = layer(state, src_mask=self.mask, is_causal=True)
            return self.head(state)

    return Decoder(), words


WORKS: dict[str, Callable[..., dict[str, Any]]] = {
    "about": about,
    "matmul": matmul,
    "cores": cores,
    "triad": triad,
    "copy": copy,
    "train": train,
}

if __name__ == "__main__":
    main()
