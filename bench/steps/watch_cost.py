"""What the watch over steps costs the agent: processor time beside real commands, with it and without.

    python -m bench.steps.watch_cost --seconds 30

`steps`: 8 ranks, each printing every step of 20 ms. `lines`: one command that prints 10,000 lines a second, of which ten
are steps. `quiet`: 8 ranks, a step a second. Each as `holdfast run` does it, and by the same code with a
watch that reads nothing; which of the two goes first takes turns. Limit: 1 % of a core more.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from holdfast.agent.watch.steps import StepWatching
from holdfast.cli.main import main as holdfast

sys.path.insert(0, str(Path(__file__).parents[2]))  # it starts itself by its path, in another folder

from bench.job.trial import Trial, end_on_sigterm

LIMIT = 0.01
SETTLE_S = 5.0
WITHOUT = "HOLDFAST_BENCH_WITHOUT_STEPS"

RANK = """
import os, sys, time
step_s, until_s = float(sys.argv[1]), time.monotonic() + float(sys.argv[2])
due_s, step = time.monotonic(), 0
while time.monotonic() < until_s:
    step += 1
    due_s += step_s
    time.sleep(max(0.0, due_s - time.monotonic()))
    print(f" iteration {step:8d}/ 1000000 | consumed samples: {step * 8:12d} | elapsed time per iteration (ms): "
          f"{step_s * 1000:.1f} | learning rate: 1.000E-04 | global batch size:     8 | lm loss: 2.5E+00 | "
          "loss scale: 1.0 | number of skipped iterations:   0 |", flush=True)
"""
LAUNCHER = """
import os, subprocess, sys
env = lambda n: {**os.environ, "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": "8"}
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], env=env(n)) for n in range(8)]
sys.exit(max(one.wait() for one in ranks))
"""
LINES = """
import sys, time
until_s, due_s, step = time.monotonic() + float(sys.argv[1]), time.monotonic(), 0
filler = "INFO worker.py:88 fetched shard 000123 of the corpus, 4096 records, queue depth 12, all is well\\n" * 999
while time.monotonic() < until_s:
    due_s += 0.1
    time.sleep(max(0.0, due_s - time.monotonic()))
    step += 1
    sys.stdout.write(filler + f"step {step}/1000000 | loss 2.5 | time 100.0 ms\\n")
    sys.stdout.flush()
"""


class ReadsNothing(StepWatching):
    """As if nobody watched steps."""

    def read(self, *_: object, **__: object) -> list:  # type: ignore[override, type-arg]
        return []

    def look(self, *_: object, **__: object) -> list:  # type: ignore[override, type-arg]
        return []


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] == "run":
        return run_without()
    options = read_options()
    end_on_sigterm()
    print("| beside | with | without | difference | CPU of one core, limit |\n|---|---|---|---|---|")
    is_over = False
    for name in options.kinds:
        shares: dict[bool, list[float]] = {True: [], False: []}
        for number in range(options.pairs):
            for watched in (True, False) if number % 2 == 0 else (False, True):
                shares[watched].append(share(name, watched, options.seconds))
        ours, theirs = (statistics.median(shares[watched]) for watched in (True, False))
        is_over |= ours - theirs > LIMIT
        print(f"| {name} | {ours:.2%} | {theirs:.2%} | {ours - theirs:+.2%} | {LIMIT:.0%} |", flush=True)
    return int(is_over)


def run_without() -> int:
    """`holdfast run` with a watch that reads nothing, in a process of its own."""
    StepWatching.read = ReadsNothing.read  # type: ignore[method-assign]
    StepWatching.look = ReadsNothing.look  # type: ignore[method-assign]
    return int(holdfast() or 0)


def share(name: str, watched: bool, seconds: float) -> float:
    """Of one core, that Holdfast itself takes while the command is under way."""
    folder = Path(tempfile.mkdtemp(prefix="step-watch-"))
    until_s = seconds + SETTLE_S + 5.0
    begin = [sys.executable, "-m", "holdfast"] if watched else [sys.executable, __file__]
    words = [*begin, "run", "--quiet", "--state-dir", str(folder / "state"), "--", *command(name, until_s)]
    trial = Trial(words, folder)
    try:
        assert not trial.wait(SETTLE_S), f"it ended too early; see {folder / 'said.log'}"
        before, begun_s = cpu_s(trial.process.pid), time.monotonic()
        assert not trial.wait(seconds), f"it ended too early; see {folder / 'said.log'}"
        return (cpu_s(trial.process.pid) - before) / (time.monotonic() - begun_s)
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)


def command(name: str, until_s: float) -> list[str]:
    match name:
        case "lines":
            return [sys.executable, "-c", LINES, str(until_s)]
        case "steps":
            return [sys.executable, "-c", LAUNCHER, RANK, "0.02", str(until_s)]
        case _:
            return [sys.executable, "-c", LAUNCHER, RANK, "1.0", str(until_s)]


def cpu_s(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=["steps", "lines", "quiet"])
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
