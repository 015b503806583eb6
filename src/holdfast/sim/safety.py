"""Records violations of safety rules in a simulated job, without interfering.

It derives its own state from decisions and orders, independently of the core.
"""

from collections import Counter

from holdfast.core.job.decision import Decision
from holdfast.model.checks import BOOT
from holdfast.model.events import (
    AnyEvent,
    DeviceFaulted,
    NodeLost,
    NodeReleased,
    NodeReturned,
    NodesChecked,
    StepReached,
    StopRequested,
)
from holdfast.model.orders import (
    AnyOrder,
    CheckNodes,
    EndJob,
    IsolateNode,
    PlaceWorkers,
    StartAttempt,
    WorkerStart,
)
from holdfast.model.policy import Policy
from holdfast.model.state import (
    CheckFault,
    Checking,
    Choice,
    DeviceFault,
    Diagnosing,
    Ended,
    Finishing,
    Incident,
    Job,
    NodeFault,
    State,
)
from holdfast.sim.cluster import Cluster
from holdfast.sim.training import Training

HEIGHTS = {
    "notify": 0,
    "in-place": 1,
    "hang-restart": 1,
    "replace-worker": 2,
    "reschedule-unconditional": 3,
    "reschedule-isolated": 3,
    "fail": 4,
}


class Safety:
    """Checks the safety rules over the decisions and orders of a simulated job. `violations`: a sentence each, in
    order.
    """

    def __init__(self, policy: Policy, cluster: Cluster, training: Training, workers: int) -> None:
        self.violations: list[str] = []
        self._policy = policy
        self._cluster = cluster
        self._training = training
        self._workers = workers
        self._before = State()
        self._ended = False
        self._started: dict[int, WorkerStart] = {}  # of the last attempt, by worker
        self._attempt = 0
        self._paid: Counter[int] = Counter()  # restarts by incident
        self._verdicts: Counter[tuple[int, int]] = Counter()  # used, by incident and attempt
        self._opened: Counter[tuple[int, int]] = Counter()
        self._rungs: dict[int, str] = {}
        self._hang_row = 0
        self._best_before = 0
        self._failed: set[str] = set()  # nodes that a boot check found broken
        self._asked: set[tuple[int, str]] = set()  # boot checks ordered, by attempt and node
        self._passed: dict[str, float] = {}  # when a node passed one, as long as nothing speaks against it
        self._at_s = 0.0
        self._before_the_start = 0  # nodes isolated before anything was started

    def on_decision(self, event: AnyEvent, decision: Decision) -> None:
        before, after = self._before, decision.state
        self._before, self._at_s = after, event.at_s
        if isinstance(event, StepReached) and decision.choice is None:
            self._on_step(event, before, after)
            return
        match event:
            case NodesChecked():
                self._note_check(event, before)
            case NodeReleased():
                self._failed.discard(event.node)
            case NodeLost() | NodeReturned() | DeviceFaulted():
                self._passed.pop(event.node, None)
            case _:
                pass
        if decision.choice is not None and decision.choice.isolate and not before.job.attempt:
            self._before_the_start += 1
        self._check_budgets(after.job)
        self._check_counters(before.job, after.job)
        self._check_diagnosis(before, after, event, decision)
        if decision.choice is not None:
            self._on_choice(decision.choice, before.job, after.job)

    def on_order(self, order: AnyOrder, job: Job) -> None:
        if self._ended and not isinstance(order, EndJob):
            self._note(f"{type(order).__name__} was ordered after the job's end")
        match order:
            case EndJob():
                self._ended = True
            case IsolateNode():
                self._check_isolated(order.node)
            case PlaceWorkers():
                self._check_placing(order, job)
            case CheckNodes():
                self._asked |= {(order.attempt, node) for node in order.nodes}
            case StartAttempt():
                self._check_start(order, job)
            case _:
                pass

    def _note(self, violation: str) -> None:
        if violation not in self.violations:
            self.violations.append(violation)

    # --- decisions

    def _on_step(self, event: StepReached, before: State, after: State) -> None:
        if (
            after.job.attempt == event.attempt
            and event.step >= self._best_before + self._policy.progress_steps
        ):
            self._hang_row = 0
        self._check_counters(before.job, after.job)

    def _check_budgets(self, job: Job) -> None:
        policy = self._policy
        if job.restarts > (policy.max_restarts or 0):
            self._note(f"{job.restarts} restarts, and {policy.max_restarts} are allowed")
        if job.replacements > (policy.replace_workers or 0):
            self._note(f"{job.replacements} replacements, and {policy.replace_workers} are allowed")
        if job.hardware_reschedules > job.restarts + self._before_the_start:
            self._note(
                f"{job.hardware_reschedules} of {job.restarts} restarts are recorded as caused by hardware"
            )

    def _note_check(self, event: NodesChecked, before: State) -> None:
        """Processes the result of a check; one that arrives after the attempt has started has no effect."""
        in_time = isinstance(before.phase, Checking) and event.attempt == before.job.attempt + 1
        if in_time and not self._policy.shadow and self._policy.checks_act:
            self._failed |= set(event.isolate)
        if event.context == BOOT and not event.stop and not event.why_not and event.passed:
            self._passed |= {node: event.at_s for node in event.nodes if node not in event.isolate}
        for node in event.isolate:
            self._passed.pop(node, None)

    def _check_counters(self, before: Job, after: Job) -> None:
        for name in ("attempt", "incidents", "restarts", "replacements", "hardware_reschedules", "bar_step"):
            if getattr(after, name) < getattr(before, name):
                self._note(f"{name} went back from {getattr(before, name)} to {getattr(after, name)}")
        if before.workers is not after.workers:
            for old, new in zip(before.workers, after.workers, strict=False):
                if new.schedule_cnt < old.schedule_cnt:
                    self._note(f"schedule_cnt went back from {old.schedule_cnt} to {new.schedule_cnt}")

    def _check_diagnosis(self, before: State, after: State, event: AnyEvent, decision: Decision) -> None:
        was, now = isinstance(before.phase, Diagnosing), isinstance(after.phase, Diagnosing)
        incident = (before.job if was else after.job).incident
        if was == now or incident is None:
            return
        key = (incident.number, incident.attempt)
        if now:
            self._opened[key] += 1
        elif decision.choice is not None:
            self._verdicts[key] += 1
            if self._verdicts[key] != self._opened[key]:
                self._note(f"incident {incident.number} was judged {self._verdicts[key]} times")
        elif not isinstance(event, StopRequested) and not _succeeded(after):
            self._note(f"the diagnosis of incident {incident.number} ended without a rung")

    def _on_choice(self, choice: Choice, before: Job, after: Job) -> None:
        number = choice.incident
        self._paid[number] += after.restarts - before.restarts
        if self._paid[number] > 1:
            self._note(f"incident {number} cost {self._paid[number]} restarts")
        for node in choice.isolate:
            self._check_isolated(node)
        old = self._rungs.get(number)
        if old and not choice.shadow and HEIGHTS.get(choice.rung, 3) < HEIGHTS.get(old, 0):
            self._note(f"incident {number} went down from {old} to {choice.rung}")
        if choice.rung != "wait-for-node":
            self._rungs[number] = choice.rung
        if choice.rung == "hang-restart" and not choice.shadow:
            self._hang_row += 1
            self._best_before = max(self._best_before, before.step or 0)
        elif choice.rung not in ("notify", "hang-restart"):
            self._hang_row = 0
        if self._hang_row > self._policy.hangs_in_a_row_max:
            self._note(f"{self._hang_row} hang restarts in a row without progress")

    # --- orders

    def _check_isolated(self, name: str) -> None:
        if not self._cluster.nodes[name].touched:
            self._note(f"{name} is healthy, but was isolated")

    def _check_placing(self, order: PlaceWorkers, job: Job) -> None:
        if len(order.workers) + len(order.keep_nodes) != self._workers:
            self._note(f"attempt {order.attempt} is placed with too few workers: {order.workers}")
        for node in (*job.isolated, *job.lost):
            if node not in order.without_nodes or node in order.keep_nodes:
                self._note(f"{node} may not be used, and attempt {order.attempt} may be placed there")

    def _check_start(self, order: StartAttempt, job: Job) -> None:
        starts = {start.worker: start for start in order.workers}
        if order.attempt == self._attempt:
            if starts != self._started:
                self._note(f"attempt {order.attempt} was ordered twice, differently")
            return
        if order.attempt != self._attempt + 1:
            self._note(f"attempt {order.attempt} follows attempt {self._attempt}")
        if self._training.alive:
            self._note(f"attempt {order.attempt} starts while attempt {self._training.attempt} is alive")
        nodes = [start.node for start in order.workers]
        if sorted(starts) != list(range(self._workers)) or len(set(nodes)) != self._workers:
            self._note(f"attempt {order.attempt} starts with workers {sorted(starts)} on {nodes}")
        self._check_where(order, job)
        if self._started:
            self._check_who_was_made_anew(starts, job)
        self._started, self._attempt = starts, order.attempt

    def _check_where(self, order: StartAttempt, job: Job) -> None:
        for node in (start.node for start in order.workers):
            if node in job.isolated or node in job.lost or node in job.to_isolate:
                self._note(f"attempt {order.attempt} starts on {node}, which may not be used")
            if node in self._failed:
                self._note(f"attempt {order.attempt} starts on {node}, whose check failed")
        if self._policy.boot_check != "off":
            for start in order.workers:
                asked = (order.attempt, start.node) in self._asked
                if start.proc_start_cnt == 1 and not asked and not self._has_just_passed(start.node, job):
                    self._note(f"attempt {order.attempt} starts on {start.node}, which nobody has looked at")

    def _has_just_passed(self, node: str, job: Job) -> bool:
        """Returns True if a node passed its check recently, and the incident has no sign of a hardware
        fault but lost nodes.
        """
        passed_s = self._passed.get(node, float("-inf"))
        incident = job.incident
        faults = incident.faults if incident is not None else ()
        verdict = incident.verdict if incident is not None else None
        clear = verdict is None or verdict.class_ not in ("hardware", "host", "network", "unknown")
        lost = any(isinstance(fault, NodeFault) for fault in faults)
        sound = not any(isinstance(fault, DeviceFault | CheckFault) for fault in faults)
        return self._at_s - passed_s < self._policy.boot_check_again_s and sound and (clear or lost)

    def _check_who_was_made_anew(self, starts: dict[int, WorkerStart], job: Job) -> None:
        anew = set()
        for worker, start in starts.items():
            old = self._started[worker]
            if start.schedule_cnt > old.schedule_cnt:
                anew.add(worker)
            elif start.node != old.node:
                self._note(
                    f"worker {worker} moved from {old.node} to {start.node} without a new schedule_cnt"
                )
            wanted = 1 if worker in anew else old.proc_start_cnt + 1
            if start.proc_start_cnt != wanted:
                self._note(f"worker {worker} has proc_start_cnt {start.proc_start_cnt}, not {wanted}")
        bad = {*job.isolated, *job.lost}
        if job.incident is not None:
            self._check_rung_was_kept(job.incident, anew, {w for w in starts if self._started[w].node in bad})

    def _check_rung_was_kept(self, incident: Incident, anew: set[int], on_bad_nodes: set[int]) -> None:
        match incident.rung:
            case "in-place" | "hang-restart" if anew:
                self._note(f"{incident.rung} made workers {sorted(anew)} anew")
            case "replace-worker" if anew - on_bad_nodes:
                self._note(f"healthy workers {sorted(anew - on_bad_nodes)} were replaced")
            case "reschedule-isolated" | "reschedule-unconditional" if len(anew) < self._workers:
                self._note(f"{incident.rung} made only workers {sorted(anew)} anew")


def _succeeded(state: State) -> bool:
    return isinstance(state.phase, Finishing | Ended) and state.phase.outcome == "succeeded"
