"""How soon a slowdown is found, and how often a healthy training is called slow: four rules on the same series.

    python -m bench.steps.slowdown [--series 1000] [--healthy 100000] [--seed 5]

Prints one Markdown table: of simulated series (bench/steps/series.py) with a lasting slowdown of 5, 10, 20 and 50 %,
how many were told within 10 and within 30 steps, with the delay; and false alarms per 100,000 healthy steps. A false
alarm is counted when it begins, not for each step that it goes on.

The rules beside Holdfast's own:

- aistudio: the platform's own, as `core/steps/aistudio.py` has it.
- ModelArts: 20/20/5 sigma/4. Not public in detail. Read as: the mean and standard deviation of the first 20 steps
  after a start of 20 steps that do not count; an alarm at the fourth step in a row above the mean by 5 sigma.
- MindCluster: 3 sigma + 30 % x 3. Read as: an alarm at the third step in a row above the mean of the steps before by
  3 sigma and by 30 %; the steps before are the last 100, those above the limit not among them.
"""

import argparse
import math
import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from bench.steps.series import KINDS, ROUGH, Kind, series, slow
from holdfast.core.steps.aistudio import AistudioRule
from holdfast.core.steps.watch import StepWatch
from holdfast.model.steps import StepRecord

ONSETS = (150, 900)  # the slowdown begins at a step between these
RATIOS = (1.05, 1.10, 1.20, 1.50)
WITHIN = (10, 30)
AWAY = 40  # steps from a change of batch
WATCHED = 200  # steps after the onset
HEALTHY_STEPS = 2000  # in one series


class Rule(Protocol):
    def feed(self, record: StepRecord) -> bool:
        """True: this step begins an alarm."""


class Own:
    def __init__(self) -> None:
        self._watch = StepWatch()

    def feed(self, record: StepRecord) -> bool:
        return any(finding.kind == "slowdown" for finding in self._watch.feed(record))


class Aistudio:
    def __init__(self) -> None:
        self._rule = AistudioRule()
        self._on = False
        self._silent = 0

    def feed(self, record: StepRecord) -> bool:
        warned = self._rule.feed(record) is not None
        began = warned and not self._on
        # A line comes for each window of five: an alarm goes on while they follow one another.
        self._silent = 0 if warned else self._silent + 1
        self._on = warned or (self._on and self._silent < 5)
        return began


class ModelArts:
    """20 steps of start, 20 of baseline, 5 sigma, 4 in a row."""

    def __init__(self) -> None:
        self._seen = 0
        self._base: list[float] = []
        self._limit = 0.0
        self._above = 0

    def feed(self, record: StepRecord) -> bool:
        assert record.time_s is not None
        self._seen += 1
        if self._seen <= 20:
            return False
        if len(self._base) < 20:
            self._base.append(record.time_s)
            self._limit = statistics.mean(self._base) + 5 * statistics.pstdev(self._base)
            return False
        self._above = self._above + 1 if record.time_s > self._limit else 0
        return self._above == 4


class MindCluster:
    """3 sigma and 30 %, three in a row."""

    def __init__(self) -> None:
        self._last: deque[float] = deque()
        self._sum = self._squares = 0.0
        self._above = 0

    def feed(self, record: StepRecord) -> bool:
        assert record.time_s is not None
        value, count = record.time_s, len(self._last)
        if count >= 10:
            mean = self._sum / count
            sigma = math.sqrt(max(self._squares / count - mean * mean, 0.0))
            if value > max(mean + 3 * sigma, mean * 1.3):
                self._above += 1
                return self._above == 3
        self._above = 0
        self._last.append(value)
        self._sum += value
        self._squares += value * value
        if len(self._last) > 100:
            oldest = self._last.popleft()
            self._sum -= oldest
            self._squares -= oldest * oldest
        return False


RULES: dict[str, Callable[[], Rule]] = {
    "Holdfast": Own,
    "aistudio": Aistudio,
    "ModelArts": ModelArts,
    "MindCluster": MindCluster,
}


def onset_of(kind: Kind, seed: str) -> int:
    """When the slowdown begins; not within 40 steps of a change of batch, after which any rule learns anew."""
    dice = random.Random(f"{seed}-onset")
    while True:
        onset = dice.randint(*ONSETS)
        if not kind.batch_every or AWAY <= onset % kind.batch_every <= kind.batch_every - AWAY:
            return onset


def delays(kinds: list[Kind], ratio: float, count: int, seed: int) -> dict[str, list[int | None]]:
    """For each rule and series, the steps from the first slow one to the alarm, both counted; None: not told.

    An alarm from before the onset does not count.
    """
    found: dict[str, list[int | None]] = {name: [] for name in RULES}
    for number in range(count):
        kind, name = kinds[number % len(kinds)], f"{seed}-{number}"
        onset = onset_of(kind, name)
        rules = {rule: make() for rule, make in RULES.items()}
        told: dict[str, int] = {}
        for record in slow(series(kind, onset + WATCHED, name), ratio, onset):
            assert record.step is not None
            for rule, watch in rules.items():
                if rule not in told and watch.feed(record) and record.step >= onset:
                    told[rule] = record.step - onset + 1
        for rule in RULES:
            found[rule].append(told.get(rule))
    return found


def false_alarms(kind: Kind, steps: int, seed: int) -> dict[str, float]:
    """Of each rule, per 100,000 healthy steps."""
    alarms = dict.fromkeys(RULES, 0)
    parts = max(steps // HEALTHY_STEPS, 1)
    for number in range(parts):
        rules = {rule: make() for rule, make in RULES.items()}
        for record in series(kind, HEALTHY_STEPS, f"{seed}-healthy-{number}"):
            for rule, watch in rules.items():
                alarms[rule] += watch.feed(record)
    return {rule: count * 100_000 / (parts * HEALTHY_STEPS) for rule, count in alarms.items()}


def _share(found: list[int | None], within: int) -> str:
    share = 100 * sum(one is not None and one <= within for one in found) / len(found)
    return f"{share:.1f} %"


def _percentile(found: list[int | None], share: float) -> str:
    """Of all series: one that was never told is the slowest."""
    ordered = sorted(one if one is not None else WATCHED + 1 for one in found)
    value = ordered[min(int(share * len(ordered)), len(ordered) - 1)]
    return str(value) if value <= WATCHED else "never"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--series", type=int, default=1000, help="for each rule and ratio (default 1000)")
    parser.add_argument(
        "--healthy", type=int, default=100_000, help="healthy steps of each kind (default 100000)"
    )
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    began_s = time.perf_counter()
    kinds = list(KINDS.values())
    print(f"seed {args.seed}, {args.series} series of {len(kinds)} kinds for each figure\n")
    print(
        "| rule | slower by | within 10 steps | within 30 steps | delay p50 | p95 |\n|---|---|---|---|---|---|"
    )
    by_ratio = {ratio: delays(kinds, ratio, args.series, args.seed) for ratio in RATIOS}
    for name in RULES:
        for ratio, by_rule in by_ratio.items():
            found = by_rule[name]
            figures = [
                *(_share(found, within) for within in WITHIN),
                _percentile(found, 0.5),
                _percentile(found, 0.95),
            ]
            print(f"| {name} | {ratio - 1:.0%} | " + " | ".join(figures) + " |", flush=True)
    print(f"\nFalse alarms per 100,000 healthy steps ({args.healthy} steps of each kind)\n")
    print("| kind | " + " | ".join(RULES) + " |\n|---|" + "---|" * len(RULES))
    for name, kind in {**KINDS, **ROUGH}.items():
        alarms = false_alarms(kind, args.healthy, args.seed)
        print(f"| {name} | " + " | ".join(f"{alarms[rule]:.0f}" for rule in RULES) + " |", flush=True)
    print(f"\n{time.perf_counter() - began_s:.0f} s")


if __name__ == "__main__":
    main()
