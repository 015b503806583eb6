"""Decides what to do about a faulty device or a lost node, in every phase. Pure."""

from typing import assert_never

from msgspec.structs import replace

from holdfast.core.job import faults, ladder, recovery
from holdfast.core.job.decision import Decision
from holdfast.core.nodes import passes as node_passes
from holdfast.model.events import DeviceFaulted, NodeLost
from holdfast.model.policy import Policy
from holdfast.model.state import (
    AnyFault,
    Checking,
    Device,
    DeviceFault,
    Diagnosing,
    Ended,
    Finishing,
    Healing,
    Holding,
    Isolating,
    Job,
    New,
    NodeFault,
    Placing,
    Running,
    State,
    Stopping,
    Waiting,
    Worker,
)

RECOVERING = Isolating | Stopping | Placing | Waiting | Checking | Healing


def on_device(state: State, event: DeviceFaulted, policy: Policy) -> Decision:
    """Decides what to do about a faulty device, depending on the phase of the job."""
    job, phase = state.job, state.phase
    device = Device(node=event.node, device=event.device, code=event.code)
    if isinstance(phase, New | Ended | Finishing | Holding) or device in job.to_heal:
        return Decision(state)
    if all(worker.node != event.node for worker in job.workers):
        why = f"device {event.device} of {event.node} reports {event.code}; no worker runs there"
        return Decision(State(node_passes.without(job, event.node), phase), why=why)
    if isinstance(phase, Diagnosing) and _is_known(job, device):
        return Decision(state)  # one fault reported more than once
    job, fault = ladder.note_device(job, device, event.at_s, policy)
    match phase:
        case Running():
            return faults.open_incident(job, phase, fault, event.at_s)
        case Diagnosing():
            return Decision(State(faults.with_fault(job, fault), phase), why=faults.words(fault))
        case Placing() | Waiting() | Checking() | Isolating() | Stopping() | Healing():
            if policy.shadow:  # shadow mode recovers nothing, so this is before the first start
                return Decision(State(job, phase), why=faults.words(fault))
            if not fault.steps_up:
                job = replace(job, to_heal=(*job.to_heal, device))
            if job.incident is None:  # before the first start of all
                job = faults.with_new_incident(job, fault, event.at_s)
            return _worse(job, phase, fault, event.at_s, policy)
        case never:
            assert_never(never)


def _is_known(job: Job, device: Device) -> bool:
    faults = job.incident.faults if job.incident else ()
    return any(isinstance(fault, DeviceFault) and fault.device == device for fault in faults)


def on_node_lost(state: State, event: NodeLost, policy: Policy) -> Decision:
    """Decides what to do about a lost node, depending on the phase of the job."""
    job, phase = state.job, state.phase
    if event.node in job.lost:
        return Decision(state)
    job = replace(node_passes.without(job, event.node), lost=(*job.lost, event.node))
    fault = NodeFault(node=event.node, reason=event.reason)
    if isinstance(phase, New | Ended | Finishing | Holding):
        return Decision(State(job, phase))
    if event.with_job:
        return Decision(State(job, phase), why=f"the scheduler withdraws {event.node}: {event.reason}")
    if all(worker.node != event.node for worker in job.workers):
        return Decision(State(job, phase), why=f"{event.node} is lost ({event.reason}); no worker runs there")
    match phase:
        case Running():
            return faults.open_incident(job, phase, fault, event.at_s)
        case Diagnosing():
            return Decision(State(faults.with_fault(job, fault), phase), why=faults.words(fault))
        case Placing() | Waiting() | Checking() | Isolating() | Stopping() | Healing():
            return _worse(job, phase, fault, event.at_s, policy)
        case never:
            assert_never(never)


def _worse(job: Job, phase: RECOVERING, fault: AnyFault, at_s: float, policy: Policy) -> Decision:
    """Chooses the rung again because of a further fault during a recovery.

    The incident is charged to the budgets once.
    """
    if job.incident is None:  # the first placement: there is no attempt to recover yet
        state = State(_forgetting(job, fault), phase)
        if isinstance(phase, Checking):  # it had a place, and may have none now
            moved = recovery.advance(state.job, at_s)
            return Decision(moved.state, moved.orders, faults.words(fault))
        return Decision(state, recovery.orders_again(state), faults.words(fault))
    before = job.incident.rung
    job = node_passes.after_a_fault(faults.with_fault(job, fault), fault)
    chosen = ladder.choose(job, policy)
    decision = recovery.act(chosen, phase, at_s, policy)
    if chosen.choice.rung == before and not chosen.choice.isolate:
        return Decision(decision.state, decision.orders, faults.words(fault))
    return decision


def _forgetting(job: Job, fault: AnyFault) -> Job:
    """Returns the job without the placement of workers whose node was lost before the first start."""
    if not isinstance(fault, NodeFault):
        return job
    workers = tuple(
        Worker(schedule_cnt=worker.schedule_cnt) if worker.node == fault.node else worker
        for worker in job.workers
    )
    return replace(job, workers=workers)


def did_not_heal(job: Job, phase: Healing, device: Device, at_s: float, policy: Policy) -> Decision:
    """Decides what follows if a device did not recover in time: the next action of the recovery ladder."""
    caused = device.code in policy.user_caused_codes
    return _worse(job, phase, DeviceFault(device=device, steps_up=True, user_caused=caused), at_s, policy)
