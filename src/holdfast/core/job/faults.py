"""Opens incidents, adds faults to them, and describes faults in words. Pure."""

from typing import assert_never

from msgspec.structs import replace

from holdfast.core.job import ladder, recovery
from holdfast.core.job.decision import Decision
from holdfast.model.state import (
    AnyFault,
    CheckFault,
    DeviceFault,
    Diagnosing,
    ExitFault,
    HangFault,
    Incident,
    Job,
    NodeFault,
    Running,
    StartFault,
    State,
)


def with_new_incident(job: Job, fault: AnyFault, at_s: float) -> Job:
    """Returns the job with a new incident that begins with this fault."""
    number = job.incidents + 1
    incident = Incident(number=number, attempt=job.attempt, since_s=at_s, faults=(fault,))
    return replace(job, incident=incident, incidents=number, bar_step=max(job.bar_step, job.step or 0))


def with_fault(job: Job, fault: AnyFault) -> Job:
    """Returns the job with one more fault in its open incident; at most a fixed number are kept."""
    assert job.incident is not None, "a fault belongs to an incident"
    faults = job.incident.faults
    if fault in faults or len(faults) >= ladder.FAULTS_MAX:
        return job
    return replace(job, incident=replace(job.incident, faults=(*faults, fault)))


def open_incident(job: Job, phase: Running, fault: AnyFault, at_s: float) -> Decision:
    """Opens an incident and orders its diagnosis. If an incident of the same attempt is open, it is reopened."""
    why = words(fault)
    if job.incident is not None and job.incident.attempt == job.attempt:
        job = with_fault(
            replace(job, incident=replace(job.incident, rung="", verdict=None, faults=())), fault
        )
    else:
        job = with_new_incident(job, fault, at_s)
    diagnosing = Diagnosing(since_s=at_s, finished=phase.finished)
    return Decision(State(job, diagnosing), (recovery.diagnose_order(job),), why)


def words(fault: AnyFault) -> str:
    """Returns a description of a fault, such as "n3 is lost: no heartbeat for 10 s"."""
    match fault:
        case ExitFault(rank=None):
            end = f"ended with {fault.code}" if fault.code >= 0 else f"was {_code_words(fault.code)}"
            return f"the command of worker {fault.worker} {end}"
        case ExitFault():
            return f"rank {fault.rank} on worker {fault.worker} failed: {fault.reason or _code_words(fault.code)}"
        case HangFault():
            return f"hang ({fault.hang}): {fault.reason}"
        case StartFault():
            return f"the command cannot be started in worker {fault.worker}: {fault.reason}"
        case NodeFault():
            return f"{fault.node} is lost: {fault.reason}"
        case CheckFault(node=""):
            return f"the run cannot work: {fault.reason}"
        case CheckFault():
            return f"{fault.node} failed its check: {fault.reason}"
        case DeviceFault(device=device):
            return f"device {device.device} of {device.node} reports {device.code}"
        case never:
            assert_never(never)


def _code_words(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}"
