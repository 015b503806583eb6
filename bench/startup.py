"""How long `holdfast --help` takes, beside an empty Python in the same run. Prints a Markdown table."""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

LIMIT_S = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    commands = {
        "python -c pass": (sys.executable, "-c", "pass"),
        "holdfast --help": (str(Path(sys.executable).with_name("holdfast")), "--help"),
    }
    took_s: dict[str, list[float]] = {name: [] for name in commands}
    for command in commands.values():
        timed(command)  # files come into the cache
    for _ in range(runs):
        for name, command in commands.items():
            took_s[name].append(timed(command))
    report(took_s)


def timed(command: Sequence[str]) -> float:
    begun_s = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun_s


def report(took_s: dict[str, list[float]]) -> None:
    print("| command | median | least | most | runs |\n|---|---|---|---|---|")
    for name, times in took_s.items():
        cells = (statistics.median(times), min(times), max(times))
        print(f"| `{name}` | {' | '.join(f'{cell:.3f} s' for cell in cells)} | {len(times)} |")
    empty, ours = (statistics.median(times) for times in took_s.values())
    print(
        f"\nratio of medians {ours / empty:.1f}; limit {LIMIT_S} s: {'kept' if ours < LIMIT_S else 'NOT KEPT'}"
    )


if __name__ == "__main__":
    main()
