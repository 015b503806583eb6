"""Which nodes passed their boot check a moment ago, so that it need not be made again before the next start. Pure.

A pass holds for `boot_check_again_s`, and only as long as nothing casts doubt on the machine: a node that is lost, set
aside or given back, or that reports a faulty device, is looked at again; so are all nodes after a failure that may be a
machine's doing; and so are all that the job has been away from for a while. What says nothing against any machine is
listed here; all else casts doubt.
"""

from msgspec.structs import replace

from holdfast.model.checks import FAIL
from holdfast.model.events import JobMoved, NodesChecked
from holdfast.model.policy import Policy
from holdfast.model.state import AnyFault, CheckFault, DeviceFault, Incident, Job, NodeFault, NodePassed

PASSED_MAX = 16_384  # nodes remembered; those that passed first are forgotten
AWAY_S = 60.0  # between two starts of a job: longer, and others may have used its nodes
SURE = 0.7  # of a verdict that clears the machines
# The training's own doing, or that of whoever ended its processes.
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
# What a lost node looks like to the others. Its loss explains it, and casts doubt on it alone.
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
    """With the answer of a boot check: who passed, and who is not to be relied on any more."""
    rest = without(job, *event.nodes).passed
    passed = (*rest, *(NodePassed(node=node, at_s=event.at_s) for node in _passed(event)))
    return replace(job, passed=passed[-PASSED_MAX:])


def without(job: Job, *nodes: str) -> Job:
    """What is known of these nodes counts no more."""
    gone = set(nodes)
    rest = tuple(one for one in job.passed if one.node not in gone)
    return job if len(rest) == len(job.passed) else replace(job, passed=rest)


def after_a_fault(job: Job, fault: AnyFault) -> Job:
    """One more fault of a recovery: a lost node casts doubt on itself, broken hardware on what was seen of all."""
    match fault:
        case NodeFault(node=node):
            return without(job, node)
        case DeviceFault() | CheckFault():
            return _of_none(job)
        case _:
            return job


def after_a_move(job: Job, event: JobMoved) -> Job:
    """The scheduler has started the job again: at once, and in good order, or nothing is known of its nodes any more."""
    return job if event.away_s is not None and 0 <= event.away_s < AWAY_S else _of_none(job)


def after_a_verdict(job: Job) -> Job:
    """Whatever is done about it: after a failure that may be a machine's doing every node is looked at again."""
    return _of_none(job) if job.incident is not None and _casts_doubt(job.incident) else job


def still_good(job: Job, at_s: float, policy: Policy) -> frozenset[str]:
    """Nodes that need not be looked at before they are used."""
    return frozenset(one.node for one in job.passed if 0 <= at_s - one.at_s < policy.boot_check_again_s)


def _of_none(job: Job) -> Job:
    return replace(job, passed=()) if job.passed else job


def _casts_doubt(incident: Incident) -> bool:
    """On the nodes at large, beyond those that are lost."""
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
    """Something was looked at there, and nothing failed."""
    if event.stop or event.why_not or event.passed <= 0:
        return ()
    if len(event.nodes) == 1 and event.status == FAIL:
        return ()
    bad = {*event.isolate, *event.not_passed}
    return tuple(dict.fromkeys(node for node in event.nodes if node not in bad))
