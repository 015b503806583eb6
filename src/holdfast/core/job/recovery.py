"""Turns a chosen recovery action into orders: the first unmet need of the job determines the phase.

The needs, in order: isolate nodes, end the processes of the attempt, place workers, heal devices, check nodes, start.
Each is a field of `Job`, so an event during a recovery (a second lost node, a failed placement) needs no special
case: the phase is computed again. Pure.
"""

from typing import assert_never

from msgspec.structs import replace

from holdfast.core.job.decision import Decision
from holdfast.core.job.ladder import Chosen
from holdfast.core.job.wording import action_words
from holdfast.model.orders import (
    AnyOrder,
    CheckNodes,
    Diagnose,
    EndJob,
    HealDevice,
    IsolateNode,
    PlaceWorkers,
    StartAttempt,
    StopAttempt,
    TellPeople,
    WorkerStart,
)
from holdfast.model.policy import Policy
from holdfast.model.state import (
    AnyPhase,
    BootChecked,
    CheckFault,
    Checking,
    DeviceFault,
    Diagnosing,
    Ended,
    ExitFault,
    Finishing,
    Healing,
    Holding,
    Isolating,
    Job,
    New,
    NodeFault,
    Placing,
    Running,
    StartFault,
    State,
    Stopping,
    Waiting,
    Worker,
)


def act(chosen: Chosen, phase: AnyPhase, at_s: float, policy: Policy) -> Decision:
    """Returns the phase and the orders for a chosen recovery action. In shadow mode the choice is only recorded."""
    job, choice = chosen.job, chosen.choice
    if policy.shadow:
        return _only_record(chosen, phase, at_s)
    match choice.rung:
        case "notify":
            running = Running(since_s=at_s, finished=_finished(phase), handled=True)
            tell = TellPeople(incident=choice.incident, text=choice.why)
            return Decision(State(job, running), (tell,), choice.why, choice)
        case "wait-for-node":
            waiting = Waiting(since_s=at_s, asked_s=at_s)
            tell = TellPeople(incident=choice.incident, text=choice.why)
            return Decision(State(job, waiting), (tell,), choice.why, choice)
        case "fail":
            return _fail(chosen, at_s, policy)
        case _:
            moved = advance(job, at_s)
            return Decision(moved.state, moved.orders, choice.why, choice)


def advance(job: Job, at_s: float) -> Decision:
    """Returns the phase and the orders for the first need of the job that is not met."""
    if job.to_isolate:
        return Decision(State(job, Isolating(since_s=at_s)), _isolate_orders(job))
    if job.alive:
        return Decision(State(job, Stopping(since_s=at_s, asked_s=at_s)), (_stop_order(job, "recovery"),))
    if any(worker.node is None for worker in job.workers):
        return Decision(State(job, Placing(since_s=at_s)), (place_order(job),))
    if job.to_heal:
        return Decision(State(job, Healing(since_s=at_s)), _heal_orders(job))
    if any(worker.to_check for worker in job.workers):
        return Decision(State(job, Checking(since_s=at_s)), (check_order(job),))
    job = replace(job, attempt=job.attempt + 1, alive=True, workers=_counted(job.workers), step=None)
    why = f"attempt {job.attempt} starts"
    return Decision(State(job, Running(since_s=at_s)), (_start_order(job),), why)


def finish(job: Job, at_s: float, ending: Ended, *, finish_s: float = 0.0, force: bool = False) -> Decision:
    """Sets the outcome of the job: ends what is left of the attempt, then the job.

    `finish_s`: time in seconds that the processes get to end by themselves. `force`: SIGKILL at once.
    """
    if not job.alive:
        return end(job, ending)
    phase = Finishing(
        since_s=at_s,
        outcome=ending.outcome,
        code=ending.code,
        reason=ending.reason,
        asked_s=at_s,
        finish_s=finish_s,
        force=force,
    )
    state = State(job, phase)
    return Decision(state, orders_again(state), ending.reason)


def end(job: Job, ending: Ended) -> Decision:
    """Returns the final state of the job, and the order EndJob."""
    order = EndJob(outcome=ending.outcome, code=ending.code, reason=ending.reason)
    return Decision(State(job, ending), (order,), f"{ending.outcome}: {ending.reason}")


def orders_again(state: State) -> tuple[AnyOrder, ...]:
    """Returns the orders in progress in this state.

    A controller that resumes from its journal repeats them.
    """
    job = state.job
    match state.phase:
        case New() | Holding():
            return ()
        case Placing() | Waiting():
            return (place_order(job),)
        case Checking():
            return (check_order(job),)
        case Running():
            return (_start_order(job),)
        case Diagnosing():
            return (diagnose_order(job),)
        case Isolating():
            return _isolate_orders(job)
        case Stopping():
            return (_stop_order(job, "recovery"),)
        case Healing():
            return _heal_orders(job)
        case Finishing() as phase:
            stop = _stop_order(job, phase.reason)
            return (replace(stop, finish_s=phase.finish_s, force=phase.force),)
        case Ended() as phase:
            return (EndJob(outcome=phase.outcome, code=phase.code, reason=phase.reason),)
        case never:
            assert_never(never)


def place_order(job: Job) -> PlaceWorkers:
    """Returns the order to place all workers that have no node now."""
    missing = tuple(index for index, worker in enumerate(job.workers) if worker.node is None)
    keep = tuple(worker.node for worker in job.workers if worker.node is not None)
    without = tuple(dict.fromkeys((*job.isolated, *job.to_isolate, *job.lost)))
    return PlaceWorkers(attempt=job.attempt + 1, workers=missing, keep_nodes=keep, without_nodes=without)


def check_order(job: Job) -> CheckNodes:
    """Returns the order to check all nodes that still need it, with the suite of the first of them."""
    waiting = [worker for worker in job.workers if worker.to_check]
    nodes = tuple(dict.fromkeys(worker.node for worker in waiting if worker.node is not None))
    return CheckNodes(attempt=job.attempt + 1, nodes=nodes, suite=waiting[0].to_check)


def diagnose_order(job: Job) -> Diagnose:
    """Returns the order to diagnose the open incident."""
    assert job.incident is not None, "only an open incident is diagnosed"
    boot = job.boot or BootChecked(status="")
    return Diagnose(incident=job.incident.number, attempt=job.attempt, boot=boot.status, known=boot.known)


def exit_code(code: int) -> int:
    """Returns an exit code as a shell has it: 128 + N for signal N, which is -N here."""
    return code if code >= 0 else 128 - code


def _fail(chosen: Chosen, at_s: float, policy: Policy) -> Decision:
    job, choice = chosen.job, chosen.choice
    code = _failure_code(job)
    tell = TellPeople(incident=choice.incident, text=f"the job fails: {choice.why}")
    if policy.keep_on_failure_s > 0 and job.attempt:
        holding = Holding(until_s=at_s + policy.keep_on_failure_s, code=code, reason=choice.why)
        return Decision(State(job, holding), (tell,), choice.why, choice)
    by_itself = any(isinstance(fault, ExitFault) for fault in job.incident.faults) if job.incident else False
    ending = Ended(outcome="failed", code=code, reason=choice.why)
    done = finish(job, at_s, ending, finish_s=policy.finish_s if by_itself else 0.0)
    return Decision(done.state, (tell, *done.orders), choice.why, choice)


def _only_record(chosen: Chosen, phase: AnyPhase, at_s: float) -> Decision:
    """Marks the incident as handled and changes nothing in the training (shadow mode)."""
    assert chosen.job.incident is not None, "a choice belongs to an incident"
    job = chosen.job
    choice = replace(chosen.choice, shadow=True)
    why = f"shadow: would {action_words(choice)}"
    for fault in chosen.job.incident.faults:
        if isinstance(fault, StartFault) or (isinstance(fault, ExitFault) and fault.rank is None):
            ending = Ended(outcome="failed", code=exit_code(fault.code), reason=why)
            done = finish(job, at_s, ending)
            return Decision(done.state, done.orders, why, choice)
    return Decision(State(job, Running(at_s, _finished(phase), handled=True)), (), why, choice)


def _finished(phase: AnyPhase) -> tuple[int, ...]:
    return phase.finished if isinstance(phase, Running | Diagnosing) else ()


def _failure_code(job: Job) -> int:
    """Returns the exit code of the failed launch command if it is known, else the first failed rank's."""
    faults = job.incident.faults if job.incident else ()
    exits = [fault for fault in faults if isinstance(fault, ExitFault | StartFault)]
    commands = [fault for fault in exits if isinstance(fault, StartFault) or fault.rank is None]
    return exit_code((commands or exits)[0].code) if exits else 1


def _counted(workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
    return tuple(
        replace(worker, proc_start_cnt=1 if worker.fresh else worker.proc_start_cnt + 1, fresh=False)
        for worker in workers
    )


def _start_order(job: Job) -> StartAttempt:
    starts = tuple(
        WorkerStart(
            worker=index,
            node=worker.node or "",
            schedule_cnt=worker.schedule_cnt,
            proc_start_cnt=worker.proc_start_cnt,
        )
        for index, worker in enumerate(job.workers)
    )
    return StartAttempt(attempt=job.attempt, workers=starts)


def _stop_order(job: Job, reason: str) -> StopAttempt:
    return StopAttempt(attempt=job.attempt, reason=reason)


def _isolate_orders(job: Job) -> tuple[AnyOrder, ...]:
    number, known = (job.incident.number, job.incident.faults) if job.incident else (0, ())
    lost = {fault.node for fault in known if isinstance(fault, NodeFault)}
    broken = {fault.node for fault in known if isinstance(fault, CheckFault)}
    broken |= {fault.device.node for fault in known if isinstance(fault, DeviceFault)}
    return tuple(
        IsolateNode(
            incident=number,
            node=node,
            reason=f"incident {number}",
            only_lost=node in lost and node not in broken,
        )
        for node in job.to_isolate
    )


def _heal_orders(job: Job) -> tuple[AnyOrder, ...]:
    number = job.incident.number if job.incident else 0
    return tuple(
        HealDevice(incident=number, node=device.node, device=device.device, code=device.code)
        for device in job.to_heal
    )
