"""What `holdfast steps` takes for a whole log, from the command to its answer: megabytes a second, and memory.

    python -m bench.steps.command [--mb 1000] [--logs mixed pure]

Logs as in step_speed.py: "mixed" is Megatron's output with the lines that stand around its iterations, "pure" nothing but
iterations, the worst case: every line is a record that goes through all that watches steps. Processor time of the
command, start-up included; beside it what a log of a hundred lines takes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from bench.steps.reading import LOGS, blocks

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
SMALL_RUNS = 5
RSS_LIMIT_MIB, SMALL_LIMIT_S = 150.0, 0.5


class Cost(Struct, frozen=True):
    wall_s: float
    cpu_s: float
    rss_mib: float


def cost(log: Path) -> Cost:
    start_s = time.monotonic()
    command = subprocess.Popen([HOLDFAST, "steps", str(log), "--json"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(command.pid, 0)
    command.returncode = os.waitstatus_to_exitcode(status)
    assert command.returncode == 0, f"holdfast steps {log} ended with {command.returncode}"
    return Cost(time.monotonic() - start_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=float, default=1000, help="size of the log in MB")
    parser.add_argument("--logs", nargs="+", choices=sorted(LOGS), default=["mixed", "pure"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        log.write_bytes(next(blocks(LOGS["mixed"], 1))[:30_000])
        small = min((cost(log) for _ in range(SMALL_RUNS)), key=lambda one: one.wall_s)
        print(
            f"a log of 30 kB: {small.wall_s:.2f} s, {small.cpu_s:.2f} s of processor (limit {SMALL_LIMIT_S} s), "
            f"{small.rss_mib:.0f} MiB"
        )
        print("| log | MB | MB/s of processor | seconds | memory, MiB |\n|---|---|---|---|---|")
        for name in options.logs:
            with log.open("wb") as file:
                for block in blocks(LOGS[name], options.mb):
                    file.write(block)
            size_mb = log.stat().st_size / 1e6
            took = cost(log)
            print(
                f"| {name} | {size_mb:.0f} | {size_mb / took.cpu_s:.1f} | {took.wall_s:.0f} | {took.rss_mib:.0f} "
                f"(limit {RSS_LIMIT_MIB:.0f}) |"
            )


if __name__ == "__main__":
    main()
