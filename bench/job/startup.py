"""What it costs to start a `holdfast`, beside an empty Python in the same run: wall time and CPU time of each command.

`run` is refused for the name of its job, and `agent` for lack of an address: both have imported all they need by then.
Prints a Markdown table. CPU time says more than wall time where other work is about.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

LIMIT_S = 0.3  # of --help, by the clock on the wall
OURS = (sys.executable, "-P", "-m", "holdfast")
COMMANDS = {
    "python -c pass": (sys.executable, "-c", "pass"),
    "holdfast --help": (*OURS, "--help"),
    "holdfast run": (*OURS, "run", "--job", "no/name", "--", "true"),
    "holdfast agent": (*OURS, "agent"),
    "holdfast diagnose": (*OURS, "diagnose", "/nonexistent"),
    "holdfast status": (*OURS, "status", "--state-dir", "/nonexistent"),
}


class Took(NamedTuple):
    wall_s: float
    cpu_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    took: dict[str, list[Took]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        timed(command)  # files come into the cache
    for _ in range(runs):
        for name, command in COMMANDS.items():
            took[name].append(timed(command))
    report(took)


def timed(command: Sequence[str]) -> Took:
    """Of the whole process, and of children that it has waited for."""
    begun_s = time.perf_counter()
    nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    pid = os.posix_spawn(command[0], command, own, file_actions=nowhere)
    _, _, used = os.wait4(pid, 0)
    return Took(time.perf_counter() - begun_s, used.ru_utime + used.ru_stime)


def report(took: dict[str, list[Took]]) -> None:
    print("| command | wall, median | CPU, median | least | most | of an empty Python | runs |")
    print("|---|---|---|---|---|---|---|")
    empty_s = statistics.median(one.cpu_s for one in took["python -c pass"])
    for name, all_ in took.items():
        wall_s = statistics.median(one.wall_s for one in all_)
        cpu_s = sorted(one.cpu_s for one in all_)
        middle_s = statistics.median(cpu_s)
        print(
            f"| `{name}` | {wall_s:.3f} s | {middle_s:.3f} s | {cpu_s[0]:.3f} s | {cpu_s[-1]:.3f} s "
            f"| {middle_s / empty_s:.1f} | {len(all_)} |"
        )
    help_s = statistics.median(one.wall_s for one in took["holdfast --help"])
    print(f"\nholdfast --help: limit {LIMIT_S} s: {'kept' if help_s < LIMIT_S else 'NOT KEPT'}")


if __name__ == "__main__":
    main()
