"""Measures a whole controller of many nodes under a fleet of agents that are real links over the loopback. Prints Markdown.

What is measured is all of it: hub, crew, hang detection over all ranks, journal, and the core's decisions. Agents start
their worker when they are told to, then send once a second the samples of 8 ranks, a step, and all together some findings. A
finding is followed from when it is sent until the core has decided on it and it is handed to the journal. Then the
controller ends, another takes its journal up, and all agents come back at once. The agents' CPU is the same machine's.
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
from pathlib import Path

import msgspec

from holdfast.controller.conclusion import Concluding
from holdfast.controller.crew import CrewEngine, Parts
from holdfast.controller.hang_watch import HangWatching
from holdfast.controller.loop import Controller, decisions
from holdfast.controller.shipped import ShippedFiles
from holdfast.core.crew import Crew
from holdfast.core.crew_memory import Memory
from holdfast.core.crew_roster import Settings
from holdfast.core.decision import Decision
from holdfast.journal.recorder import Recorder
from holdfast.journal.store import open_reader
from holdfast.link.agent_link import AgentLink
from holdfast.link.heard import Ordered
from holdfast.link.hub import Hub
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    FindingNoted,
    JobSubmitted,
    RankStarted,
    StepReached,
    Tick,
)
from holdfast.model.nodes import (
    AgentHello,
    AnyCommand,
    AnyNews,
    FindPort,
    PortFound,
    Sampled,
    SetUp,
    StartWorker,
    Told,
)
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.model.state import State
from holdfast.observe.clock import JobClock
from link_fleet import RANKS, _bodies, _rss_bytes

VERSION = "bench"
FINDINGS_A_SECOND = 50.0  # of the whole fleet
TURN_S = 0.2  # of an agent with nothing to do
REPORTS_A_ROUND = 300
AWAY_S = 5.0
POLICY = Policy(max_restarts=1, boot_check="off")
pack = msgspec.msgpack.encode
unpack = msgspec.msgpack.Decoder(AnyCommand).decode
samples_of = msgspec.msgpack.Decoder(Sampled).decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=2048)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--fleet", nargs=4, help=argparse.SUPPRESS)  # port, first, count, secret's file
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if arguments.fleet:
        port, first, count = map(int, arguments.fleet[:3])
        secret = Path(arguments.fleet[3]).read_bytes()
        Fleet(port, range(first, first + count), secret, arguments.agents).run()
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        Measured(arguments.agents, arguments.processes, arguments.seconds, Path(folder)).run()


class Nodes:
    """An engine that has its nodes, and nothing to say of them."""

    def __init__(self, count: int) -> None:
        self.nodes = tuple(name_of(number) for number in range(count))

    def turn(self) -> list[AnyNews]:
        return []

    def channels(self) -> list[int]:
        return []

    def ask(self, node: str) -> None: ...

    def agent_again(self, node: str) -> None: ...

    def more_nodes(self, workers: int, without: object) -> None: ...


class NoCalls:
    def hear(self, peer: str, body: bytes) -> bool:
        return False

    def left(self, peer: str) -> None: ...

    def turn(self) -> None: ...


class Measured:
    """The controller's side."""

    def __init__(self, agents: int, processes: int, seconds: float, folder: Path) -> None:
        self.agents, self.processes, self.seconds, self.folder = agents, processes, seconds, folder
        self.secret = folder / "secret"
        self.secret.write_bytes(secrets.token_bytes(32))
        self.clock = JobClock()
        self.engine = Nodes(agents)
        self.waits_s: list[float] = []
        self.turns_s: list[float] = []
        self.started = 0
        self.address = ("127.0.0.1", 0)
        self.ticked_s = 0.0
        self._open(Memory())

    def _open(self, memory: Memory, state: State | None = None) -> None:
        self.record = Recorder(self.folder / "journal.db", self.clock, print)
        self.hub = Hub(
            secret=self.secret.read_bytes(), listen=[self.address], clock=self.clock, seen=memory.seen
        )
        self.address = self.hub.addresses[0]
        self.crew = Crew("bench", self.engine.nodes, Settings(checks=False), VERSION, "b", memory)
        run = RunSettings(command=("true",), state_dir=str(self.folder))
        self.machine = CrewEngine(
            self.crew,
            self.hub,
            self.engine,  # type: ignore[arg-type]
            SetUp(job="bench", folder=str(self.folder), cwd="/", settings=run, token="t"),
            self._parts,
            self.clock,
            lambda event: self.controller.handle(event),
            lambda: self.record.flush(),
        )
        self.controller = Controller(POLICY, self.record, self.machine, self._decided, state)

    def _parts(self, machine: CrewEngine) -> Parts:
        self.hangs = HangWatching(self.crew, POLICY, 30.0, self.clock, machine.note)
        conclusion = Concluding(
            self.crew, POLICY, dict, lambda: self.hangs.hang, lambda: None, lambda case: None, 12.0
        )
        files = ShippedFiles(self.folder, self.clock)
        return Parts(hangs=self.hangs, conclusion=conclusion, calls=NoCalls(), files=files)

    def _decided(self, event: AnyEvent, decision: Decision) -> None:
        self.machine.decided(event)
        if isinstance(event, FindingNoted) and event.finding == "xid":
            self.waits_s.append(time.time() - float(str(event.numbers["sent_s"])))
        self.started += isinstance(event, AttemptStarted)

    def run(self) -> None:
        fleets = self._fleets()
        try:
            began_s = time.monotonic()
            self.controller.handle(JobSubmitted(at_s=self.clock(), job="bench", workers=self.agents))
            self._until(lambda: self.started > 0, 180.0, "has started")
            rows = [
                (
                    "from nothing to all workers started, the agents' processes too",
                    f"{time.monotonic() - began_s:.1f} s",
                )
            ]
            self._for(5.0)
            rows += self._steady()
            rows += self._again()
        finally:
            for fleet in fleets:
                fleet.kill()
                fleet.wait()
            self.hub.close()
            self.record.close()
        print(f"{self.agents} agents, {self.agents * RANKS} ranks, {self.seconds:g} s; ", end="")
        print(f"{os.cpu_count()} cores for all of it, load {os.getloadavg()[0]:.1f}\n")
        print("| What | Measured |\n| --- | --- |")
        for what, measured in rows:
            print(f"| {what} | {measured} |")

    def _fleets(self) -> list[subprocess.Popen[bytes]]:
        share = -(-self.agents // self.processes)
        return [
            subprocess.Popen(
                [sys.executable, __file__, "--agents", str(self.agents), "--fleet", str(self.address[1])]
                + [str(first), str(min(share, self.agents - first)), str(self.secret)]
            )
            for first in range(0, self.agents, share)
        ]

    def _steady(self) -> list[tuple[str, str]]:
        self.waits_s.clear()
        self.turns_s.clear()
        cpu_s, began_s = time.process_time(), time.monotonic()
        self._for(self.seconds)
        cpu_s, took_s = time.process_time() - cpu_s, time.monotonic() - began_s
        waits_s = sorted(self.waits_s) or [float("nan")]
        return [
            ("CPU of the controller", f"{cpu_s / took_s:.2f} cores"),
            ("its memory (RSS)", f"{_rss_bytes() / 2**20:.0f} MiB"),
            ("longest turn of its wheel", f"{max(self.turns_s) * 1000:.0f} ms"),
            ("findings", str(len(waits_s))),
            ("finding -> decision, median", f"{waits_s[len(waits_s) // 2] * 1000:.0f} ms"),
            ("finding -> decision, p99", f"{waits_s[len(waits_s) * 99 // 100] * 1000:.0f} ms"),
            ("nodes that were lost for want of CPU", f"{self._lost}"),
        ]

    def _again(self) -> list[tuple[str, str]]:
        self.hub.close()
        self.record.close()
        time.sleep(AWAY_S)
        began_s = time.monotonic()
        reader = open_reader(self.folder / "journal.db")
        rows = list(reader.read_raw())
        reader.close()
        memory, state = Memory(), State()
        for event, decision in decisions(rows, POLICY):
            memory.hear(event)
            state = decision.state
        self._open(memory, state)
        self.machine.resume(state.job)
        replayed_s = time.monotonic() - began_s
        self._until(lambda: len(self.machine.connected) == self.agents, 120.0, "is back")
        back_s = time.monotonic() - began_s
        self._for(10.0)
        return [
            (f"another controller: {len(rows)} rows of the journal replayed", f"{replayed_s:.1f} s"),
            ("all agents are with it again after", f"{back_s:.1f} s"),
            ("nodes that it lost, workers that it started anew", f"{self._lost}, {self.started - 1}"),
            ("memory after it (RSS)", f"{_rss_bytes() / 2**20:.0f} MiB"),
        ]

    @property
    def _lost(self) -> int:
        return sum(node.lost for node in self.crew.roster.nodes.values())

    def _until(self, done: object, limit_s: float, what: str) -> None:
        until_s = time.monotonic() + limit_s
        while not done():  # type: ignore[operator]
            self._turn()
            if time.monotonic() > until_s:
                raise SystemExit(
                    f"not every agent {what} in {limit_s:g} s: {len(self.machine.connected)} connected"
                )

    def _for(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._turn()

    def _turn(self) -> None:
        select.select([self.hub], [], [], 0.1)
        began_s = time.monotonic()
        self.machine.turn()
        at_s = self.clock()
        if at_s - self.ticked_s >= 1.0:
            self.ticked_s = at_s
            self.controller.handle(Tick(at_s=at_s))
        self.record.flush()
        self.turns_s.append(time.monotonic() - began_s)


class Fleet:
    """Many agents in one process, each with its link; ends with the process that started it."""

    def __init__(self, port: int, numbers: range, secret: bytes, agents: int) -> None:
        self.dice = random.Random(numbers.start)
        self.clock = JobClock()
        self.agents = agents
        self.chance = FINDINGS_A_SECOND / agents
        self.numbers = list(numbers)
        self.runs: list[tuple[int, int] | None] = [None for _ in numbers]
        self.step = 0
        self.sampled = [samples_of(_bodies(number, 1000)[0]) for number in numbers]
        self.links = [
            AgentLink(
                name=name_of(number),
                role="agent",
                secret=secret,
                where=lambda: [("127.0.0.1", port)],
                hello=lambda index=index: self._hello(index),
                spool=None,
                clock=self.clock,
                dice=self.dice.random,
            )
            for index, number in enumerate(numbers)
        ]
        self.poll = select.epoll()
        self.index_of = {link.fileno(): index for index, link in enumerate(self.links)}
        for descriptor in self.index_of:
            self.poll.register(descriptor, select.EPOLLIN)

    def _hello(self, index: int) -> bytes:
        attempt, worker = self.runs[index] or (0, None)
        name = name_of(self.numbers[index])
        return pack(
            AgentHello(
                node=name, address="127.0.0.1", instance=name, version=VERSION, attempt=attempt, worker=worker
            )
        )

    def run(self) -> None:
        parent = os.getppid()
        now_s = time.monotonic()
        due_s = [now_s + self.dice.random() for _ in self.links]
        turned_s = list(due_s)
        while os.getppid() == parent:
            for descriptor, _ in self.poll.poll(0.02, 512):
                self._turn(self.index_of[descriptor])
            now_s = time.monotonic()
            reports = 0
            for index in range(len(self.links)):
                if now_s >= due_s[index] and reports < REPORTS_A_ROUND and self.runs[index]:
                    self._report(index)
                    reports += 1
                    due_s[index] = max(due_s[index] + 1.0, now_s)  # too slow a machine: later, not twice
                if now_s - turned_s[index] >= TURN_S:
                    turned_s[index] = now_s
                    self._turn(index)

    def _turn(self, index: int) -> None:
        link = self.links[index]
        for heard in link.turn():
            if not isinstance(heard, Ordered):
                continue
            command = unpack(heard.body)
            if isinstance(command, FindPort):
                link.send(pack(PortFound(attempt=command.attempt, port=29400)))
            if isinstance(command, StartWorker):
                self._start(index, command)
            link.done(heard.id)

    def _start(self, index: int, start: StartWorker) -> None:
        self.runs[index] = (start.attempt, start.worker)
        link, at_s = self.links[index], time.time()
        link.send(pack(Told(event=AttemptStarted(at_s=at_s, attempt=start.attempt))))
        for local in range(RANKS):
            rank = start.worker * RANKS + local
            found = RankStarted(
                at_s=at_s, attempt=start.attempt, worker=start.worker, rank=rank, pid=1000 + rank
            )
            link.send(pack(Told(event=found)))

    def _report(self, index: int) -> None:
        attempt, worker = self.runs[index] or (0, 0)
        link, at_s = self.links[index], time.time()
        before = self.sampled[index]
        step = (before.step or 0) + 10
        ranks = tuple(
            msgspec.structs.replace(
                one,
                at_s=at_s,
                rank=worker * RANKS + local,
                main_cpu_s=(one.main_cpu_s or 0.0) + 0.7,
                io_bytes=(one.io_bytes or 0) + 1_000_000,
                step=step,
            )
            for local, one in enumerate(before.ranks)
        )
        now = self.sampled[index] = msgspec.structs.replace(
            before, attempt=attempt, worker=worker, at_s=at_s, ranks=ranks, step=step, log_bytes=step * 100
        )
        link.send(pack(now), drop=True)
        link.send(pack(Told(event=StepReached(at_s=at_s, attempt=attempt, step=step))))
        if self.dice.random() < self.chance:
            text = f"an uncorrectable error of the memory of a device, row {self.dice.random()}"
            finding = FindingNoted(
                at_s=at_s, finding="xid", text=text, attempt=attempt, numbers={"sent_s": at_s}
            )
            link.send(pack(Told(event=finding)))


def name_of(number: int) -> str:
    return f"node-{number:04}"


if __name__ == "__main__":
    main()
