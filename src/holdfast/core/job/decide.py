"""Decides what happens to a job: one pure function from state and event to the next state and orders.

The time is part of each event. `ladder` chooses recovery actions (rungs), `recovery` turns them into orders, `hardware`
handles device and node faults.
"""

from typing import assert_never

from msgspec.structs import replace

from holdfast.core.job import boot_check, faults, hardware, ladder, policy_change, progress, recovery
from holdfast.core.job.decision import Decision
from holdfast.core.job.wording import request_words
from holdfast.core.nodes import passes as node_passes
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStartFailed,
    AttemptStopped,
    ControllerResumed,
    DeviceFaulted,
    DeviceHealed,
    FindingNoted,
    HangFound,
    IncidentAcknowledged,
    JobMoved,
    JobSubmitted,
    NodeIsolated,
    NodeLost,
    NodeReleased,
    NodeReturned,
    NodesChecked,
    PlacementFailed,
    PolicyChanged,
    RankExited,
    RankStarted,
    RestartRequested,
    StepReached,
    StopRequested,
    Tick,
    VerdictCorrected,
    VerdictReached,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import (
    AnyFault,
    CheckFault,
    Checking,
    Diagnosing,
    Ended,
    ExitFault,
    Finishing,
    HangFault,
    Healing,
    Holding,
    Isolating,
    Job,
    New,
    Placing,
    Running,
    StartFault,
    State,
    Stopping,
    Waiting,
    Worker,
)
from holdfast.model.verdicts import UNKNOWN

SIGTERM = 15  # the signal of a stop: an exit by it needs no log line


def decide(state: State, event: AnyEvent, policy: Policy) -> Decision:  # noqa: C901 - one case per event
    """Decides on one event of a job, valid in every state: its new state, the orders and the reason."""
    policy = policy_change.in_force(state.job, policy)
    match event:
        case StepReached():
            return progress.on_step(state, event, policy)
        case Tick():
            return _on_tick(state, event, policy)
        case RankStarted() | AttemptStarted():
            return Decision(state)
        case RankExited():
            return _on_rank_exit(state, event, policy)
        case WorkerExited():
            return _on_worker_exit(state, event, policy)
        case AttemptStartFailed():
            fault = StartFault(worker=event.worker, code=event.code, reason=event.reason)
            return _on_trouble(state, fault, event.attempt, event.at_s, policy)
        case HangFound():
            return _on_hang(state, event, policy)
        case NodesChecked():
            return boot_check.on_checked(state, event, policy)
        case VerdictReached():
            return _on_verdict(state, event, policy)
        case AttemptStopped():
            return _on_stopped(state, event, policy)
        case WorkersPlaced():
            return _on_placed(state, event, policy)
        case PlacementFailed():
            return _on_placement_failed(state, event, policy)
        case DeviceFaulted():
            return hardware.on_device(state, event, policy)
        case DeviceHealed():
            return _on_healed(state, event, policy)
        case NodeLost():
            return hardware.on_node_lost(state, event, policy)
        case NodeReturned() | NodeReleased():
            return _on_node_back(state, event)
        case NodeIsolated():
            return _on_isolated(state, event.node, event.at_s)
        case StopRequested():
            return _on_stop_request(state, event)
        case RestartRequested():
            return _on_restart_request(state, event)
        case JobSubmitted():
            return _on_submitted(state, event)
        case ControllerResumed():
            return _on_resumed(state, event)
        case JobMoved():
            return _on_moved(state, event, policy)
        case FindingNoted():
            return Decision(state, why=event.text)
        case PolicyChanged():
            return policy_change.on_changed(state, event)
        case IncidentAcknowledged() | VerdictCorrected():
            return Decision(state)
        case never:
            assert_never(never)


def _on_submitted(state: State, event: JobSubmitted) -> Decision:
    if not isinstance(state.phase, New):
        return Decision(state, why="the job was submitted a second time; it already runs")
    job = Job(name=event.job, workers=tuple(Worker() for _ in range(event.workers)))
    moved = recovery.advance(job, event.at_s)
    return Decision(moved.state, moved.orders, f"job {event.job} submitted")


def _on_resumed(state: State, event: ControllerResumed) -> Decision:
    if isinstance(
        state.phase, Checking
    ):  # the check may have ended with the controller: the time starts again
        state = State(state.job, Checking(since_s=event.at_s))
    return Decision(state, recovery.orders_again(state), "the controller resumed from its journal")


def _on_moved(state: State, event: JobMoved, policy: Policy) -> Decision:
    """Starts again after the scheduler restarted the whole job: no failure, and no restart is charged."""
    job, phase = state.job, state.phase
    if isinstance(phase, New | Ended | Holding):
        return Decision(state)
    if isinstance(phase, Finishing):
        job = replace(job, alive=False)
        return Decision(
            recovery.end(job, Ended(phase.outcome, phase.code, phase.reason)).state, why=phase.reason
        )
    recovering = job.incident is not None and bool(job.incident.rung) and not policy.shadow
    job = replace(
        job,
        alive=False,
        lost=(),
        to_heal=(),
        passed=node_passes.after_a_move(job, event).passed,
        workers=tuple(Worker(schedule_cnt=worker.schedule_cnt) for worker in job.workers),
        incident=job.incident if recovering else None,
    )
    moved = recovery.advance(job, event.at_s)
    return Decision(moved.state, moved.orders, event.reason)


# Trouble -------------------------------------------------------------------------------------------------


def _on_rank_exit(state: State, event: RankExited, policy: Policy) -> Decision:
    fine = not event.code and not event.reason
    if fine or policy.launcher_restarts:
        return Decision(state)
    code = event.code if event.code is not None else 1
    fault = ExitFault(worker=event.worker, rank=event.rank, code=code, reason=event.reason)
    return _on_trouble(state, fault, event.attempt, event.at_s, policy)


def _on_worker_exit(state: State, event: WorkerExited, policy: Policy) -> Decision:
    job, phase = state.job, state.phase
    if event.attempt != job.attempt:
        return Decision(state)
    if isinstance(phase, Finishing):
        return _with_the_commands_own_code(state, phase, event)
    if event.code != 0:
        fault = ExitFault(worker=event.worker, code=event.code)
        return _on_trouble(state, fault, event.attempt, event.at_s, policy)
    if not isinstance(phase, Running | Diagnosing):
        return Decision(state)
    finished = tuple(dict.fromkeys((*phase.finished, event.worker)))
    if len(finished) == len(job.workers) and not _has_failed_rank(state):
        ending = Ended(outcome="succeeded", code=0, reason="the command ended with code 0 in every worker")
        return recovery.finish(job, event.at_s, ending)
    return Decision(State(job, replace(phase, finished=finished)))


def _has_failed_rank(state: State) -> bool:
    faults = state.job.incident.faults if state.job.incident else ()
    return isinstance(state.phase, Diagnosing) and any(isinstance(fault, ExitFault) for fault in faults)


def _with_the_commands_own_code(state: State, phase: Finishing, event: WorkerExited) -> Decision:
    own = recovery.exit_code(event.code)
    if phase.outcome == "succeeded" or (
        phase.outcome == "failed" and (event.code <= 0 or event.code == 128 + SIGTERM)
    ):
        return Decision(state)
    return Decision(State(state.job, replace(phase, code=own)))


def _on_hang(state: State, event: HangFound, policy: Policy) -> Decision:
    if isinstance(state.phase, Running) and state.phase.handled:
        return Decision(state)
    fault = HangFault(hang=event.hang, culprits=event.culprits, reason=event.reason)
    return _on_trouble(state, fault, event.attempt, event.at_s, policy)


def _on_trouble(state: State, fault: AnyFault, attempt: int, at_s: float, policy: Policy) -> Decision:
    """Opens or extends an incident for a fault of the current attempt, unless that is being ended."""
    if attempt != state.job.attempt:
        return Decision(state)
    match state.phase:
        case Running() as phase:
            return faults.open_incident(state.job, phase, fault, at_s)
        case Diagnosing():
            return Decision(State(faults.with_fault(state.job, fault), state.phase))
        case New() | Placing() | Waiting() | Checking() | Isolating() | Stopping() | Healing():
            return Decision(state)
        case Holding() | Finishing() | Ended():
            return Decision(state)
        case never:
            assert_never(never)


def _on_node_back(state: State, event: NodeReturned | NodeReleased) -> Decision:
    job = state.job
    lost = tuple(node for node in job.lost if node != event.node)
    isolated = job.isolated
    if isinstance(event, NodeReleased):
        isolated = tuple(node for node in isolated if node != event.node)
    job = replace(node_passes.without(job, event.node), lost=lost, isolated=isolated)
    state = State(job, state.phase)
    if isinstance(state.phase, Waiting):
        return _ask_again(state, state.phase, event.at_s, f"{event.node} is back")
    return Decision(state)


def _on_isolated(state: State, node: str, at_s: float) -> Decision:
    job = state.job
    if node not in job.to_isolate:
        return Decision(state)
    rest = tuple(name for name in job.to_isolate if name != node)
    isolated = tuple(dict.fromkeys((*job.isolated, node)))
    job = replace(node_passes.without(job, node), to_isolate=rest, isolated=isolated)
    return (
        recovery.advance(job, at_s)
        if isinstance(state.phase, Isolating)
        else Decision(State(job, state.phase))
    )


# Recovery ------------------------------------------------------------------------------------------------


def _on_verdict(state: State, event: VerdictReached, policy: Policy) -> Decision:
    job, phase = state.job, state.phase
    if not isinstance(phase, Diagnosing) or job.incident is None or job.incident.number != event.incident:
        return Decision(state)
    incident = replace(
        job.incident,
        verdict=event.verdict,
        problem=event.problem,
        user_code=event.user_code,
        environment=event.environment,
    )
    job = node_passes.after_a_verdict(replace(job, incident=incident))
    return recovery.act(ladder.choose(job, policy), phase, event.at_s, policy)


def _on_stopped(state: State, event: AttemptStopped, policy: Policy) -> Decision:
    job, phase = state.job, state.phase
    if event.attempt != job.attempt or not job.alive:
        return Decision(state)
    if event.left:
        return Decision(state, why=f"processes {list(event.left)} cannot be killed yet (state D)")
    job = replace(job, alive=False)
    match phase:
        case Stopping() | Isolating() | Placing() | Healing():
            return recovery.advance(job, event.at_s)
        case Finishing():
            return recovery.end(job, Ended(outcome=phase.outcome, code=phase.code, reason=phase.reason))
        case New() | Waiting() | Checking() | Running() | Diagnosing() | Holding() | Ended():
            return Decision(State(job, phase))
        case never:
            assert_never(never)


def _on_placed(state: State, event: WorkersPlaced, policy: Policy) -> Decision:
    job, phase = state.job, state.phase
    if not isinstance(phase, Placing | Waiting) or event.attempt != job.attempt + 1:
        return Decision(state)
    shunned = {*job.isolated, *job.to_isolate, *job.lost}
    nodes = {place.worker: place.node for place in event.placed if place.node not in shunned}
    suite = "" if policy.boot_check == "off" else policy.boot_check
    good = node_passes.still_good(job, event.at_s, policy)
    workers = tuple(
        replace(
            worker,
            node=nodes[index],
            schedule_cnt=worker.schedule_cnt + 1,
            fresh=True,
            to_check="" if nodes[index] in good else suite,
        )
        if worker.node is None and index in nodes
        else _with_check_if_due(worker, good, suite, policy)
        for index, worker in enumerate(job.workers)
    )
    return recovery.advance(replace(job, workers=workers), event.at_s)


def _with_check_if_due(worker: Worker, good: frozenset[str], suite: str, policy: Policy) -> Worker:
    """Returns the worker, to be checked if it was placed without a check and its node's pass has expired."""
    if not policy.boot_check_again_s or not worker.fresh or worker.node is None or worker.node in good:
        return worker
    return replace(worker, to_check=suite)


def _on_placement_failed(state: State, event: PlacementFailed, policy: Policy) -> Decision:
    if not event.hopeless or not isinstance(state.phase, Placing | Waiting):
        return _on_no_place(state, event.attempt, event.reason, event.at_s, policy)
    if state.job.incident is None:
        ending = Ended(outcome="failed", code=1, reason=event.reason)
        return recovery.finish(state.job, event.at_s, ending)
    failed = [faults.words(one) for one in state.job.incident.faults if isinstance(one, CheckFault)]
    why = "; ".join((*failed[:1], event.reason)) + (f" ({boot_check.ALL_THE_SAME})" if failed else "")
    return recovery.act(ladder.fail(state.job, why), state.phase, event.at_s, policy)


def _on_no_place(state: State, attempt: int, reason: str, at_s: float, policy: Policy) -> Decision:
    job, phase = state.job, state.phase
    if isinstance(phase, Waiting) or not isinstance(phase, Placing) or attempt != job.attempt + 1:
        return Decision(state)
    if job.incident is None:  # the first placement of all
        waiting = State(job, Waiting(since_s=at_s, asked_s=at_s))
        return Decision(waiting, why=f"no healthy node: {reason}; waiting for one")
    if job.incident.rung == "replace-worker":
        job = replace(job, incident=replace(job.incident, replacement_failed=True))
        return recovery.act(ladder.reschedule_instead(job, policy, reason), phase, at_s, policy)
    return recovery.act(ladder.wait_for_node(job, reason), phase, at_s, policy)


def _on_healed(state: State, event: DeviceHealed, policy: Policy) -> Decision:
    job, phase = state.job, state.phase
    mine = [device for device in job.to_heal if (device.node, device.device) == (event.node, event.device)]
    if not mine or not isinstance(phase, Healing) or job.incident is None:
        return Decision(state)
    rest = tuple(device for device in job.to_heal if device not in mine)
    job = replace(job, to_heal=rest)
    if event.healed:
        return recovery.advance(job, event.at_s)
    return hardware.did_not_heal(job, phase, mine[0], event.at_s, policy)


# People and time -----------------------------------------------------------------------------------------


def _on_stop_request(state: State, event: StopRequested) -> Decision:
    match state.phase:
        case Ended():
            return Decision(state)
        case Finishing() as phase:
            if not event.force or phase.force:
                return Decision(state)
            state = State(state.job, replace(phase, force=True, finish_s=0.0))
            return Decision(state, recovery.orders_again(state), event.reason)
        case Holding() as holding:
            ending = Ended(outcome="failed", code=holding.code, reason=holding.reason)
            return recovery.finish(state.job, event.at_s, ending, force=event.force)
        case (
            New()
            | Placing()
            | Waiting()
            | Checking()
            | Running()
            | Diagnosing()
            | Isolating()
            | Stopping()
            | Healing()
        ):
            ending = Ended(outcome="stopped", code=event.code, reason=event.reason)
            finish_s = 0.0 if event.force else event.finish_s
            return recovery.finish(state.job, event.at_s, ending, finish_s=finish_s, force=event.force)
        case never:
            assert_never(never)


def _on_restart_request(state: State, event: RestartRequested) -> Decision:
    """Restarts an attempt that runs or is held; any other phase already leads to a start or to the end."""
    if not isinstance(state.phase, Running | Holding) or event.attempt != state.job.attempt:
        return Decision(state)
    moved = recovery.advance(state.job, event.at_s)
    return Decision(moved.state, moved.orders, request_words(event))


def _on_tick(state: State, event: Tick, policy: Policy) -> Decision:
    at_s = event.at_s
    match state.phase:
        case New() | Ended():
            return Decision(state)
        case Running() as phase:
            return progress.settled(state, phase, at_s, policy)
        case Diagnosing(since_s=since_s):
            late = at_s - since_s > policy.verdict_wait_s
            return _without_verdict(state, at_s, policy) if late else Decision(state)
        case Isolating(since_s=since_s):
            late = at_s - since_s > policy.isolate_wait_s
            return _isolated_by_list_only(state, at_s) if late else Decision(state)
        case Stopping() as phase:
            return _still_stopping(state, phase, at_s, policy)
        case Placing(since_s=since_s):
            late = at_s - since_s > policy.place_wait_s
            reason = f"no answer for {policy.place_wait_s:.0f} s"
            return (
                _on_no_place(state, state.job.attempt + 1, reason, at_s, policy) if late else Decision(state)
            )
        case Waiting() as phase:
            return _still_waiting(state, phase, at_s, policy)
        case Checking() as phase:
            return boot_check.on_tick(state, phase, at_s, policy)
        case Healing() as phase:
            late = at_s - phase.since_s > policy.heal_wait_s
            return _heal_is_late(state, phase, at_s, policy) if late else Decision(state)
        case Holding(until_s=until_s) as phase:
            ending = Ended(outcome="failed", code=phase.code, reason=phase.reason)
            return recovery.finish(state.job, at_s, ending) if at_s >= until_s else Decision(state)
        case Finishing() as phase:
            return _still_finishing(state, phase, at_s, policy)
        case never:
            assert_never(never)


def _without_verdict(state: State, at_s: float, policy: Policy) -> Decision:
    assert state.job.incident is not None, "only an open incident is diagnosed"
    number = state.job.incident.number
    late = VerdictReached(at_s=at_s, incident=number, verdict=UNKNOWN)
    return _on_verdict(state, late, policy)


def _isolated_by_list_only(state: State, at_s: float) -> Decision:
    """Continues without the engine's answer to an isolation: placements avoid the node anyway."""
    job = state.job
    isolated = tuple(dict.fromkeys((*job.isolated, *job.to_isolate)))
    return recovery.advance(replace(job, to_isolate=(), isolated=isolated), at_s)


def _still_stopping(state: State, phase: Stopping, at_s: float, policy: Policy) -> Decision:
    if at_s - phase.since_s > policy.stop_wait_s:
        why = f"processes of attempt {state.job.attempt} could not be ended in {policy.stop_wait_s:.0f} s"
        return recovery.act(ladder.fail(state.job, why), phase, at_s, policy)
    if at_s - phase.asked_s < policy.stop_again_s:
        return Decision(state)
    again = State(state.job, replace(phase, asked_s=at_s))
    return Decision(again, recovery.orders_again(again))


def _still_waiting(state: State, phase: Waiting, at_s: float, policy: Policy) -> Decision:
    if at_s - phase.since_s > policy.node_wait_s:
        why = f"no healthy node for {policy.node_wait_s:.0f} s"
        if state.job.incident is None:
            return recovery.finish(state.job, at_s, Ended(outcome="failed", code=1, reason=why))
        return recovery.act(ladder.fail(state.job, why), phase, at_s, policy)
    if at_s - phase.asked_s < policy.place_again_s:
        return Decision(state)
    return _ask_again(state, phase, at_s, "")


def _ask_again(state: State, phase: Waiting, at_s: float, why: str) -> Decision:
    again = State(state.job, replace(phase, asked_s=at_s))
    return Decision(again, recovery.orders_again(again), why)


def _heal_is_late(state: State, phase: Healing, at_s: float, policy: Policy) -> Decision:
    device = state.job.to_heal[0]
    job = replace(state.job, to_heal=state.job.to_heal[1:])
    return hardware.did_not_heal(job, phase, device, at_s, policy)


def _still_finishing(state: State, phase: Finishing, at_s: float, policy: Policy) -> Decision:
    if at_s - phase.since_s > policy.stop_wait_s:
        return recovery.end(state.job, Ended(outcome=phase.outcome, code=phase.code, reason=phase.reason))
    if at_s - phase.asked_s < policy.stop_again_s:
        return Decision(state)
    again = State(state.job, replace(phase, asked_s=at_s))
    return Decision(again, recovery.orders_again(again))
