"""Measures a controller's hub under a fleet of agents that are real AgentLinks over the loopback. Prints Markdown.

Each agent sends once a second what the agents of nodes with 8 ranks do: samples, a piece of log, beats; all of them
together some findings. The hub's process decodes every report, as a controller does. Then the hub ends, is away for
some seconds, and all agents come back to a new one at once. The agents take their CPU from the same machine.
"""

import argparse
import os
import random
import resource
import secrets
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from holdfast.link.agent_link import AgentLink
from holdfast.link.arrived import Entry, Joined, Left, Refused
from holdfast.link.hub import Hub
from holdfast.model.events import FindingNoted
from holdfast.model.flight import GroupStatus
from holdfast.model.nodes import AnyReport, Sampled, Shipped, Told
from holdfast.model.samples import RankSample
from holdfast.observe.clock import JobClock

RANKS = 8
LINE = (
    b"2026-01-31 15:02:11,482 INFO iteration %8d/ 500000 | consumed samples: %12d | lm loss: 2.1%05dE+00 |\n"
)
LINES_A_SECOND = 10
FINDINGS_A_SECOND = 50.0  # of the whole fleet
VARIANTS = 256  # of what a process of agents sends: packing it is not what is measured
REPORTS_A_ROUND = 300
TURN_S = 0.2  # of an agent with nothing to do
AWAY_S = 5.0
decoder = msgspec.msgpack.Decoder(AnyReport)
pack = msgspec.msgpack.encode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=2048)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument(
        "--fleet", nargs=4, help=argparse.SUPPRESS
    )  # port, first, count, file with the secret
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # three descriptors an agent
    if arguments.fleet:
        port, first, count = map(int, arguments.fleet[:3])
        Fleet(
            port, range(first, first + count), Path(arguments.fleet[3]).read_bytes(), arguments.agents
        ).run()
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        secret_file = Path(folder, "secret")
        secret_file.write_bytes(secrets.token_bytes(32))
        Measured(arguments.agents, arguments.processes, arguments.seconds, secret_file).run()


class Measured:
    """The controller's side."""

    def __init__(self, agents: int, processes: int, seconds: float, secret_file: Path) -> None:
        self.agents, self.processes, self.seconds = agents, processes, seconds
        self.secret_file = secret_file
        self.clock = JobClock()
        self.hub = Hub(secret=secret_file.read_bytes(), listen=[("127.0.0.1", 0)], clock=self.clock)
        self.address = self.hub.addresses[0]
        self.there: set[str] = set()
        self.entries = self.body_bytes = self.findings = self.twice = self.refused = 0
        self.waits_s: list[float] = []
        self.last: dict[str, int] = {}

    def run(self) -> None:
        fleets = self._fleets()
        try:
            began_s = time.monotonic()
            self._until_all_are_there(began_s, 120.0)
            joined_s = time.monotonic() - began_s
            self._for(5.0)
            steady = self._steady()
            again = self._again()
            self._for(3.0)
        finally:
            for fleet in fleets:
                fleet.kill()
                fleet.wait()
            self.hub.close()
        rows = [
            ("all agents connected, their processes' start included", f"{joined_s:.1f} s"),
            *steady,
            *again,
        ]
        rows.append(("entries that came twice; connections refused", f"{self.twice}; {self.refused}"))
        print(f"{self.agents} agents, {self.agents * RANKS} ranks, {self.seconds:g} s; ", end="")
        print(f"{os.cpu_count()} cores for all of it, load {os.getloadavg()[0]:.1f}\n")
        print("| What | Measured |\n| --- | --- |")
        for what, measured in rows:
            print(f"| {what} | {measured} |")

    def _fleets(self) -> list[subprocess.Popen[bytes]]:
        share = -(-self.agents // self.processes)
        starts = range(0, self.agents, share)
        return [
            subprocess.Popen(
                [sys.executable, __file__, "--agents", str(self.agents), "--fleet", str(self.address[1])]
                + [str(first), str(min(share, self.agents - first)), str(self.secret_file)]
            )
            for first in starts
        ]

    def _steady(self) -> Sequence[tuple[str, str]]:
        self.entries = self.body_bytes = self.findings = 0
        self.waits_s.clear()
        cpu_s, began_s = time.process_time(), time.monotonic()
        self._for(self.seconds)
        cpu_s, took_s = time.process_time() - cpu_s, time.monotonic() - began_s
        waits_s = sorted(self.waits_s)
        return [
            ("CPU of the hub's process, reports decoded", f"{cpu_s / took_s:.2f} cores"),
            ("its memory (RSS)", f"{_rss_bytes() / 2**20:.0f} MiB"),
            ("reports taken in", f"{self.entries / took_s:.0f} a second of {self.agents * 2} that are due"),
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
        secret = self.secret_file.read_bytes()
        self.hub = Hub(secret=secret, listen=[self.address], clock=self.clock, seen=self.last)
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
            ("memory of the hub's process (RSS) after it", f"{_rss_bytes() / 2**20:.0f} MiB"),
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
        self.twice += entry.seq <= self.last.get(entry.stream, 0)
        self.last[entry.stream] = entry.seq
        if isinstance(report, Told):
            self.waits_s.append(now_s - report.event.at_s)


class Fleet:
    """Many agents in one process, each with its link; ends with the process that started it."""

    def __init__(self, port: int, numbers: range, secret: bytes, agents: int) -> None:
        self.dice = random.Random(numbers.start)
        self.clock = JobClock()
        self.finding_chance = FINDINGS_A_SECOND / agents
        self.bodies = [_bodies(number, self.dice.randrange(1_000_000)) for number in numbers][:VARIANTS]
        self.links = [
            AgentLink(
                name=f"node-{number:04}",
                role="agent",
                secret=secret,
                where=lambda: [("127.0.0.1", port)],
                hello=lambda: b"x" * 200,
                spool=None,
                clock=self.clock,
                dice=self.dice.random,
            )
            for number in numbers
        ]
        self.poll = select.epoll()
        self.by_descriptor = {link.fileno(): link for link in self.links}
        for descriptor in self.by_descriptor:
            self.poll.register(descriptor, select.EPOLLIN)

    def run(self) -> None:
        parent = os.getppid()
        now_s = time.monotonic()
        due_s = [now_s + self.dice.random() for _ in self.links]
        turned_s = list(due_s)
        while os.getppid() == parent:
            for descriptor, _ in self.poll.poll(0.02, 512):
                self.by_descriptor[descriptor].turn()
            now_s = time.monotonic()
            reports = 0
            for index, link in enumerate(self.links):
                if now_s >= due_s[index] and reports < REPORTS_A_ROUND:
                    self._report(link)
                    reports += 1
                    due_s[index] = max(
                        due_s[index] + 1.0, now_s
                    )  # where the machine is too slow: later, not twice
                if now_s - turned_s[index] >= TURN_S:
                    turned_s[index] = now_s
                    link.turn()

    def _report(self, link: AgentLink) -> None:
        sampled, shipped = self.dice.choice(self.bodies)
        link.send(sampled, drop=True)
        link.send(shipped, drop=True)
        if self.dice.random() < self.finding_chance:
            text = "rank 3: uncorrectable error of the memory of a device, 12 rows are being remapped"
            link.send(pack(Told(event=FindingNoted(at_s=time.time(), finding="xid", text=text, attempt=1))))


def _bodies(worker: int, step: int) -> tuple[bytes, bytes]:
    """Samples of the ranks of one worker, and a piece of its log."""
    at_s = time.time()
    ranks = tuple(_sample(at_s, worker * RANKS + local, step) for local in range(RANKS))
    sampled = Sampled(
        attempt=1, worker=worker, at_s=at_s, ranks=ranks, world_size=16384, log_bytes=step * 1000, step=step
    )
    lines = b"".join(LINE % (step, step * 1024, n * 977 % 99999) for n in range(LINES_A_SECOND))
    shipped = Shipped(attempt=1, worker=worker, name="stdout", offset=step * len(lines), data=lines)
    return pack(sampled), pack(shipped)


def _sample(at_s: float, rank: int, step: int) -> RankSample:
    busy = rank * 37 + step
    return RankSample(
        at_s=at_s + rank % 8 / 1000,
        rank=rank,
        pid=40_000 + rank,
        state="RS"[busy % 2],
        main_cpu_s=busy * 0.01,
        tree_cpu_s=busy * 0.17,
        io_bytes=busy << 20,
        disk_bytes=busy << 12,
        write_bytes=busy << 10,
        disk_write_bytes=busy << 9,
        wait_channel="futex_wait_queue" if busy % 2 else "",
        children=9,
        running_children=busy % 3,
        child_names=("pt_data_worker", "pt_main_thread"),
        child_channels=("do_poll.constprop.0",),
        log_bytes=step * 100,
        step=step,
        groups=(GroupStatus(0, busy, busy, busy - 1), GroupStatus(1, busy * 3, busy * 3, busy * 3)),
    )


def _rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
