"""Records which nodes passed their boot check recently, so that the next start can skip it. Pure.

A pass is valid for `boot_check_again_s`, unless there is reason to doubt the machine: a node that is lost,
isolated or released, or that reports a faulty device, is checked again; so are all nodes after a failure that
a machine may have caused, and after the job has been away from them for a while. The failures that no machine
causes are listed here; all others cast doubt.
"""

from msgspec.structs import replace

from holdfast.model.checks import FAIL
from holdfast.model.events import JobMoved, NodesChecked
from holdfast.model.policy import Policy
from holdfast.model.state import AnyFault, CheckFault, DeviceFault, Incident, Job, NodeFault, NodePassed

PASSED_MAX = 16_384  # nodes with a recorded pass; the oldest passes are dropped
AWAY_S = 60.0  # after a longer pause between two starts, other jobs may have used the nodes
SURE = 0.7  # confidence from which a verdict clears the machines
# Caused by the training itself, or by whatever ended its processes.
NO_MACHINE = frozenset(
    {
        "process_killed",
        "process_stopped",
        "terminated",
        "user_interrupt",
        "teardown_hang",
        "time_limit",
        "python_exception",
        "ddp_unused_parameters",
        "collective_mismatch",
        "uneven_data",
        "gpu_oom",
        "device_side_assert",
        "config_error",
        "launcher_config",
    }
)
# Consequences of a lost node on other nodes. The loss explains these, and casts doubt on that node alone.
OF_A_LOSS = frozenset(
    {
        "node_down",
        "node_not_ready",
        "slurm_node_fail",
        "nccl_network_error",
        "collective_timeout",
        "collective_missing_rank",
        "rendezvous_timeout",
        "unknown",
    }
)


def noted(job: Job, event: NodesChecked) -> Job:
    """Returns the job with the result of a boot check: records nodes that passed, removes the pass of the
    others.
    """
    rest = without(job, *event.nodes).passed
    passed = (*rest, *(NodePassed(node=node, at_s=event.at_s) for node in _passed(event)))
    return replace(job, passed=passed[-PASSED_MAX:])


def without(job: Job, *nodes: str) -> Job:
    """Returns the job with the valid passes of these nodes' boot checks removed."""
    gone = set(nodes)
    rest = tuple(one for one in job.passed if one.node not in gone)
    return job if len(rest) == len(job.passed) else replace(job, passed=rest)


def after_a_fault(job: Job, fault: AnyFault) -> Job:
    """Returns the job after one more fault in a recovery: a lost node loses its pass, broken hardware removes
    all passes.
    """
    match fault:
        case NodeFault(node=node):
            return without(job, node)
        case DeviceFault() | CheckFault():
            return _of_none(job)
        case _:
            return job


def after_a_move(job: Job, event: JobMoved) -> Job:
    """Returns the job after a restart by the scheduler: passes stay valid only if it followed at once."""
    return job if event.away_s is not None and 0 <= event.away_s < AWAY_S else _of_none(job)


def after_a_verdict(job: Job) -> Job:
    """Returns the job after a verdict: a failure that a machine may have caused removes all passes."""
    return _of_none(job) if job.incident is not None and _casts_doubt(job.incident) else job


def still_good(job: Job, at_s: float, policy: Policy) -> frozenset[str]:
    """Returns the nodes whose pass of the boot check is still valid, so that they need no check before they are
    used.
    """
    return frozenset(one.node for one in job.passed if 0 <= at_s - one.at_s < policy.boot_check_again_s)


def _of_none(job: Job) -> Job:
    return replace(job, passed=()) if job.passed else job


def _casts_doubt(incident: Incident) -> bool:
    """Returns whether the incident casts doubt on nodes other than the lost ones."""
    if any(isinstance(fault, DeviceFault | CheckFault) for fault in incident.faults):
        return True
    verdict = incident.verdict
    lost = any(isinstance(fault, NodeFault) for fault in incident.faults)
    if verdict is None:
        return not lost
    if lost and verdict.category in OF_A_LOSS:
        return False
    return verdict.category not in NO_MACHINE or verdict.confidence < SURE


def _passed(event: NodesChecked) -> tuple[str, ...]:
    """Returns the nodes on which checks ran and none failed."""
    if event.stop or event.why_not or event.passed <= 0:
        return ()
    if len(event.nodes) == 1 and event.status == FAIL:
        return ()
    bad = {*event.isolate, *event.not_passed}
    return tuple(dict.fromkeys(node for node in event.nodes if node not in bad))
