"""The core over all of its states: every event in every phase, and what must hold after any story at all."""

import itertools
from collections.abc import Callable
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.controller.loop import Controller, replay
from holdfast.core.job.decide import decide
from holdfast.core.job.decision import Decision
from holdfast.model import events as ev
from holdfast.model import orders as od
from holdfast.model import state as ms
from holdfast.model.policy import Policy, PolicyFields
from holdfast.model.verdicts import UNKNOWN

POLICIES = {
    "nothing": Policy(),
    "restarts": Policy(max_restarts=2),
    "everything": Policy(max_restarts=3, unconditional_restart=True, hang_restart=True, replace_workers=2),
    "keeps": Policy(max_restarts=1, hang_restart=True, keep_on_failure_s=100.0),
    "shadow": Policy(max_restarts=3, unconditional_restart=True, hang_restart=True, shadow=True),
    "checks": Policy(
        max_restarts=2,
        unconditional_restart=True,
        replace_workers=1,
        boot_check="quick",
        troubleshoot_wait_s=8.0,
    ),
    "checks-seldom": Policy(
        max_restarts=2, unconditional_restart=True, boot_check="quick", boot_check_again_s=60.0
    ),
    "checks-only": Policy(boot_check="full", checks_act=False),
    "checks-shadow": Policy(max_restarts=3, unconditional_restart=True, shadow=True, boot_check="quick"),
    "launcher": Policy(max_restarts=1, unconditional_restart=True, launcher_restarts=True),
}
NODES = ("n0", "n1", "n2", "n3")
DEVICE = ms.Device(node="n0", device="3", code="80E01801")
PLACED = (
    ms.Worker(node="n0", schedule_cnt=1, proc_start_cnt=1),
    ms.Worker(node="n1", schedule_cnt=1, proc_start_cnt=1),
)
INCIDENT = ms.Incident(
    number=1,
    attempt=1,
    since_s=90.0,
    faults=(ms.DeviceFault(device=DEVICE, steps_up=False),),
    rung="in-place",
)
ALIVE = ms.Job(name="j", workers=PLACED, attempt=1, alive=True, step=20)
HURT = replace(ALIVE, incident=INCIDENT, incidents=1)
DEAD = replace(HURT, alive=False)
UNPLACED = replace(DEAD, workers=(ms.Worker(schedule_cnt=1), PLACED[1]))
UNCHECKED = ms.Job(
    name="j",
    workers=(
        ms.Worker(node="n0", schedule_cnt=1, fresh=True, to_check="quick"),
        ms.Worker(node="n1", schedule_cnt=1, fresh=True, to_check="quick"),
    ),
)
SUSPECT = replace(HURT, incident=replace(INCIDENT, rung="", faults=(ms.ExitFault(worker=0, code=1, rank=0),)))

STATES = [
    ms.State(),
    ms.State(ms.Job(name="j", workers=(ms.Worker(), ms.Worker())), ms.Placing(since_s=90.0)),
    ms.State(ms.Job(name="j", workers=(ms.Worker(), ms.Worker())), ms.Waiting(since_s=90.0, asked_s=95.0)),
    ms.State(UNPLACED, ms.Placing(since_s=90.0)),
    ms.State(replace(UNPLACED, isolated=("n3",)), ms.Waiting(since_s=90.0, asked_s=95.0)),
    ms.State(UNCHECKED, ms.Checking(since_s=90.0)),
    ms.State(
        replace(DEAD, workers=(replace(UNCHECKED.workers[0], node="n2"), PLACED[1])),
        ms.Checking(since_s=90.0),
    ),
    ms.State(ALIVE, ms.Running(since_s=50.0)),
    ms.State(replace(ALIVE, step=None), ms.Running(since_s=50.0, finished=(1,))),
    ms.State(HURT, ms.Running(since_s=50.0, handled=True)),
    ms.State(replace(HURT, attempt=2, step=None), ms.Running(since_s=50.0)),
    ms.State(SUSPECT, ms.Diagnosing(since_s=90.0)),
    ms.State(replace(SUSPECT, step=None), ms.Diagnosing(since_s=90.0, finished=(0,))),
    ms.State(replace(HURT, to_isolate=("n0", "n1")), ms.Isolating(since_s=90.0)),
    ms.State(replace(HURT, to_heal=(DEVICE,)), ms.Stopping(since_s=90.0, asked_s=90.0)),
    ms.State(replace(DEAD, to_heal=(DEVICE,)), ms.Healing(since_s=90.0)),
    ms.State(HURT, ms.Holding(until_s=150.0, code=1, reason="spent")),
    ms.State(HURT, ms.Finishing(since_s=90.0, outcome="failed", code=1, reason="spent", asked_s=90.0)),
    ms.State(ALIVE, ms.Finishing(since_s=90.0, outcome="succeeded", code=0, reason="done", asked_s=90.0)),
    ms.State(DEAD, ms.Ended(outcome="failed", code=1, reason="spent")),
]


def _placed(attempt: int, *nodes: str) -> ev.WorkersPlaced:
    return ev.WorkersPlaced(at_s=0.0, attempt=attempt, placed=tuple(map(ev.Placed, itertools.count(), nodes)))


def _verdict(incident: int, **says: bool | str) -> ev.VerdictReached:
    return ev.VerdictReached(at_s=0.0, incident=incident, verdict=UNKNOWN, **says)


def _checked(attempt: int, *nodes: str, bad: tuple[str, ...] = (), **more: str) -> ev.NodesChecked:
    isolate = dict.fromkeys(bad, "gpu-ecc: broken")
    return ev.NodesChecked(at_s=0.0, attempt=attempt, nodes=nodes, isolate=isolate, passed=3, **more)


EVENTS: list[ev.AnyEvent] = [
    ev.JobSubmitted(at_s=0.0, job="j", workers=2, command=("train",)),
    ev.ControllerResumed(at_s=0.0),
    ev.JobMoved(at_s=0.0, reason="requeued"),
    ev.Tick(at_s=0.0),
    *(_placed(attempt, *nodes) for attempt in (1, 2) for nodes in (("n0", "n1"), ("n3", "n2"), ("n0",), ())),
    *(ev.PlacementFailed(at_s=0.0, attempt=attempt, reason="no node") for attempt in (1, 2, 3)),
    *(ev.PlacementFailed(at_s=0.0, attempt=attempt, reason="none", hopeless=True) for attempt in (1, 2, 3)),
    ev.AttemptStarted(at_s=0.0, attempt=1),
    ev.AttemptStartFailed(at_s=0.0, attempt=1, worker=0, code=127, reason="not found"),
    ev.RankStarted(at_s=0.0, attempt=1, worker=0, rank=0, pid=40),
    *(
        ev.RankExited(at_s=0.0, attempt=n, worker=0, rank=0, code=code)
        for n in (1, 2)
        for code in (0, 1, -9, None)
    ),
    *(
        ev.WorkerExited(at_s=0.0, attempt=1, worker=worker, code=code)
        for worker in (0, 1)
        for code in (0, 3, -15)
    ),
    *(ev.StepReached(at_s=0.0, attempt=attempt, step=step) for attempt in (1, 2) for step in (5, 21, 500)),
    *(ev.AttemptStopped(at_s=0.0, attempt=attempt, left=left) for attempt in (1, 2) for left in ((), (40,))),
    *(ev.HangFound(at_s=0.0, attempt=n, hang="quiet", culprits=(1,), reason="no step") for n in (1, 2)),
    *(ev.DeviceFaulted(at_s=0.0, node=node, device="3", code="80E01801") for node in NODES),
    ev.DeviceFaulted(at_s=0.0, node="n1", device="0", code="80C98002"),
    *(
        ev.DeviceHealed(at_s=0.0, node=n, device="3", healed=healed)
        for n in ("n0", "n1")
        for healed in (True, False)
    ),
    *(ev.NodeLost(at_s=0.0, node=node, reason="gone") for node in NODES),
    ev.NodeLost(at_s=0.0, node=NODES[0], reason="gone", with_job=True),
    *(ev.NodeReturned(at_s=0.0, node=node) for node in NODES),
    *(ev.NodeIsolated(at_s=0.0, node=node) for node in NODES),
    *(ev.NodeReleased(at_s=0.0, node=node) for node in NODES),
    *(_verdict(number, environment=outside, problem="p") for number in (1, 2) for outside in (True, False)),
    *(
        _checked(attempt, *nodes, bad=bad, context=context)
        for attempt in (1, 2)
        for nodes, bad in ((("n0", "n1"), ()), (("n0", "n2"), ("n0", "n2")), (("n1",), ()))
        for context in (("boot", "on-failure") if bad else ("boot",))
    ),
    *(_checked(attempt, "n0", stop="the script is not there") for attempt in (1, 2)),
    _checked(1, "n0", "n1", "n2", why_not="no process"),
    _verdict(1, user_code=True, problem="q"),
    *(ev.StopRequested(at_s=0.0, reason="asked", force=force) for force in (True, False)),
    *(ev.RestartRequested(at_s=0.0, attempt=attempt, by="ana") for attempt in (1, 2)),
    ev.FindingNoted(at_s=0.0, finding="slow", text="rank 3 is slow"),
    ev.PolicyChanged(at_s=0.0, fields=PolicyFields(max_restarts=2), text="changed"),
    ev.IncidentAcknowledged(at_s=0.0, incident=1, by="ana"),
    ev.VerdictCorrected(at_s=0.0, incident=1, by="ana", category="data_error", text="shard 19 is torn"),
]


def unsound(state: ms.State) -> str:
    """Why this state cannot be; empty when it can."""
    job, phase = state.job, state.phase
    homeless = [index for index, worker in enumerate(job.workers) if worker.node is None]
    wrong = {
        "a diagnosis without an incident": isinstance(phase, ms.Diagnosing) and job.incident is None,
        "nothing to isolate": isinstance(phase, ms.Isolating) and not job.to_isolate,
        "nothing to heal": isinstance(phase, ms.Healing) and not job.to_heal,
        "healing beside living processes": isinstance(phase, ms.Healing) and job.alive,
        "stopping nothing": isinstance(phase, ms.Stopping) and not job.alive,
        "checking nobody": isinstance(phase, ms.Checking)
        and not any(worker.node and worker.to_check for worker in job.workers),
        "checking beside living processes": isinstance(phase, ms.Checking) and job.alive,
        "running unchecked": isinstance(phase, ms.Running | ms.Diagnosing)
        and any(worker.to_check for worker in job.workers),
        "checking who has no place": any(worker.to_check and worker.node is None for worker in job.workers),
        "placing nobody": isinstance(phase, ms.Placing | ms.Waiting) and not homeless,
        "placing beside living processes": isinstance(phase, ms.Placing | ms.Waiting) and job.alive,
        "running without a place": isinstance(phase, ms.Running | ms.Diagnosing) and bool(homeless),
        "running before the first attempt": isinstance(phase, ms.Running) and job.attempt < 1,
        "running with something left to do": isinstance(phase, ms.Running)
        and bool(job.to_isolate or job.to_heal),
    }
    return ", ".join(name for name, is_so in wrong.items() if is_so)


def states(policy: Policy) -> list[ms.State]:
    """Those that this policy can lead to: in shadow nothing is ever recovered."""
    recovering = ms.Isolating | ms.Stopping | ms.Placing | ms.Waiting | ms.Checking | ms.Healing
    return [
        one
        for one in STATES
        if not (policy.shadow and one.job.incident and isinstance(one.phase, recovering))
    ]


def went_back(before: ms.Job, after: ms.Job) -> list[str]:
    names = ("attempt", "incidents", "restarts", "replacements", "hardware_reschedules", "bar_step")
    lower = [name for name in names if getattr(after, name) < getattr(before, name)]
    pairs = zip(before.workers, after.workers, strict=False)
    return lower + ["schedule_cnt" for old, new in pairs if new.schedule_cnt < old.schedule_cnt]


def test_no_phase_and_no_event_is_left_out():
    assert {type(state.phase) for state in STATES} == set(get_args(ms.AnyPhase))
    assert {type(event) for event in EVENTS} == set(get_args(ev.AnyEvent))
    assert [unsound(state) for state in STATES] == [""] * len(STATES)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("at_s", [100.0, 1e6])
def test_every_phase_answers_every_event(policy, at_s):
    for state, event in itertools.product(states(policy), EVENTS):
        decision = decide(state, replace(event, at_s=at_s), policy)
        case = f"{type(state.phase).__name__} x {event}"
        assert unsound(decision.state) == "", case
        assert went_back(state.job, decision.state.job) == [], case
        if isinstance(state.phase, ms.Ended) and not isinstance(event, ev.ControllerResumed):
            assert decision.orders == (), case
            assert decision.state.phase == state.phase, case


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_two_events_on_end_leave_no_impossible_state(policy):
    """All pairs, in all phases: what a first event leaves behind answers the second, too.

    One that changes nothing is left out: with the second alone the state is as above.
    """
    for state, first in itertools.product(states(policy), EVENTS):
        after = decide(state, replace(first, at_s=100.0), policy).state
        if after == state:
            continue
        for second in EVENTS:
            assert unsound(decide(after, replace(second, at_s=101.0), policy).state) == "", (
                state,
                first,
                second,
            )


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_survives_the_wire(event):
    assert msgspec.json.decode(msgspec.json.encode(event), type=ev.AnyEvent) == event


def test_the_orders_survive_the_wire():
    given_orders = [
        decide(state, replace(event, at_s=200.0), POLICIES["everything"]).orders
        for state, event in itertools.product(STATES, EVENTS)
    ]
    kinds = {type(order) for orders in given_orders for order in orders}
    assert kinds == set(get_args(od.AnyOrder))
    for orders in given_orders:
        assert tuple(msgspec.json.decode(msgspec.json.encode(orders), type=list[od.AnyOrder])) == orders


# --- any story at all


class Story:
    """A controller told a story; what must always hold is checked after every event."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.rows: list[tuple[object, ...]] = []
        self.orders: list[od.AnyOrder] = []
        self.latest: tuple[od.AnyOrder, ...] = ()
        self.started = self.stopped = 0
        self.controller = Controller(policy, self, self, self.on_decision)
        self.before = ms.State()
        self.at_s = 0.0
        self.judged: dict[int, int] = {}
        self.over = False

    def record(self, row):
        self.rows.append((row.at_s, row.kind, row.event, row.orders, row.why, len(self.rows) + 1))

    def flush(self):
        return True

    def carry_out(self, order):
        self.orders.append(order)

    def tell(self, event: ev.AnyEvent, after_s: float = 0.5) -> None:
        self.at_s += after_s
        if isinstance(event, ev.AttemptStopped) and event.attempt == self.started and not event.left:
            self.stopped = event.attempt
        self.controller.handle(replace(event, at_s=self.at_s))

    def on_decision(self, event: ev.AnyEvent, decision: Decision) -> None:
        before, after = self.before, decision.state
        self.before = after
        assert unsound(after) == ""
        assert went_back(before.job, after.job) == []
        assert after.job.restarts <= (self.policy.max_restarts or 0)
        assert after.job.replacements <= (self.policy.replace_workers or 0)
        assert after.job.hangs_in_a_row <= self.policy.hangs_in_a_row_max
        self.check_orders(event, decision)
        if not isinstance(event, ev.JobMoved):  # its incident was the scheduler's doing
            self.check_judgement(before, decision)
        if decision.orders:
            self.latest = decision.orders

    def check_orders(self, event: ev.AnyEvent, decision: Decision) -> None:
        resumed = isinstance(event, ev.ControllerResumed)
        if isinstance(event, ev.JobMoved):
            self.stopped = self.started  # the scheduler has ended all there was
        for order in decision.orders:
            assert not self.over or (resumed and isinstance(order, od.EndJob)), "an order after the end"
            if resumed:
                is_end = isinstance(
                    order, od.EndJob
                )  # new where the scheduler ended a job that was about to end
                assert is_end or sense(order) in {sense(old) for old in self.orders}, (
                    "a new order from a resumed controller"
                )
            if isinstance(order, od.StartAttempt) and order.attempt > self.started:
                assert self.started == self.stopped, "two attempts alive"
                self.started = order.attempt
        self.over = self.over or any(isinstance(order, od.EndJob) for order in decision.orders)

    def check_judgement(self, before: ms.State, decision: Decision) -> None:
        """An incident that is diagnosed gets one rung, once; more only when the same attempt fails again."""
        left = isinstance(before.phase, ms.Diagnosing) and not isinstance(decision.state.phase, ms.Diagnosing)
        ended = isinstance(decision.state.phase, ms.Finishing | ms.Ended)
        assert not left or decision.choice is not None or ended
        if decision.choice is not None:
            assert decision.state.job.incident is not None
            assert decision.choice.incident == decision.state.job.incident.number
            assert decision.choice.rung == decision.state.job.incident.rung

    def resume(self) -> None:
        """The controller dies here; a new one replays, gives only known orders, and is where the old one was."""
        before = self.controller.state
        assert replay(self.rows, self.policy) == before
        self.controller = Controller(self.policy, self, self, self.on_decision, before)
        self.tell(ev.ControllerResumed(at_s=0.0))
        if isinstance(before.phase, ms.Checking):  # who looked at the nodes is gone, too
            before = ms.State(before.job, ms.Checking(since_s=self.at_s))
        assert self.controller.state == before


def sense(order: od.AnyOrder) -> tuple[object, ...]:
    """What an engine knows an order by."""
    match order:
        case od.PlaceWorkers():
            return ("place", order.attempt)
        case od.CheckNodes():
            return ("check", order.attempt)
        case od.StartAttempt():
            return ("start", order)
        case od.StopAttempt():
            return ("stop", order.attempt)
        case od.EndJob():
            return ("end", order.outcome)
        case _:
            return (order,)


def answer(order: od.AnyOrder, luck: int) -> ev.AnyEvent:
    """What an engine may say to an order; `luck` 0 is the good news."""
    match order:
        case od.PlaceWorkers():
            free = [node for node in NODES if node not in (*order.keep_nodes, *order.without_nodes)]
            if luck > 2 or len(free) < len(order.workers):
                return ev.PlacementFailed(at_s=0.0, attempt=order.attempt, reason="no node")
            placed = tuple(map(ev.Placed, order.workers, free))
            return ev.WorkersPlaced(
                at_s=0.0, attempt=order.attempt, placed=placed[: 1 if luck == 2 else None]
            )
        case od.CheckNodes():
            bad = order.nodes[:1] if luck == 2 else ()
            stop = "the script is not there" if luck == 3 else ""
            return _checked(order.attempt, *order.nodes[: 1 if luck == 1 else None], bad=bad, stop=stop)
        case od.StartAttempt():
            return ev.AttemptStarted(at_s=0.0, attempt=order.attempt)
        case od.StopAttempt():
            return ev.AttemptStopped(at_s=0.0, attempt=order.attempt, left=(7,) if luck > 2 else ())
        case od.HealDevice():
            return ev.DeviceHealed(at_s=0.0, node=order.node, device=order.device, healed=luck < 2)
        case od.IsolateNode():
            return ev.NodeIsolated(at_s=0.0, node=order.node)
        case od.Diagnose():
            return _verdict(order.incident, environment=luck < 2, problem=f"p{luck % 2}", user_code=luck == 3)
        case od.TellPeople() | od.EndJob():
            return ev.Tick(at_s=0.0)


def trouble(story: Story, kind: int, luck: int) -> ev.AnyEvent:
    """A fault of what runs now."""
    attempt, step = story.controller.state.job.attempt, story.controller.state.job.step or 0
    makers: list[Callable[[], ev.AnyEvent]] = [
        lambda: ev.StepReached(at_s=0.0, attempt=attempt, step=step + (1, 3, 12, 40)[luck]),
        lambda: ev.RankExited(
            at_s=0.0, attempt=attempt, worker=luck % 2, rank=luck, code=(1, -9, 0, None)[luck]
        ),
        lambda: ev.WorkerExited(at_s=0.0, attempt=attempt, worker=luck % 2, code=(0, 0, 1, -15)[luck]),
        lambda: ev.HangFound(at_s=0.0, attempt=attempt, hang="quiet", culprits=(luck,), reason="no step"),
        lambda: ev.DeviceFaulted(
            at_s=0.0, node=NODES[luck], device="3", code=("80E01801", "80C98002")[luck % 2]
        ),
        lambda: ev.NodeLost(at_s=0.0, node=NODES[luck], reason="gone"),
        lambda: ev.NodeReturned(at_s=0.0, node=NODES[luck]),
    ]
    return makers[kind % len(makers)]()


MOVES = st.lists(
    st.tuples(
        st.sampled_from(("answer", "answer", "answer", "trouble", "trouble", "any", "tick", "resume")),
        st.integers(0, len(EVENTS) - 1),
        st.integers(0, 3),
        st.sampled_from((0.0, 0.5, 5.0, 31.0, 70.0, 700.0, 4000.0)),
    ),
    max_size=50,
)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(sorted(POLICIES)), MOVES)
def test_whatever_happens(name, moves):
    story = Story(POLICIES[name])
    story.tell(EVENTS[0])
    for move, which, luck, after_s in moves:
        match move:
            case "answer" if story.latest:
                story.tell(answer(story.latest[which % len(story.latest)], luck), min(after_s, 5.0))
            case "any":
                story.tell(EVENTS[which], after_s)
            case "resume":
                story.resume()
            case "tick":
                story.tell(ev.Tick(at_s=0.0), after_s)
            case _:
                story.tell(trouble(story, which, luck), min(after_s, 5.0))
    assert replay(story.rows, story.policy) == story.controller.state


# --- time passing, and nodes that come back


def test_an_unanswered_stop_is_ordered_again_and_then_given_up():
    state = ms.State(HURT, ms.Stopping(since_s=90.0, asked_s=90.0))
    policy = POLICIES["restarts"]
    assert decide(state, ev.Tick(at_s=100.0), policy).orders == ()
    again = decide(state, ev.Tick(at_s=121.0), policy)
    assert again.orders == (od.StopAttempt(attempt=1, reason="recovery"),)
    assert decide(again.state, ev.Tick(at_s=122.0), policy).orders == ()
    given_up = decide(state, ev.Tick(at_s=700.0), policy)
    assert given_up.choice is not None
    assert given_up.choice.rung == "fail"


def test_a_lost_node_that_returns_may_be_used_again_and_an_isolated_one_only_when_released():
    job = replace(UNPLACED, lost=("n2",), isolated=("n3",))
    state = ms.State(job, ms.Waiting(since_s=90.0, asked_s=95.0))
    for event, without in (
        (ev.NodeReturned(at_s=100.0, node="n2"), ("n3",)),
        (ev.NodeReturned(at_s=100.0, node="n3"), ("n3", "n2")),
        (ev.NodeReleased(at_s=100.0, node="n3"), ("n2",)),
    ):
        [order] = decide(state, event, POLICIES["restarts"]).orders
        assert isinstance(order, od.PlaceWorkers)
        assert order.without_nodes == without


def test_while_waiting_the_engine_is_asked_again_each_minute_and_at_last_the_job_fails():
    state = ms.State(UNPLACED, ms.Waiting(since_s=90.0, asked_s=95.0))
    policy = POLICIES["restarts"]
    assert decide(state, ev.Tick(at_s=150.0), policy).orders == ()
    assert isinstance(decide(state, ev.Tick(at_s=156.0), policy).orders[0], od.PlaceWorkers)
    late = decide(state, ev.Tick(at_s=91.0 + policy.node_wait_s), policy)
    assert isinstance(late.state.phase, ms.Ended)
    assert late.state.phase.outcome == "failed"


def test_a_job_that_the_scheduler_starts_again_has_not_failed():
    """Nothing is counted, no restart need be allowed, and an incident that its end has opened is none."""
    policy = Policy()
    state = ms.State()
    for event in (
        EVENTS[0],
        _placed(1, "n0", "n1"),
        ev.RankExited(at_s=1.0, attempt=1, worker=0, rank=0, code=-15),
    ):
        state = decide(state, event, policy).state
    decision = decide(state, ev.JobMoved(at_s=2.0, reason="requeued"), policy)
    job = decision.state.job
    assert isinstance(decision.state.phase, ms.Placing)
    assert (job.alive, job.incident, job.restarts, job.lost) == (False, None, 0, ())
    assert [type(order) for order in decision.orders] == [od.PlaceWorkers]
    again = decide(decision.state, _placed(2, "n2", "n3"), policy).state
    assert again.job.attempt == 2
    assert [(worker.schedule_cnt, worker.proc_start_cnt) for worker in again.job.workers] == [(2, 1), (2, 1)]
