"""How fast steps are read off a log, and in how much memory: on one core, from memory, in blocks of 1 MiB.

    python -m bench.steps.reading [--mb 64] [--stream-mb 1000]

Logs are made here: pure lines of Megatron's iterations, the worst case; the same with stamps; the same among the lines
that stand around them in a real log; a bar of tqdm; lines that only a slow form fits. Processor time, not wall time.
"""

import argparse
import math
import resource
import time
from collections.abc import Callable, Iterator

from holdfast.observe.search.step_form_store import all_forms
from holdfast.parsers.steps import columns as step_columns
from holdfast.parsers.steps.heads import Heads
from holdfast.parsers.steps.lines import StepLines
from holdfast.parsers.steps.reading import FormReader

BLOCK_BYTES = 1 << 20
RUNS = 5  # the best of them: others may use the machine
TIMERS = (
    "(min, max) time across ranks (ms):\n    forward-backward ...............................: (812.25, 813.50)\n"
    "    optimizer ......................................: (31.25, 31.75)\n"
)
NOISE = (
    "WARNING:megatron.core.rerun_state_machine:Setting RerunStateMachine mode RerunMode.DISABLED for rank 3 of 64\n"
    "[rank3]:[W ProcessGroupNCCL.cpp:4115] [PG ID 0 Rank 3]  using GPU 3 to perform barrier as devices used\n"
    "INFO:megatron.core.distributed.param_and_grad_buffer:Number of buckets for gradient all-reduce: 12 of 40000000\n"
)


def megatron(number: int, stamp: str = "") -> str:
    return (
        f" {stamp}iteration {number:8d}/ 9000000 | consumed samples: {number * 1024:12d} | elapsed time per iteration (ms): "
        f"{4321.0 + number * 7919 % 97 / 10:.1f} | throughput per GPU (TFLOP/s/GPU): 401.2 | learning rate: 1.500000E-04 | "
        f"global batch size:  1024 | lm loss: {2.25 + number % 1000 / 1e5:.6E} | loss scale: 1.0 | grad norm: 0.250 | "
        f"number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def pure(number: int) -> str:
    return megatron(number)


def stamped(number: int) -> str:
    seconds = number * 4
    clock = f"{seconds // 3600 % 24:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return megatron(
        number, f"[2025-03-{seconds // 86400 % 28 + 1:02d} {clock}.{number * 7919 % 1000000:06d}] "
    )


def mixed(number: int) -> str:
    text = megatron(number) + TIMERS + (NOISE if number % 5 == 0 else "")
    return text + (f"saving checkpoint at iteration {number:8d} to /ckpt\n" if number % 500 == 0 else "")


def bar(number: int) -> str:
    elapsed = number * 3
    clock = f"{elapsed // 3600}:{elapsed // 60 % 60:02d}:{elapsed % 60:02d}"
    return f"\r {number * 100 // 900000:2d}%|###       | {number}/900000 [{clock}<99:59:59,  2.98s/it]"


def metric_logger(number: int) -> str:
    return (
        f"Epoch: [{number // 5000}]  [{number % 5000:4d}/5000]  eta: 0:23:35  lr: 0.000005  loss: 2.2500 (2.5000)  "
        f"time: {0.4 + number % 7 / 1000:.4f}  data: 0.0010  max mem: 20009\n"
    )


LOGS: dict[str, Callable[[int], str]] = {
    "pure": pure,
    "stamped": stamped,
    "mixed": mixed,
    "bar": bar,
    "metric-logger": metric_logger,
}


def blocks(line: Callable[[int], str], megabytes: float) -> Iterator[bytes]:
    """A log of about this size, in blocks that end anywhere."""
    number, made, size = 1, b"", 0
    while size < megabytes * 1e6:
        made += "".join(line(one) for one in range(number, number + 4000)).encode()
        number += 4000
        while len(made) >= BLOCK_BYTES:
            yield made[:BLOCK_BYTES]
            size += BLOCK_BYTES
            made = made[BLOCK_BYTES:]


def with_records(log: list[bytes]) -> tuple[float, int]:
    """Megabytes a second, and how many records came out."""
    best_s, count = math.inf, 0
    for _ in range(RUNS):
        follower, count = StepLines(all_forms()), 0
        count += len(follower.feed_block(log[0]))  # by now the form is known
        start_s = time.process_time()
        for block in log[1:]:
            count += len(follower.feed_block(block))
        best_s = min(best_s, time.process_time() - start_s)
    return sum(map(len, log[1:])) / best_s / 1e6, count


def values_only(log: list[bytes]) -> float:
    """Megabytes a second of cutting lines and reading their values."""
    form = next(form for form in all_forms() if form.id == "megatron")
    reader, heads = FormReader(form), Heads()
    first = next((line for line in log[0].split(b"\n") if reader.literal in line), b"")
    layout = step_columns.learn(reader, first)
    assert layout is not None
    best_s = math.inf
    for _ in range(RUNS):
        tail = b""
        start_s = time.process_time()
        for block in log[1:]:
            text, _, tail = (tail + block).rpartition(b"\n")
            found = step_columns.read(layout, text, heads)
            if found is None:
                alike = [line for line in text.split(b"\n") if reader.literal in line]
                found = step_columns.read(layout, b"\n".join(alike), heads)
            assert found is not None
        best_s = min(best_s, time.process_time() - start_s)
    return sum(map(len, log[1:])) / best_s / 1e6


def streamed(megabytes: float) -> tuple[int, int]:
    """How much the memory grew while a long log went by, in KiB, and how many records it had."""
    follower, count, before = StepLines(all_forms()), 0, 0
    for index, block in enumerate(blocks(mixed, megabytes)):
        count += len(follower.feed_block(block))
        if index == 8:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=32, help="size of each log in MB")
    parser.add_argument("--stream-mb", type=float, default=0, help="size of the log for the memory, 0: none")
    options = parser.parse_args()
    if options.stream_mb:  # first: the highest memory ever is what is told
        grown, count = streamed(options.stream_mb)
        print(f"{options.stream_mb:.0f} MB streamed: {count} records, memory grew by {grown / 1024:.1f} MiB")
    print("| log | bytes a line | values only, MB/s | with records, MB/s | records |\n|---|---|---|---|---|")
    for name, line in LOGS.items():
        log = list(blocks(line, options.mb))
        rate, count = with_records(log)
        only = values_only(log) if name in ("pure", "stamped", "mixed") else None
        per_record = sum(map(len, log)) // max(count, 1)
        print(f"| {name} | {per_record} | {f'{only:.0f}' if only else '-'} | {rate:.0f} | {count} |")


if __name__ == "__main__":
    main()
