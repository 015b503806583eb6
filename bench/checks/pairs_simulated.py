"""Simulates rounds of pairs over many nodes with planted faults, and counts who is named, wrongly or not.

Every seed is a cluster of its own: bad network cards (all pairs of the node are slow), bad links between two nodes,
slow processors, dead nodes, nodes that are slow every other round, nodes behind a bad switch (fast among themselves,
slow with all others), over measurements that scatter. The rounds are planned and judged by the code of the product.
Prints a table, or with --json one line of JSON. Targets: 1 % bad of 1,024 nodes named within 12 rounds, and no good
node named, over 1,000 seeds.
"""

import argparse
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.core.checks.pairs.plan import next_round
from holdfast.core.checks.pairs.results import Limits, Measured, NodeSample, PairSample, Round, Verdict
from holdfast.core.checks.pairs.verdict import verdict

WHAT = "all-reduce 8 MiB"
GB_PER_S, GFLOP_PER_S = 12.5, 900.0
GROUP_NODES = (2, 4, 8, 16, 32)
ONE_NODE = ("card", "processor", "dead", "intermittent")
MIXES = {
    "cards": ("card",),
    "links": ("link",),
    "far links": ("far link",),
    "processors": ("processor",),
    "dead": ("dead",),
    "intermittent": ("intermittent",),
    "mixed": ("card", "link", "processor", "dead", "intermittent"),
    "mixed and a switch": ("card", "link", "processor", "dead", "intermittent", "switch"),
    "healthy": (),
}


class Fault(NamedTuple):
    """`factor`: of the speed that is left. `rate`: in how many rounds."""

    kind: str
    nodes: tuple[str, ...]
    factor: float
    rate: float = 1.0


class Cluster:
    """`noise`: scatter of a speed's logarithm. `hiccup`: how often a healthy pair is slow once."""

    def __init__(
        self, nodes: int, kinds: Sequence[str], seed: int, *, bad: float, noise: float, hiccup: float
    ):
        self.dice = random.Random(seed)
        self.names = tuple(f"gpu-{number:04}" for number in range(1, nodes + 1))
        self._noise, self._hiccup = noise, hiccup
        self.faults = list(self._planted(kinds, max(1, round(nodes * bad)) if kinds else 0))
        self._of: dict[str, list[Fault]] = {}
        for fault in self.faults:
            for node in fault.nodes:
                self._of.setdefault(node, []).append(fault)

    def _planted(self, kinds: Sequence[str], count: int) -> Iterator[Fault]:
        free = list(self.names)
        self.dice.shuffle(free)
        if "switch" in kinds:
            size = min(self.dice.choice(GROUP_NODES), len(self.names) // 4)
            first = self.dice.randrange(len(self.names) - size + 1)
            members = self.names[first : first + size]
            free = [name for name in free if name not in members]
            yield Fault("switch", members, self.dice.uniform(0.1, 0.6))
            kinds = [kind for kind in kinds if kind != "switch"]
        for number in range(count):
            kind = kinds[number % len(kinds)] if kinds else "card"
            take = 2 if "link" in kind else 1
            nodes, free = tuple(free[:take]), free[take:]
            if kind == "link":
                nodes = self._neighbours(free)
                free = [name for name in free if name not in nodes]
            rate = 0.5 if "intermittent" in kind else 1.0
            yield Fault(kind, nodes, self.dice.uniform(0.1, 0.6), rate)

    def _neighbours(self, free: Sequence[str]) -> tuple[str, str]:
        while True:
            first = self.dice.randrange(len(self.names))
            pair = self.names[first], self.names[(first + 1) % len(self.names)]
            if pair[0] in free and pair[1] in free:
                return pair

    def measure(self, number: int, chosen: Round) -> tuple[list[PairSample], list[NodeSample]]:
        struck = {id(fault): self.dice.random() < fault.rate for fault in self.faults}
        dead = {fault.nodes[0] for fault in self.faults if fault.kind == "dead"}
        singles = [
            self._single(number, node, node in dead)
            for node in (*chosen.alone, *(node for pair in chosen.pairs for node in pair))
        ]
        pairs = [
            PairSample(round=number, a=a, b=b, speeds={WHAT: self._speed(a, b, struck)})
            for a, b in chosen.pairs
            if a not in dead and b not in dead
        ]
        return pairs, singles

    def _single(self, number: int, node: str, is_dead: bool) -> NodeSample:
        if is_dead:
            return NodeSample(round=number, node=node, error="no answer")
        factor = min((f.factor for f in self._of.get(node, ()) if f.kind == "processor"), default=1.0)
        return NodeSample(round=number, node=node, compute={"cpu": GFLOP_PER_S * factor * self._scatter()})

    def _speed(self, a: str, b: str, struck: dict[int, bool]) -> float:
        factor = 1.0
        for fault in {id(f): f for node in (a, b) for f in self._of.get(node, ())}.values():
            if fault.kind in ("card", "intermittent"):
                is_met = True
            elif "link" in fault.kind:
                is_met = {a, b} == set(fault.nodes)
            else:
                is_met = fault.kind == "switch" and (a in fault.nodes) != (b in fault.nodes)
            if is_met and struck[id(fault)]:
                factor = min(factor, fault.factor)
        if self.dice.random() < self._hiccup:
            factor *= self.dice.uniform(0.2, 0.7)
        return GB_PER_S * factor * self._scatter()

    def _scatter(self) -> float:
        return math.exp(self.dice.gauss(0.0, self._noise))


class Score(NamedTuple):
    rounds: int
    verdict: Verdict
    found: list[Fault]
    missed: list[Fault]
    wrong: list[str]  # a good node is named, or a link between two that are good
    misplaced: list[str]  # a bad node is named, and not for what is wrong with it


def played(cluster: Cluster, limits: Limits) -> Score:
    """All rounds of one cluster, and what the verdict is worth."""
    measured = Measured(nodes=cluster.names)
    while (chosen := next_round(measured, limits)) is not None:
        pairs, singles = cluster.measure(measured.rounds, chosen)
        measured = Measured(
            nodes=measured.nodes,
            rounds=measured.rounds + 1,
            pairs=(*measured.pairs, *pairs),
            singles=(*measured.singles, *singles),
        )
    return scored(measured.rounds, verdict(measured, limits), cluster.faults)


def scored(rounds: int, told: Verdict, faults: Sequence[Fault]) -> Score:
    """A fault counts as found only under its own name and with its own nodes, all of them and no other."""
    said = {(blame.kind, blame.nodes) for blame in told.blames}
    kind_of = {"processor": "compute", "dead": "silent", "link": "link", "far link": "link"}
    expected = {
        (kind_of.get(f.kind, "group" if len(f.nodes) > 1 else "communication"), tuple(sorted(f.nodes))): f
        for f in faults
    }
    found = [fault for key, fault in expected.items() if key in said]
    missed = [fault for key, fault in expected.items() if key not in said]
    bad = {node for fault in faults for node in fault.nodes}
    wrong, misplaced = [], []
    for kind, nodes in sorted(said - expected.keys()):
        is_near = bool(bad & set(nodes)) if kind == "link" else set(nodes) <= bad
        (misplaced if is_near else wrong).append(f"{kind}: {', '.join(nodes)}")
    return Score(rounds, told, found, missed, wrong, misplaced)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--bad", type=float, default=0.01, help="of the nodes")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--hiccup", type=float, default=0.0)
    parser.add_argument("--rounds-min", type=int, default=12)
    parser.add_argument("--rounds-max", type=int, default=12)
    parser.add_argument("--mix", action="append", choices=MIXES)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    limits = Limits(rounds_min=asked.rounds_min, rounds_max=asked.rounds_max)
    rows = []
    for mix in asked.mix or MIXES:
        began_s = time.perf_counter()
        row = tried(mix, range(asked.first_seed, asked.first_seed + asked.seeds), asked, limits)
        row["seconds"] = round(time.perf_counter() - began_s, 1)
        rows.append(row)
        if not asked.json:
            _print(row)
    if asked.json:
        print(json.dumps({"nodes": asked.nodes, "noise": asked.noise, "hiccup": asked.hiccup, "mixes": rows}))


def tried(mix: str, seeds: range, asked: argparse.Namespace, limits: Limits) -> dict[str, object]:
    found: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    rounds: list[int] = []
    wrong: list[str] = []
    misplaced: list[str] = []
    for seed in seeds:
        cluster = Cluster(
            asked.nodes, MIXES[mix], seed, bad=asked.bad, noise=asked.noise, hiccup=asked.hiccup
        )
        score = played(cluster, limits)
        rounds.append(score.rounds)
        found.update(fault.kind for fault in score.found)
        planted.update(fault.kind for fault in cluster.faults)
        wrong += [f"seed {seed}: {one}" for one in score.wrong]
        misplaced += [f"seed {seed}: {one}" for one in score.misplaced]
        if sys.stderr.isatty():
            print(f"\r{mix} {seed}", end="", file=sys.stderr)
    return {
        "mix": mix,
        "seeds": f"{seeds.start}-{seeds.stop - 1}",
        "rounds_mean": round(sum(rounds) / len(rounds), 2),
        "rounds_max": max(rounds),
        "planted": dict(planted),
        "found": dict(found),
        "good_nodes_blamed": len(wrong),
        "misplaced": len(misplaced),
        "wrong": (wrong + misplaced)[:20],
    }


def _print(row: dict[str, object]) -> None:
    planted, found = row["planted"], row["found"]
    assert isinstance(planted, dict) and isinstance(found, dict), "counters"
    share = ", ".join(
        f"{kind} {found.get(kind, 0)}/{count} ({found.get(kind, 0) / count:.2%})"
        for kind, count in sorted(planted.items())
    )
    print(
        f"{row['mix']:<20} seeds {row['seeds']}  rounds {row['rounds_mean']} (at most {row['rounds_max']})"
        f"  good blamed {row['good_nodes_blamed']}, misplaced {row['misplaced']}  {row['seconds']} s"
    )
    print(f"{'':<20} named: {share or 'nothing planted'}")
    for line in row["wrong"] if isinstance(row["wrong"], list) else ():
        print(f"{'':<20} wrong: {line}")


if __name__ == "__main__":
    main()
