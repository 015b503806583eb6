"""What Holdfast costs: the training's step time with and without it, and its own memory and CPU.

    python -m bench.job.overhead --pairs 5 --wait-quiet 60

Steps: the same training in pairs, with and without Holdfast, which of the two goes first taking turns.
Given are the step as the training sees it (20 ms with its padding) and its work alone, which the padding
cannot hide; each for all steps and without the time in which Holdfast prepares its standby.
Agent: memory and CPU of Holdfast and its reapers over a minute, beside eight sleepy ranks with twenty
threads each, and beside the real training.
"""

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

from bench.job.trial import Moment, Trial, end_on_sigterm, holdfast_run, torchrun, training, wait_quiet
from holdfast.agent.launch import Started

RANKS = 4
WARM_STEPS = 50
OVERHEAD_LIMIT, RSS_LIMIT_MIB, CPU_LIMIT = 0.001, 60.0, 0.01
LOOK_S = 0.5
RESAMPLES = 2000
LIMIT_S = 300.0
READY_LIMIT_S = 60.0

SLEEPERS = """
import os, subprocess, sys
rank = '''
import os, threading, time
for _ in range(19):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
for step in range(1, int(os.environ["SECONDS"]) + 1):
    time.sleep(1)
    print("step %d/%s loss 1.0" % (step, os.environ["SECONDS"]), flush=True)
'''
world = int(sys.argv[1])
env = lambda n: {**os.environ, "RANK": str(n), "LOCAL_RANK": str(n), "WORLD_SIZE": str(world), "SECONDS": sys.argv[2]}
ranks = [subprocess.Popen([sys.executable, "-c", rank], env=env(n)) for n in range(world)]
sys.exit(max(one.wait() for one in ranks))
"""


def main() -> None:
    options = read_options()
    end_on_sigterm()
    if options.part in ("steps", "all"):
        report_steps(options)
    if options.part in ("agent", "all"):
        report_agent(options)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seconds", type=int, default=60, help="over which the agent is watched")
    parser.add_argument("--part", choices=("steps", "agent", "all"), default="all")
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="S")
    return parser.parse_args()


# Step times ----------------------------------------------------------------------------------------------


class Window(Struct, frozen=True):
    """When a standby was being prepared."""

    since_s: float
    until_s: float


def report_steps(options: argparse.Namespace) -> None:
    pairs = []
    for number in range(options.pairs):
        both: dict[bool, tuple[list[Moment], Window | None]] = {}
        for watched in (True, False) if number % 2 else (False, True):
            if options.wait_quiet:
                wait_quiet(options.wait_quiet)
            both[watched] = steps_of_a_run(watched, options.steps)
        pairs.append((*both[True], both[False][0]))
        note = "" if both[True][1] else "; no standby was seen in it"
        print(f"pair {number + 1} of {options.pairs} is done{note}", file=sys.stderr, flush=True)
    print("| what of a step | with | without | ratio | 95 % | steps |\n|---|---|---|---|---|---|")
    for words, take in (("as trained, padded to 20 ms", took), ("its work alone", worked)):
        for when, cut in (("", False), (", no standby being prepared", True)):
            print(f"| {words}{when} | {row_of(pairs, take, cut=cut)} |")
    print(f"\nlimit: {1 + OVERHEAD_LIMIT} for the padded step")


def took(moment: Moment) -> float:
    return moment.took_s


def worked(moment: Moment) -> float:
    return moment.worked_s


def row_of(
    pairs: list[tuple[list[Moment], Window | None, list[Moment]]],
    take: Callable[[Moment], float],
    *,
    cut: bool,
) -> str:
    medians, count = list[tuple[float, float]](), 0
    for steps, window, plain in pairs:
        ours = [take(one) for one in steps if not (cut and window and in_window(one, window))]
        if not ours:
            return "– | – | – | – | 0: a standby was being prepared all the time, give more --steps"
        count += len(ours)
        medians.append((statistics.median(ours), statistics.median(map(take, plain))))
    ratio = statistics.median(ours / theirs for ours, theirs in medians)
    low, high = interval([ours / theirs for ours, theirs in medians])
    with_ms, without_ms = (1e3 * statistics.median(side) for side in zip(*medians, strict=True))
    return f"{with_ms:.3f} ms | {without_ms:.3f} ms | {ratio:.5f} | {low:.5f}–{high:.5f} | {count}"


def in_window(moment: Moment, window: Window) -> bool:
    return moment.at_s >= window.since_s and moment.at_s - moment.took_s <= window.until_s


def interval(ratios: list[float]) -> tuple[float, float]:
    """Of the median of the pairs' ratios, by drawing pairs again and again."""
    dice = random.Random(1)
    drawn = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]


def steps_of_a_run(watched: bool, steps: int) -> tuple[list[Moment], Window | None]:
    """All ranks' steps after the first fifty, and when a standby was being prepared."""
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    command = [*torchrun(RANKS), *training(folder, steps=steps)]
    if watched:
        command = [*holdfast_run(folder / "state"), *command]
    trial = Trial(command, folder)
    standby = StandbyWatch(folder / "state")
    try:
        until_s = time.monotonic() + LIMIT_S
        while not trial.wait(LOOK_S) and time.monotonic() < until_s:
            standby.look()
    finally:
        trial.clear()
    assert trial.process.returncode == 0, f"the training ended with {trial.process.returncode}; see {folder}"
    kept = [one for one in trial.moments() if one.kind == "step" and one.step > WARM_STEPS]
    shutil.rmtree(folder, ignore_errors=True)
    return kept, standby.window()


class StandbyWatch:
    """Looks from outside how the second attempt is prepared while the first trains."""

    def __init__(self, state: Path) -> None:
        self.is_ready = False
        self._state = state
        self._since_s: float | None = None
        self._until_s = float("inf")

    def look(self) -> None:
        if self.is_ready:
            return
        facts = next(iter(self._state.glob("jobs/*/attempt-002/worker-0/reaper.jsonl")), None)
        if facts is None:
            return
        self._since_s = self._since_s or started_s(facts)
        if len(list(facts.parent.glob("rank-*.ready"))) == RANKS:  # each has made its imports
            self.is_ready, self._until_s = True, time.time()

    def window(self) -> Window | None:
        return Window(self._since_s, self._until_s) if self._since_s is not None else None


def started_s(path: Path) -> float | None:
    """When the command began, by the facts of its reaper."""
    for line in path.read_bytes().splitlines():
        try:
            return msgspec.json.decode(line, type=Started).t
        except msgspec.MsgspecError:
            continue  # another fact, or a line half written
    return None


# The agent -----------------------------------------------------------------------------------------------


class Cost(Struct, frozen=True):
    rss_mib: float
    pss_mib: float
    cpu_share: float
    processes: int


def report_agent(options: argparse.Namespace) -> None:
    beside = {
        "8 sleepy ranks, 20 threads each": lambda folder: [
            sys.executable, "-c", SLEEPERS, "8", str(options.seconds + 30)
        ],
        "4 real ranks, 20 ms steps": lambda folder: [
            *torchrun(RANKS), *training(folder, steps=50 * (options.seconds + int(READY_LIMIT_S) + 30))
        ],
    }  # fmt: skip
    print("\n| beside | of | RSS | PSS | CPU of one core |\n|---|---|---|---|---|")
    for name, command in beside.items():
        for who, cost in costs(command, options.seconds).items():
            print(
                f"| {name} | {who} | {cost.rss_mib:.1f} MiB | {cost.pss_mib:.1f} MiB | {cost.cpu_share:.2%} |"
            )
    print(f"\nlimits: {RSS_LIMIT_MIB:.0f} MiB resident, {CPU_LIMIT:.0%} of one core")


def costs(command: Callable[[Path], list[str]], seconds: int) -> dict[str, Cost]:
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    trial = Trial([*holdfast_run(folder / "state"), *command(folder)], folder)
    try:
        wait_until_steady(trial, StandbyWatch(folder / "state"))
        holdfast = psutil.Process(trial.process.pid)
        reapers = holdfast.children()
        return watch({"holdfast": [holdfast], "its reapers": reapers}, seconds)
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)


def wait_until_steady(trial: Trial, standby: StandbyWatch) -> None:
    """Until the standby is ready, and where there is none until the training has stepped a while."""
    until_s = time.monotonic() + READY_LIMIT_S
    while not standby.is_ready and time.monotonic() < until_s:
        assert not trial.wait(LOOK_S), f"it ended too early; see {trial.folder / 'said.log'}"
        standby.look()
        if standby.window() is None and sum("step" in line for _, line in trial.lines) >= 80:
            return


def watch(who: dict[str, list[psutil.Process]], seconds: int) -> dict[str, Cost]:
    begun_s = time.monotonic()
    before = {name: sum(cpu_s(one.pid) for one in those) for name, those in who.items()}
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in who}
    while time.monotonic() < begun_s + seconds:
        time.sleep(5)
        for name, those in who.items():
            seen[name].append(memory_mib(those))
    took_s = time.monotonic() - begun_s
    found = {}
    for name, those in who.items():
        rss_mib, pss_mib = (max(values) for values in zip(*seen[name], strict=True))
        share = (sum(cpu_s(one.pid) for one in those) - before[name]) / took_s
        found[f"{name} ({len(those)})"] = Cost(rss_mib, pss_mib, share, len(those))
    return found | {"all of them": total(list(found.values()))}


def total(all_costs: list[Cost]) -> Cost:
    sums = [sum(getattr(one, field) for one in all_costs) for field in ("rss_mib", "pss_mib", "cpu_share")]
    return Cost(*sums, sum(one.processes for one in all_costs))


def memory_mib(processes: list[psutil.Process]) -> tuple[float, float]:
    """RSS and PSS, in MiB."""
    memory = [process.memory_full_info() for process in processes]
    return sum(one.rss for one in memory) / 2**20, sum(one.pss for one in memory) / 2**20


def cpu_s(pid: int) -> float:
    """Used so far by the whole process; 0 when it is gone."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
