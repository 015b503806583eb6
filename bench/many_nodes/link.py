"""Measures a controller's hub under a fleet of agents over the loopback. Prints Markdown.

    python -m bench.many_nodes.link --agents 2048            # simulated cheaply (simulated_agents.py)
    python -m bench.many_nodes.link --agents 2048 --real 64  # 64 of them by real AgentLinks with spools

The hub's process decodes every report, as a controller does. Then the hub ends, is away for some seconds, and all agents
come back to a new one at once. The agents take their CPU from the same machine. Exits with 1 where anything was lost,
came twice or was refused.
"""

import argparse
import os
import secrets
import select
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bench.many_nodes.simulated_agents import Fleets, Plan, allow_many_files, rss_bytes
from bench.many_nodes.simulated_node import RANKS
from holdfast.link.arrived import Entry, Joined, Left, Refused
from holdfast.link.hub import Hub
from holdfast.model.events import FindingNoted
from holdfast.model.nodes.workers import AnyReport, EventReport
from holdfast.observe.clock import JobClock

REPORTS = 3  # of an agent in a second: samples, step, log
AWAY_S = 5.0
decoder = msgspec.msgpack.Decoder(AnyReport)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=2048)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--real", type=int, default=0, help="agents that are real AgentLinks with spools")
    arguments = parser.parse_args()
    allow_many_files()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        measured = Measured(arguments.agents, arguments.seconds, Path(folder))
        measured.run(arguments.processes, arguments.real)
    raise SystemExit(int(bool(measured.lost or measured.twice or measured.refused)))


class Measured:
    """The controller's side."""

    def __init__(self, agents: int, seconds: float, folder: Path) -> None:
        self.agents, self.seconds, self.folder = agents, seconds, folder
        self.secret = secrets.token_bytes(32)
        self.clock = JobClock()
        self.hub = Hub(secret=self.secret, listen=[("127.0.0.1", 0)], clock=self.clock)
        self.address = self.hub.addresses[0]
        self.there: set[str] = set()
        self.entries = self.body_bytes = self.lost = self.twice = self.refused = 0
        self.waits_s: list[float] = []
        self.last: dict[str, int] = {}

    def run(self, processes: int, real: int) -> None:
        secret_file = self.folder / "secret"
        secret_file.write_bytes(self.secret)
        plan = Plan(
            port=self.address[1],
            secret_file=str(secret_file),
            folder=str(self.folder),
            agents=self.agents,
            first=0,
            count=0,
            real=real,
            runs=True,
        )
        began_s = time.monotonic()
        self.fleets = Fleets(plan, processes)
        try:
            self._until_all_are_there(began_s, 120.0)
            joined_s = time.monotonic() - began_s
            self._for(5.0)
            steady = self._steady()
            again = self._again()
            self._for(3.0)
        finally:
            self.fleets.end()
            self.hub.close()
        rows = [
            ("all agents connected, their processes' start included", f"{joined_s:.1f} s"),
            *steady,
            *again,
            (
                "entries that were lost; came twice; connections refused",
                f"{self.lost}; {self.twice}; {self.refused}",
            ),
        ]
        print(
            f"{self.agents} agents ({real} real links), {self.agents * RANKS} ranks, {self.seconds:g} s; ",
            end="",
        )
        print(f"{os.cpu_count()} cores for all of it, load {os.getloadavg()[0]:.1f}\n")
        print("| What | Measured |\n| --- | --- |")
        for what, measured in rows:
            print(f"| {what} | {measured} |")

    def _steady(self) -> Sequence[tuple[str, str]]:
        self.entries = self.body_bytes = 0
        self.waits_s.clear()
        cpu_s, fleet_s, began_s = time.process_time(), self.fleets.cpu_s(), time.monotonic()
        self._for(self.seconds)
        cpu_s, took_s = time.process_time() - cpu_s, time.monotonic() - began_s
        fleet_s = self.fleets.cpu_s() - fleet_s
        waits_s = sorted(self.waits_s)
        return [
            ("CPU of the hub's process, reports decoded", f"{cpu_s / took_s:.2f} cores"),
            ("CPU of the agents, all together", f"{fleet_s / took_s:.2f} cores"),
            ("memory of the hub's process (RSS)", f"{rss_bytes() / 2**20:.0f} MiB"),
            (
                "reports taken in",
                f"{self.entries / took_s:.0f} a second of {self.agents * REPORTS} that are due",
            ),
            ("their size, expanded", f"{self.body_bytes / took_s / 1e6:.1f} MB/s"),
            ("findings", str(len(waits_s))),
            ("finding -> delivered, median", f"{waits_s[len(waits_s) // 2] * 1000:.0f} ms"),
            ("finding -> delivered, p99", f"{waits_s[len(waits_s) * 99 // 100] * 1000:.0f} ms"),
            ("finding -> delivered, longest", f"{waits_s[-1] * 1000:.0f} ms"),
        ]

    def _again(self) -> Sequence[tuple[str, str]]:
        self.hub.close()
        self.there.clear()
        time.sleep(AWAY_S)
        cpu_s, began_s = time.process_time(), time.monotonic()
        self.hub = Hub(secret=self.secret, listen=[self.address], clock=self.clock, seen=self.last)
        self.waits_s.clear()
        self._until_all_are_there(began_s, 60.0)
        took_s = time.monotonic() - began_s
        self._for(5.0)
        return [
            (f"hub away for {AWAY_S:g} s, then all come back: all connected after", f"{took_s:.1f} s"),
            (
                "CPU of the hub's process for that and 5 s more, what was held back decoded",
                f"{time.process_time() - cpu_s:.1f} s",
            ),
            ("findings of that time: longest until delivered", f"{max(self.waits_s):.1f} s"),
            ("memory of the hub's process (RSS) after it", f"{rss_bytes() / 2**20:.0f} MiB"),
        ]

    def _until_all_are_there(self, began_s: float, limit_s: float) -> None:
        while len(self.there) < self.agents:
            self._turn()
            if time.monotonic() - began_s > limit_s:
                raise SystemExit(
                    f"only {len(self.there)} of {self.agents} agents are there after {limit_s:g} s"
                )

    def _for(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._turn()

    def _turn(self) -> None:
        select.select([self.hub], [], [], 0.1)
        arrived = self.hub.turn()
        now_s = time.time()
        recorded: dict[str, int] = {}
        for one in arrived:
            match one:
                case Entry():
                    self._took(one, now_s)
                    recorded[one.stream] = one.seq
                case Joined():
                    self.there.add(one.peer)
                case Left():
                    self.there.discard(one.peer)
                case Refused():
                    self.refused += 1
        for stream, seq in recorded.items():
            self.hub.recorded(stream, seq)

    def _took(self, entry: Entry, now_s: float) -> None:
        report = decoder.decode(entry.body)
        self.entries += 1
        self.body_bytes += len(entry.body)
        last = self.last.get(entry.stream, entry.seq - 1)
        self.twice += entry.seq <= last
        self.lost += max(0, entry.seq - last - 1)  # an agent that lives leaves out no number
        self.last[entry.stream] = entry.seq
        if isinstance(report, EventReport) and isinstance(report.event, FindingNoted):
            self.waits_s.append(now_s - report.event.at_s)


if __name__ == "__main__":
    main()
