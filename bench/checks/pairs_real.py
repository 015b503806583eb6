"""Measures real hosts in pairs, with a fault planted in one of them, and says who was named.

Hosts are network namespaces on one bridge, each with a rate of its own; torch and gloo run in them as they would on
nodes. Needs root, `ip` and `tc` with htb, tbf and u32. Prints a table, or with --json one line of JSON for each case.
Target: with 4 to 6 hosts, what is slowed to a tenth is named, and nothing else.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from bench.hang.places import NotHere, tried
from holdfast.checks.training_python.pairs import PairRun, Settings
from holdfast.core.checks.pairs.results import Limits, Verdict
from holdfast.core.checks.pairs.verdict import verdict

RATE_MBIT = 400
BURST = "64kb"
SIZES = (1 << 10, 4 << 20)
WITHIN_S = 240.0


class Star:
    """`count` hosts on one bridge, which is a namespace too. Every port gives `RATE_MBIT` both ways."""

    def __init__(self, count: int) -> None:
        self.tag = f"hp{os.getpid()}"
        self.names = tuple(f"{self.tag}-{number:02}" for number in range(1, count + 1))
        self.switch = f"{self.tag}-sw"

    def __enter__(self) -> Self:
        """raises: NotHere"""
        try:
            tried(["ip", "netns", "add", self.switch])
            tried(["ip", "-n", self.switch, "link", "add", "br0", "type", "bridge"])
            tried(["ip", "-n", self.switch, "link", "set", "br0", "up"])
            for number, name in enumerate(self.names, 1):
                self._add(number, name)
        except NotHere:
            self.__exit__()
            raise
        return self

    def _add(self, number: int, name: str) -> None:
        port = f"p{number}"
        tried(["ip", "netns", "add", name])
        ends = [port, "netns", self.switch, "type", "veth", "peer", "name", "eth0", "netns", name]
        tried(["ip", "link", "add", *ends])
        tried(["ip", "-n", name, "addr", "add", f"10.79.0.{number}/24", "dev", "eth0"])
        for link in ("eth0", "lo"):
            tried(["ip", "-n", name, "link", "set", link, "up"])
        tried(["ip", "-n", self.switch, "link", "set", port, "master", "br0"])
        tried(["ip", "-n", self.switch, "link", "set", port, "up"])
        tried(["tc", "-n", name, *"qdisc add dev eth0 root handle 1: htb default 1".split()])
        self.limit_node(name, RATE_MBIT)

    @property
    def via(self) -> str:
        return "nsenter --net=/run/netns/{node} env OMP_NUM_THREADS=1"

    def limit_node(self, name: str, mbit: float) -> None:
        """Everything that the node sends and gets."""
        number = self.names.index(name) + 1
        tried(["tc", "-n", self.switch, *f"qdisc replace dev p{number} root".split(), *_bucket(mbit)])
        tc = ["tc", "-n", name]
        tried(
            [*tc, *f"class replace dev eth0 parent 1: classid 1:1 htb rate {mbit}mbit burst {BURST}".split()]
        )

    def limit_link(self, one: str, other: str, mbit: float) -> None:
        """What the two send each other, and nothing else."""
        for name, peer in ((one, other), (other, one)):
            to = f"10.79.0.{self.names.index(peer) + 1}/32"
            tc = ["tc", "-n", name]
            rate = f"rate {mbit}mbit burst 8kb"
            tried([*tc, *f"class add dev eth0 parent 1: classid 1:2 htb {rate}".split()])
            tried(
                [*tc, *f"filter add dev eth0 parent 1: protocol ip u32 match ip dst {to} flowid 1:2".split()]
            )

    def cut(self, name: str) -> None:
        tried(["ip", "-n", self.switch, "link", "set", f"p{self.names.index(name) + 1}", "down"])

    def __exit__(self, *_: object) -> None:
        for name in (*self.names, self.switch):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _bucket(mbit: float) -> list[str]:
    return f"tbf rate {mbit}mbit burst {BURST} latency 50ms".split()


class Case(NamedTuple):
    """`plant`: what to do before; `expected`: kind and numbers of the hosts to name."""

    name: str
    hosts: int
    plant: Callable[[Star], None]
    expected: set[tuple[str, tuple[int, ...]]]
    via: str = ""
    spares: int = 0


def _slow_node(number: int) -> Callable[[Star], None]:
    return lambda star: star.limit_node(star.names[number - 1], RATE_MBIT / 10)


def _slow_link(one: int, other: int) -> Callable[[Star], None]:
    return lambda star: star.limit_link(star.names[one - 1], star.names[other - 1], RATE_MBIT / 10)


def _cut(number: int) -> Callable[[Star], None]:
    return lambda star: star.cut(star.names[number - 1])


def _nothing(star: Star) -> None:
    pass


def _both(*plants: Callable[[Star], None]) -> Callable[[Star], None]:
    def plant(star: Star) -> None:
        for one in plants:
            one(star)

    return plant


CASES = (
    Case("healthy, 4 hosts", 4, _nothing, set()),
    Case("healthy, 5 hosts", 5, _nothing, set()),
    Case("a node at a tenth, 4 hosts", 4, _slow_node(3), {("communication", (3,))}),
    Case("a node at a tenth, 5 hosts", 5, _slow_node(1), {("communication", (1,))}),
    Case("a node at a tenth, 6 hosts", 6, _slow_node(6), {("communication", (6,))}),
    Case("a link at a tenth, 4 hosts", 4, _slow_link(2, 3), {("link", (2, 3))}),
    Case("a link at a tenth, 5 hosts", 5, _slow_link(1, 4), {("link", (1, 4))}),
    Case("a link at a tenth, 6 hosts", 6, _slow_link(5, 6), {("link", (5, 6))}),
    Case(
        "two nodes at a tenth, 6 hosts",
        6,
        _both(_slow_node(2), _slow_node(5)),
        {("communication", (2,)), ("communication", (5,))},
    ),
    Case("a node cut off, 4 hosts", 4, _cut(2), {("communication", (2,))}),
    Case("a node cut off, 3 hosts", 3, _cut(2), {("communication", (2,))}),
    Case("a node cut off, 2 hosts", 2, _cut(2), {("one-of", (1, 2))}),
    Case("a node cut off, 2 hosts and a spare", 2, _cut(2), {("communication", (2,))}, spares=2),
    Case("a node that cannot be reached, 4 hosts", 4, _nothing, {("silent", (4,))}, via="gone"),
    Case("a node frozen in the middle, 4 hosts", 4, _nothing, {("silent", (4,))}, via="frozen"),
)


def tried_case(case: Case, rounds: int) -> dict[str, object]:
    """raises: NotHere"""
    with Star(case.hosts + case.spares) as star:
        case.plant(star)
        nodes, spares = star.names[: case.hosts], star.names[case.hosts :]
        if case.via == "gone":
            subprocess.run(["ip", "netns", "delete", star.names[-1]], check=False, capture_output=True)
        limits = Limits(rounds_min=rounds) if rounds else Limits()
        settings = Settings(
            via=star.via, python=sys.executable, within_s=WITHIN_S, sizes=SIZES, limits=limits, round_s=15.0
        )
        run = PairRun(nodes, settings, spares)
        began_s = time.monotonic()
        with _frozen(star.names[-1], case.via == "frozen") as freeze:
            done = run.run(lambda number, _chosen: freeze(number))
        found = verdict(done.measured, limits)
        left = _processes_in(star)
    names = [*nodes, *spares]
    told = {(blame.kind, tuple(names.index(node) + 1 for node in blame.nodes)) for blame in found.blames}
    return {
        "case": case.name,
        "named": sorted(told),
        "right": told == case.expected,
        "rounds": done.measured.rounds,
        "seconds": round(time.monotonic() - began_s, 1),
        "speeds": _speeds(found),
        "unsure": len(found.unsure),
        "left_behind": left,
    }


@contextmanager
def _frozen(name: str, asked: bool) -> Iterator[Callable[[int], None]]:
    """Stops the worker of a host, and all in it, in the second round; a stopped one is killed at the end anyway."""
    stopping = threading.Event()

    def stop() -> None:
        while not stopping.wait(0.05):
            for pid in _pids_in(name):
                _signal(pid, signal.SIGSTOP)

    thread = threading.Thread(target=stop)

    def freeze(number: int) -> None:
        if asked and number == 1:
            thread.start()

    try:
        yield freeze
    finally:
        stopping.set()
        if thread.ident is not None:
            thread.join()
            for pid in _pids_in(name):
                _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _pids_in(name: str) -> list[int]:
    try:
        inode = Path("/run/netns", name).stat().st_ino
    except OSError:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "ns/net").stat().st_ino == inode:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _processes_in(star: Star) -> int:
    return sum(len(_pids_in(name)) for name in star.names)


def _speeds(found: Verdict) -> str:
    told = [f"{blame.speed * 1000:.1f} of {blame.expected * 1000:.1f} MB/s" for blame in found.blames]
    usual = [f"{what}: {speed * 1000:.2f} MB/s" for what, speed in found.expected.items()]
    return "; ".join(told or usual)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", help="cases whose name has this in it")
    parser.add_argument("--rounds", type=int, default=0, help="at least so many; 0: as few as it takes")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    right = tried_cases = 0
    for case in CASES:
        if asked.only and not any(part in case.name for part in asked.only):
            continue
        try:
            row = tried_case(case, asked.rounds)
        except NotHere as error:
            print(f"left out: {case.name}: {error}")
            continue
        tried_cases += 1
        right += bool(row["right"])
        print(json.dumps(row) if asked.json else _line(row), flush=True)
    if not asked.json:
        print(f"right: {right} of {tried_cases}")


def _line(row: dict[str, object]) -> str:
    mark = "right" if row["right"] else "WRONG"
    return (
        f"{mark}  {row['case']:<40} {row['rounds']:>2} rounds {row['seconds']:>6} s  named {row['named']}"
        f"  {row['speeds']}  unsure {row['unsure']}  left {row['left_behind']}"
    )


if __name__ == "__main__":
    main()
