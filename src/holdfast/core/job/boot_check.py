"""Decides what follows from checks of a job's nodes, before a start (boot check) and after a failure. Pure.

Fails open: if a check cannot run, or does not answer in time, the log says so and the training starts.
"""

from msgspec.structs import replace

from holdfast.core.checks.answers import key_of
from holdfast.core.job import faults, ladder, recovery
from holdfast.core.job.decision import Decision
from holdfast.core.nodes import passes as node_passes
from holdfast.model.checks import BOOT, IDLE, ON_FAILURE
from holdfast.model.events import NodesChecked
from holdfast.model.policy import Policy
from holdfast.model.state import (
    BootChecked,
    CheckFault,
    Checking,
    Diagnosing,
    Healing,
    Isolating,
    Job,
    Placing,
    State,
    Stopping,
    Waiting,
)

KNOWN_MAX = 64
ALL_THE_SAME = "--no-checks-act starts it anyway"
NAMES_MAX = 4


def on_checked(state: State, event: NodesChecked, policy: Policy) -> Decision:
    """Decides what follows from the result of a check of nodes.

    The result of a boot check is used until its attempt starts, that of checks after a failure until the diagnosis
    ends.
    """
    job, phase = state.job, state.phase
    match phase:
        case _ if event.context == IDLE:
            return Decision(State(node_passes.noted(job, event), phase))
        case Diagnosing() if event.context == ON_FAILURE and event.attempt == job.attempt:
            # In shadow mode too: the ladder then records what it would do.
            for fault in _broken(job, event, may_act=policy.checks_act):
                job = faults.with_fault(job, fault)
            return Decision(State(job, phase))
        case Checking() | Placing() | Waiting() | Healing() | Isolating() if event.context == BOOT:
            is_asked = event.attempt == job.attempt + 1
            return _boot_checked(job, phase, event, policy) if is_asked else Decision(state)
        case Checking() | Placing() | Waiting() | Healing() | Isolating() | Stopping():
            is_late = event.attempt == job.attempt and job.incident is not None
            return _found_late(state, phase, event, policy) if is_late else Decision(state)
        case _:
            return Decision(_doubted(state, event))


def _doubted(state: State, event: NodesChecked) -> State:
    """Returns the state in which nodes whose failed check came too late must be checked before they are used
    again.
    """
    job = node_passes.without(state.job, *event.isolate)
    return state if job is state.job else State(job, state.phase)


def _found_late(
    state: State,
    phase: Checking | Placing | Waiting | Healing | Isolating | Stopping,
    event: NodesChecked,
    policy: Policy,
) -> Decision:
    """Returns the decision on a failed check that arrives after the rung was chosen: one more fault of the
    incident.
    """
    job = state.job
    for fault in _broken(job, event, may_act=_may_act(policy)):
        job = node_passes.after_a_fault(faults.with_fault(job, fault), fault)
    if job is state.job:
        return Decision(_doubted(state, event))
    return recovery.act(ladder.choose(job, policy), phase, event.at_s, policy)


def on_tick(state: State, phase: Checking, at_s: float, policy: Policy) -> Decision:
    """Starts the attempt without the result of the boot check, if the check has exceeded its time limit."""
    job = state.job
    is_full = any(worker.to_check == "full" for worker in job.workers)
    wait_s = policy.full_check_wait_s if is_full else policy.boot_check_wait_s
    if at_s - phase.since_s <= wait_s:
        return Decision(state)
    silent = [worker.node for worker in job.workers if worker.to_check and worker.node is not None]
    moved = recovery.advance(_checked(job, silent), at_s)
    why = f"the boot check of {_names(silent)} gave no answer for {wait_s:.0f} s; the attempt starts anyway"
    return Decision(moved.state, moved.orders, why)


def _boot_checked(
    job: Job,
    phase: Checking | Placing | Waiting | Healing | Isolating,
    event: NodesChecked,
    policy: Policy,
) -> Decision:
    job = replace(_checked(job, event.nodes), boot=_remembered(event))
    may_act = _may_act(policy)
    broken = _broken(job, event, may_act=may_act)
    for fault in broken:
        job = node_passes.after_a_fault(job, fault)
    job = node_passes.noted(job, event)
    cannot_work = bool(event.stop) and may_act
    for fault in [*broken, *([CheckFault(node="", reason=event.stop)] if cannot_work else [])]:
        if job.incident is None:
            job = faults.with_new_incident(job, fault, event.at_s)
        else:
            job = faults.with_fault(job, fault)
    if cannot_work:
        why = f"the boot check says that the run cannot work: {event.stop.rstrip('.')} ({ALL_THE_SAME})"
        chosen = ladder.fail(job, why)
        return recovery.act(chosen, phase, event.at_s, policy)
    if broken:
        return recovery.act(ladder.choose(job, policy), phase, event.at_s, policy)
    if not isinstance(phase, Checking) or any(worker.to_check for worker in job.workers):
        return Decision(State(job, phase))  # another node's answer, or something else, is still missing
    moved = recovery.advance(job, event.at_s)
    return Decision(moved.state, moved.orders, _only_said(event, policy))


def _broken(job: Job, event: NodesChecked, *, may_act: bool) -> list[CheckFault]:
    """Returns a fault for each node with a worker that a check asks to isolate; none if checks may not act."""
    used = {worker.node for worker in job.workers}
    return [
        CheckFault(node=node, reason=why) for node, why in event.isolate.items() if may_act and node in used
    ]


def _may_act(policy: Policy) -> bool:
    return policy.checks_act and not policy.shadow


def _only_said(event: NodesChecked, policy: Policy) -> str:
    """Returns a message on what Holdfast would have done; empty if it may act, or if nothing was
    to be done.
    """
    if _may_act(policy) or not (event.stop or event.isolate):
        return ""
    would = "stop the job" if event.stop else f"isolate {_names(list(event.isolate))}"
    mode = (
        "shadow" if policy.shadow else "--checks-act is off (a check may not stop the job or isolate a node)"
    )
    return f"{mode}: the boot check would {would}; the attempt starts anyway"


def _checked(job: Job, nodes: tuple[str, ...] | list[str]) -> Job:
    done = set(nodes)
    workers = tuple(
        replace(worker, to_check="") if worker.to_check and worker.node in done else worker
        for worker in job.workers
    )
    return replace(job, workers=workers)


def _remembered(event: NodesChecked) -> BootChecked:
    """Returns the findings of the last boot check, so that a later failure does not report them as new."""
    known = tuple(dict.fromkeys(key_of(finding) for finding in event.troubles))
    return BootChecked(status=event.status, known=known[:KNOWN_MAX])


def _names(nodes: list[str]) -> str:
    more = f" and {len(nodes) - NAMES_MAX} more" if len(nodes) > NAMES_MAX else ""
    return ", ".join(dict.fromkeys(nodes[:NAMES_MAX])) + more
