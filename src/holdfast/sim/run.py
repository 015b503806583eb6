"""Runs a scenario: the real controller and core on a simulated cluster, in simulated time.

Reports what was decided, when, and how well the job survived. Equal scenario and seed give the same result.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.controller.loop import Controller, Engine, replay
from holdfast.core.job.decision import Decision
from holdfast.journal.rows import RawEntry, Row
from holdfast.model.events import AnyEvent, ControllerResumed, JobSubmitted, Tick
from holdfast.model.orders import StartAttempt
from holdfast.model.state import (
    Choice,
    Ended,
    Finishing,
    HangFault,
    Holding,
    Job,
    Running,
    State,
    Waiting,
)
from holdfast.sim import scenario as scenarios
from holdfast.sim.cluster import Cluster, Service, Timing, VirtualEngine
from holdfast.sim.faults import Faults
from holdfast.sim.scenario import Expected, Scenario
from holdfast.sim.training import Training
from holdfast.sim.world import World

TICK_S = 1.0
TICK_S_MAX = 30.0  # a phase that lasts is looked at more rarely


class WorkerCounts(Struct, frozen=True, kw_only=True):
    """The node and the start counters of a worker after a decision of the controller."""

    node: str | None
    schedule_cnt: int
    proc_start_cnt: int


class Decided(Struct, frozen=True, kw_only=True):
    """One decision of the controller. `isolate`: name of an isolated node, a list of names, or None.

    `workers`: their nodes and counters after the decision was carried out.
    """

    at_s: float
    incident: int
    rung: str
    isolate: str | list[str] | None
    why: str
    workers: dict[str, WorkerCounts]


class Answer(Struct, frozen=True, kw_only=True):
    """The result of a scenario.

    `outcome`: succeeded, failed, stopped, waiting, hung, or running at the end of the time.

    `goodput`: the time of all distinct steps as a share of the elapsed time.
    """

    outcome: str
    reason: str
    restarts: int
    hardware_reschedules: int
    isolated: list[str]
    decisions: list[Decided]
    goodput: float


class MemoryRecord:
    """A journal in memory, for a simulated job."""

    def __init__(self) -> None:
        self.rows: list[RawEntry] = []

    def record(self, row: Row) -> None:
        self.rows.append((row.at_s, row.kind, row.event, row.orders, row.why, len(self.rows) + 1))

    def flush(self) -> bool:
        return True


class ControllerDied(Exception):
    """Raised by the engine of a random world, to simulate that the controller dies between two orders."""


class Simulation:
    """One job in its simulated world. `story`: messages, one line each. `watch`: receives every decision."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        seed: int = 0,
        service: Service | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.scenario = scenario
        self.world = World(seed)
        size = scenario.cluster
        self.cluster = Cluster(size.workers, size.spares, scenario.sick)
        self.training = Training(self.world, scenario, self.cluster.nodes, self.tell)
        self.faults = Faults(self.world, self.cluster, self.training, scenario.faults, self.tell)
        self.engine: Engine = VirtualEngine(
            self.world,
            self.cluster,
            self.training,
            self.tell,
            service=service or Service(),
            user_caused_codes=scenario.policy.user_caused_codes,
            timing=timing or Timing(),
        )
        self.record = MemoryRecord()
        self.story: list[str] = []
        self.lost_replays = 0  # controllers that came back with another state than they had
        self.watch: Callable[[AnyEvent, Decision], None] = lambda event, decision: None
        self._controller: Controller | None = None
        self._last_state = State()
        self._waiting_events: list[AnyEvent] = []  # what agents and engine keep while no controller is there
        self._choices: list[tuple[float, Choice, dict[str, WorkerCounts] | None]] = []
        self._tick_turn = 0
        self._phase_ticked: type[Struct] | None = None

    @property
    def state(self) -> State:
        return self._controller.state if self._controller else self._last_state

    @property
    def is_over(self) -> bool:
        return isinstance(self.state.phase, Ended)

    def submit(self) -> None:
        self._controller = self._new_controller(State())
        self.tell(JobSubmitted(at_s=self.world.now_s, job="simulated", workers=self.scenario.cluster.workers))

    def run(self) -> Answer:
        self.submit()
        self.world.run(self.scenario.until_s, lambda: self.is_over)
        return self.answer()

    def tell(self, event: AnyEvent) -> None:
        if self._controller is None:
            self._waiting_events.append(event)
            return
        try:
            self._controller.handle(event)
        except ControllerDied:
            self.drop_controller()

    def drop_controller(self) -> None:
        """Kills the controller. Its journal stays; engine and training continue."""
        if self._controller is None:
            return
        self._last_state = self._controller.state
        self._controller = None
        self.story.append(f"{self.world.now_s:10.1f} s  (the controller is gone)")

    def resume_controller(self) -> None:
        if self._controller is not None:
            return
        state = replay(self.record.rows, self.scenario.policy)
        self.lost_replays += state != self._last_state
        self._controller = self._new_controller(state)
        waiting, self._waiting_events = self._waiting_events, []
        self.tell(ControllerResumed(at_s=self.world.now_s))
        for event in waiting:
            self.tell(replace(event, at_s=self.world.now_s))
        self._plan_tick(TICK_S)

    def on_decision(self, event: AnyEvent, decision: Decision) -> None:
        self.watch(event, decision)
        if decision.why:
            self.story.append(f"{event.at_s:10.1f} s  {decision.why}")
        if decision.choice is not None:
            self._keep(event.at_s, decision.choice, decision.state.job)
        if any(isinstance(order, StartAttempt) for order in decision.orders):
            self._fill_workers(decision.state.job)
        if type(decision.state.phase) is not self._phase_ticked:
            self._phase_ticked = type(decision.state.phase)
            self._plan_tick(TICK_S)

    def answer(self) -> Answer:
        job = self.state.job
        self._fill_workers(job)
        outcome, reason = _outcome(self.state, self.story)
        useful_s = self.training.best_step * self.scenario.step_s
        return Answer(
            outcome=outcome,
            reason=reason,
            restarts=job.restarts,
            hardware_reschedules=job.hardware_reschedules,
            isolated=sorted(job.isolated),
            decisions=[_decided(at_s, choice, workers or {}) for at_s, choice, workers in self._choices],
            goodput=round(min(useful_s / self.world.now_s, 1.0), 4) if self.world.now_s else 0.0,
        )

    def _new_controller(self, state: State) -> Controller:
        return Controller(self.scenario.policy, self.record, self.engine, self.on_decision, state)

    def _keep(self, at_s: float, choice: Choice, job: Job) -> None:
        now = choice.shadow or choice.rung in ("notify", "wait-for-node")
        workers = {} if choice.rung == "fail" and not choice.shadow else _counts(job) if now else None
        self._choices.append((at_s, choice, workers))

    def _fill_workers(self, job: Job) -> None:
        """Adds the start counters to the decisions that have been carried out now."""
        for index in range(len(self._choices) - 1, -1, -1):
            at_s, choice, workers = self._choices[index]
            if workers is None:
                self._choices[index] = (at_s, choice, _counts(job))
            elif choice.rung != "wait-for-node":
                break

    def _plan_tick(self, gap_s: float) -> None:
        self._tick_turn += 1
        turn = self._tick_turn
        self.world.after(gap_s, lambda: self._tick(turn, gap_s))

    def _tick(self, turn: int, gap_s: float) -> None:
        """Sends a tick while it can matter; none while steps advance the time, or the job has ended."""
        if turn != self._tick_turn or self._controller is None:
            return
        phase = self.state.phase
        if isinstance(phase, Ended) or (isinstance(phase, Running) and self.state.job.step is not None):
            return
        self.tell(Tick(at_s=self.world.now_s))
        if turn == self._tick_turn:
            self._plan_tick(min(gap_s * 1.1, TICK_S_MAX))


def simulate(scenario: Scenario, *, seed: int = 0) -> Answer:
    return Simulation(scenario, seed=seed).run()


def run_file(path: Path, seed: int = 0) -> Answer:
    """Runs a scenario file. Raises ScenarioRefused."""
    return simulate(scenarios.read(path), seed=seed)


def check_expect(answer: Answer, expect: Expected | None) -> list[str]:
    """Returns a sentence for each expectation that the result does not meet."""
    if expect is None:
        return []
    got: dict[str, Any] = {"rungs": tuple(decided.rung for decided in answer.decisions)}
    got |= {"isolated": tuple(sorted(answer.isolated)), "outcome": answer.outcome}
    got |= {"restarts": answer.restarts, "hardware_reschedules": answer.hardware_reschedules}
    wrong = []
    for key, value in got.items():
        wanted = getattr(expect, key)
        if key == "isolated" and wanted is not None:
            wanted = tuple(sorted(wanted))
        if wanted is not None and wanted != value:
            wrong.append(f"{key}: expected {wanted}, got {value}")
    return wrong + _check_workers(answer, expect)


def _check_workers(answer: Answer, expect: Expected) -> list[str]:
    last = answer.decisions[-1].workers if answer.decisions else {}
    wrong = []
    for name, wanted in expect.workers.items():
        counts = last.get(name)
        for field, value in msgspec.structs.asdict(wanted).items():
            got = getattr(counts, field) if counts else None
            if value is not None and value != got:
                wrong.append(f"workers.{name}.{field}: expected {value}, got {got}")
    return wrong


def _counts(job: Job) -> dict[str, WorkerCounts]:
    return {
        str(index): WorkerCounts(
            node=worker.node, schedule_cnt=worker.schedule_cnt, proc_start_cnt=worker.proc_start_cnt
        )
        for index, worker in enumerate(job.workers)
    }


def _decided(at_s: float, choice: Choice, workers: dict[str, WorkerCounts]) -> Decided:
    isolate: str | list[str] | None = None
    if choice.isolate:
        isolate = choice.isolate[0] if len(choice.isolate) == 1 else list(choice.isolate)
    return Decided(
        at_s=round(at_s, 3),
        incident=choice.incident,
        rung=choice.rung,
        isolate=isolate,
        why=choice.why,
        workers=workers,
    )


def _outcome(state: State, story: list[str]) -> tuple[str, str]:
    phase = state.phase
    incident = state.job.incident
    match phase:
        case Ended() | Finishing():
            return phase.outcome, "" if phase.outcome == "succeeded" else phase.reason
        case Holding():
            return "failed", phase.reason
        case Waiting():
            return "waiting", "no healthy node"
        case Running(handled=True) if incident and any(isinstance(one, HangFault) for one in incident.faults):
            return "hung", next((one.reason for one in incident.faults if isinstance(one, HangFault)), "")
        case _:
            return "running", ""
