"""Measures a whole controller of many nodes under a fleet of agents over the loopback. Prints Markdown.

    python -m bench.many_nodes.controller --agents 2048            # simulated cheaply (simulated_agents.py)
    python -m bench.many_nodes.controller --agents 2048 --real 64  # 64 of them by real AgentLinks with spools

What is measured is all of it: hub, worker_group, hang detection over all ranks, logs written down, journal, and the core's
decisions. Agents start their worker when they are told to. A finding is followed from when it is sent until the core has
decided on it and it is handed to the journal. Then the controller ends, another takes its journal up, and all agents come
back at once. At last one rank hangs: all others wait for it in a collective. The agents' CPU is the same machine's.
"""

import argparse
import gc
import os
import secrets
import select
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.many_nodes.simulated_agents import Fleets, Plan, allow_many_files, rss_bytes
from bench.many_nodes.simulated_node import RANKS, VERSION, Hung, name_of
from holdfast.controller.conclusion import Concluding
from holdfast.controller.hang_watch import HangWatching
from holdfast.controller.loop import Controller, decisions
from holdfast.controller.parts import Parts
from holdfast.controller.shipped import ShippedFiles
from holdfast.controller.straggler_watch import StragglersWatching
from holdfast.controller.worker_group import WorkerGroupEngine
from holdfast.core.job.decision import Decision
from holdfast.core.workers.group import WorkerGroup
from holdfast.core.workers.memory import Memory
from holdfast.core.workers.roster import Settings
from holdfast.journal.recorder import Recorder
from holdfast.journal.store import open_reader
from holdfast.link.hub import Hub
from holdfast.model.events import AnyEvent, AttemptStarted, FindingNoted, HangFound, JobSubmitted, Tick
from holdfast.model.nodes.workers import AnyNews, Sampled, SetUp
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.model.state import State
from holdfast.observe.clock import JobClock
from holdfast.supervise.many_nodes import HUB_LIMITS

AWAY_S = 5.0
TRAINED_S = 10.0  # after the controller came back, until a rank hangs
POLICY = Policy(max_restarts=1, boot_check="off")


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

    def joined(self, node: str) -> None: ...

    def lost(self, node: str, reason: str) -> None: ...

    def returned(self, node: str) -> None: ...

    def remake(self, attempt: int) -> bool:
        return False

    def more_nodes(self, workers: int, without: object) -> None: ...


class Hangs(HangWatching):
    """Counts what it is given."""

    count = 0
    late_s = 0.0  # the latest that came, as the agent's clock and ours have it

    def sampled(self, node: str, report: Sampled) -> None:
        self.count += 1
        self.late_s = max(self.late_s, time.time() - report.at_s)
        super().sampled(node, report)


class NoCalls:
    def hear(self, peer: str, body: bytes) -> bool:
        return False

    def left(self, peer: str) -> None: ...

    def turn(self) -> None: ...


class Measured:
    """The controller's side."""

    def __init__(self, agents: int, seconds: float, folder: Path) -> None:
        self.agents, self.seconds, self.folder = agents, seconds, folder
        self.secret = folder / "secret"
        self.secret.write_bytes(secrets.token_bytes(32))
        self.clock = JobClock()
        self.engine = Nodes(agents)
        self.rows: list[tuple[str, str]] = []
        self.waits_s: list[float] = []
        self.turns_s: list[float] = []
        self.turns_cpu_s: list[float] = []
        self.started = 0
        self.hang: HangFound | None = None
        self.address = ("127.0.0.1", 0)
        self.ticked_s = 0.0
        self._open(Memory())
        gc.freeze()  # as the process of a controller does

    def _open(self, memory: Memory, state: State | None = None) -> None:
        self.record = Recorder(self.folder / "journal.db", self.clock, print)
        self.hub = Hub(
            secret=self.secret.read_bytes(),
            listen=[self.address],
            clock=self.clock,
            seen=memory.seen,
            limits=HUB_LIMITS,
        )
        self.address = self.hub.addresses[0]
        self.worker_group = WorkerGroup(
            "bench", self.engine.nodes, Settings(checks=False), VERSION, "b", memory
        )
        run = RunSettings(command=("true",), state_dir=str(self.folder))
        self.machine = WorkerGroupEngine(
            self.worker_group,
            self.hub,
            self.engine,  # type: ignore[arg-type]
            SetUp(job="bench", folder=str(self.folder), cwd="/", settings=run, token="t"),
            self._parts,
            self.clock,
            lambda event: self.controller.handle(event),
            lambda: self.record.flush(),
        )
        self.controller = Controller(POLICY, self.record, self.machine, self._decided, state)

    def _parts(self, machine: WorkerGroupEngine) -> Parts:
        self.hangs = Hangs(self.worker_group, POLICY, 30.0, self.clock, machine.note)
        conclusion = Concluding(
            self.worker_group,
            POLICY,
            dict,
            lambda: self.hangs.hang,
            lambda: self.hangs.world_size,
            lambda case: None,
            12.0,
        )
        files = ShippedFiles(self.folder, self.clock)
        stragglers = StragglersWatching(self.worker_group, lambda: self.hangs.is_looking)
        return Parts(
            hangs=self.hangs, conclusion=conclusion, calls=NoCalls(), files=files, stragglers=stragglers
        )

    def _decided(self, event: AnyEvent, decision: Decision) -> None:
        self.machine.decided(event)
        if isinstance(event, FindingNoted) and event.finding == "xid":
            self.waits_s.append(time.time() - float(str(event.numbers["sent_s"])))
        self.started += isinstance(event, AttemptStarted)
        if isinstance(event, HangFound):
            self.hang = event

    def run(self, processes: int, real: int) -> None:
        plan = Plan(
            port=self.address[1],
            secret_file=str(self.secret),
            folder=str(self.folder),
            agents=self.agents,
            first=0,
            count=0,
            real=real,
        )
        began_s = time.monotonic()
        self.fleets = Fleets(plan, processes)
        try:
            self.controller.handle(JobSubmitted(at_s=self.clock(), job="bench", workers=self.agents))
            self._until(lambda: self.started > 0, 180.0, "has started")
            started_s = time.monotonic() - began_s
            self.rows.append(("from nothing to all workers started, the agents too", f"{started_s:.1f} s"))
            self._for(5.0)
            for part in (self._steady, self._again, self._hangs):
                self.rows += part()
        finally:
            self.fleets.end()
            self.hub.close()
            self.record.close()
            self._print(real)

    def _print(self, real: int) -> None:
        """What was measured, though it may not be all."""
        print(
            f"{self.agents} agents ({real} real links), {self.agents * RANKS} ranks, {self.seconds:g} s; ",
            end="",
        )
        print(f"{os.cpu_count()} cores for all of it, load {os.getloadavg()[0]:.1f}\n")
        print("| What | Measured |\n| --- | --- |")
        for what, measured in self.rows:
            print(f"| {what} | {measured} |")

    def _steady(self) -> list[tuple[str, str]]:
        self.waits_s.clear()
        self.turns_s.clear()
        self.turns_cpu_s.clear()
        self.hangs.count, self.hangs.late_s = 0, 0.0
        cpu_s, fleet_s, began_s = time.process_time(), self.fleets.cpu_s(), time.monotonic()
        self._for(self.seconds)
        cpu_s, took_s = time.process_time() - cpu_s, time.monotonic() - began_s
        fleet_s = self.fleets.cpu_s() - fleet_s
        waits_s = sorted(self.waits_s) or [float("nan")]
        return [
            ("CPU of the controller", f"{cpu_s / took_s:.2f} cores"),
            ("samples taken in", f"{self.hangs.count / took_s:.0f} a second of {self.agents} that are due"),
            ("sample -> taken in, longest", f"{self.hangs.late_s:.1f} s"),
            ("CPU of the agents, all together", f"{fleet_s / took_s:.2f} cores"),
            ("memory of the controller (RSS)", f"{rss_bytes() / 2**20:.0f} MiB"),
            ("longest turn of its wheel", f"{max(self.turns_s) * 1000:.0f} ms"),
            ("longest turn of its wheel, by its CPU", f"{max(self.turns_cpu_s) * 1000:.0f} ms"),
            ("findings", str(len(waits_s))),
            ("finding -> decision, median", f"{waits_s[len(waits_s) // 2] * 1000:.0f} ms"),
            ("finding -> decision, p99", f"{waits_s[len(waits_s) * 99 // 100] * 1000:.0f} ms"),
            ("finding -> decision, longest", f"{waits_s[-1] * 1000:.0f} ms"),
            ("nodes that were lost for want of CPU", f"{self._lost}"),
        ]

    def _hangs(self) -> list[tuple[str, str]]:
        self._for(TRAINED_S)
        rank = self.agents * RANKS // 3
        cpu_s, began_s = time.process_time(), time.monotonic()
        self.fleets.hang(Hung(rank, time.time()))
        self._until(lambda: self.hang is not None, 60.0, "is seen to hang")
        took_s, cpu_s = time.monotonic() - began_s, time.process_time() - cpu_s
        named = self.hang.culprits if self.hang is not None else ()
        right = "that one and no other" if named == (rank,) else f"{len(named)} others: {named[:8]}"
        return [
            (f"rank {rank} hangs: found after", f"{took_s:.1f} s, with {cpu_s:.1f} s of CPU"),
            ("who was named", right),
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
            ("memory after it (RSS)", f"{rss_bytes() / 2**20:.0f} MiB"),
        ]

    @property
    def _lost(self) -> int:
        return sum(node.lost for node in self.worker_group.roster.nodes.values())

    def _until(self, done: Callable[[], bool], limit_s: float, what: str) -> None:
        until_s = time.monotonic() + limit_s
        while not done():
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
        select.select(self.machine.channels(), [], [], 0.1)
        began_s, began_cpu_s = time.monotonic(), time.process_time()
        self.machine.turn()
        at_s = self.clock()
        if at_s - self.ticked_s >= 1.0:
            self.ticked_s = at_s
            self.controller.handle(Tick(at_s=at_s))
        self.record.flush()
        self.turns_s.append(time.monotonic() - began_s)
        self.turns_cpu_s.append(time.process_time() - began_cpu_s)


if __name__ == "__main__":
    main()
