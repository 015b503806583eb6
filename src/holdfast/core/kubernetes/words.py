"""Describes in one line why a pod has ended or waits, and what to do. Pure.

source: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions (reasons),
    https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/,
    https://kubernetes.io/docs/concepts/containers/images/, kubelet's pkg/kubelet/images/types.go (waiting reasons)
"""

from collections.abc import Mapping

from holdfast.core.kubernetes import monitors
from holdfast.model.kubernetes import ClusterEvent, NodeState, PodState, RestoreNode, TakeOutOfService

DISRUPTIONS = {
    "PreemptionByScheduler": "the scheduler preempted it for a pod of higher priority",
    "DeletionByTaintManager": "its node has a taint that it does not tolerate",
    "EvictionByEvictionAPI": "it was evicted (a drain of its node, or a tool)",
    "DeletionByPodGC": "its node is gone or out of service",
    "DeletionByDeviceTaintManager": "a device that it uses has a taint, such as of a fault",
    "TerminationByKubelet": "its kubelet ended it (node pressure, shutdown, or a pod of higher priority)",
}
POD_REASONS = {
    "Evicted": "its kubelet evicted it",
    "Preempting": "its kubelet ended it for a critical pod",
    "NodeShutdown": "its node shuts down",
    "Terminated": "its node shuts down",
    "NodeLost": "its node is unreachable",
    "UnexpectedAdmissionError": "its kubelet rejected it (a device that it needs is missing); drain the node or restart its kubelet",
    "NodeAffinity": "its node no longer fits its node selector",
    "DeadlineExceeded": "it ran longer than activeDeadlineSeconds",
}
# By the reason for which a container waits: what it means and what to do.
WAITING = {
    "ErrImagePull": "its image cannot be pulled; check the image's name, and imagePullSecrets",
    "ImagePullBackOff": "its image cannot be pulled; check the image's name, and imagePullSecrets",
    "InvalidImageName": "its image's name is not valid; correct it",
    "ErrImageNeverPull": "its image is not on the node, and imagePullPolicy Never forbids to pull it",
    "RegistryUnavailable": "the image registry does not respond",
    "CreateContainerConfigError": "it names a ConfigMap, Secret or user that does not exist",
    "CreateContainerError": "its container cannot be created",
    "RunContainerError": "its container cannot be started; check its command",
    "CrashLoopBackOff": "its container keeps crashing",
}
# By the reason of a Warning: what to do about it. Others are not reported: most pass by themselves.
EVENTS = {
    "FailedMount": "check that the volume's Secret, ConfigMap or claim exists in this namespace",
    "FailedAttachVolume": "the volume may still be attached to a lost node",
    "FailedCreatePodSandBox": "the node's container runtime or network is at fault; another node may do",
    "FailedCreate": (
        "its owner may not create pods: a quota, a limit range or an admission rule forbids it; raise the "
        "limit or request less"
    ),
    "FailedBinding": "no volume matches the claim",
    "InspectFailed": "the image's name is not valid; correct it",
    "FailedPreStopHook": "its preStop hook failed",
    "EvictionThresholdMet": "the node is running out of memory or disk space",
}
UNHEALTHY = "Unhealthy"  # of a device, as its kubelet says
# Taints by which Kubernetes itself says what the node's conditions say too, and that of Holdfast.
KNOWN_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "holdfast.dev/")
GPU_NODES = "nvidia.com/gpu"  # taint of all nodes with GPUs, which keeps other pods off them
STARTING = ("ContainerCreating", "PodInitializing", "")
KILLED, TERMINATED = 137, 143


BEGUN_ANEW = (
    "the job's record was lost with its controller's pod: it restarts from its checkpoint in new pods"
)


def where(pod: PodState) -> str:
    return f"pod {pod.name} on {pod.node}" if pod.node else f"pod {pod.name}"


def not_responding(pod: PodState) -> str:
    return f"{where(pod)} does not respond, nor does its kubelet: the pod is force-deleted"


def landed_again(name: str, node: str, before: int) -> str:
    return (
        f"pod {name} was scheduled on the isolated node {node}, like {before} pods before: it stays unused; "
        f"an administrator can keep pods off it: kubectl cordon {node}"
    )


def end_of(pod: PodState) -> str:
    """Returns in one line why a pod counts as lost: it has ended, or is being deleted."""
    why = _why(pod)
    if pod.is_over or pod.ended is not None:
        return f"{where(pod)} has ended: {why}"
    if pod.deleting:
        return f"{where(pod)} is being removed: {why}"
    return f"{where(pod)} is gone"


def _why(pod: PodState) -> str:
    parts = [_disruption(pod), _kubelet(pod), _container(pod)]
    said = "; ".join(dict.fromkeys(filter(None, parts)))
    return said or ("it was deleted" if pod.deleting else "no reason is given")


def _disruption(pod: PodState) -> str:
    if not pod.disruption:
        return ""
    known = DISRUPTIONS.get(pod.disruption, "")
    return f"{known} ({pod.disruption})" if known else f"{pod.disruption}: {pod.disruption_message}"


def _kubelet(pod: PodState) -> str:
    if not pod.reason:
        return ""
    known = POD_REASONS.get(pod.reason, pod.reason)
    return f"{known}: {pod.message}" if pod.message else known


def _container(pod: PodState) -> str:
    end = pod.ended
    if end is None:
        return ""
    if end.reason == "OOMKilled":
        return (
            "its container was killed because it exceeded its memory limit (OOMKilled); raise its "
            "memory limit or lower its use"
        )
    if end.reason == "ContainerStatusUnknown":
        return "its kubelet lost track of its container"
    if end.code == KILLED:
        return "its container was killed (137, SIGKILL)"
    if end.code == TERMINATED:
        return "its container was terminated (143, SIGTERM)"
    code = f"its container ended with exit code {end.code}"
    return f"{code} ({end.reason})" if end.reason not in ("", "Error", "Completed") else code


def wait_of(pod: PodState) -> str:
    """Returns in one line why a pod does not run yet, and what to do; empty if it runs, or nothing is
    wrong yet.
    """
    if pod.running or pod.is_over or pod.deleting:
        return ""
    if pod.unscheduled and not pod.node:
        return f"{where(pod)} is not scheduled on a node: {pod.unscheduled}"
    if pod.waiting in STARTING:
        return ""
    known = WAITING.get(pod.waiting, pod.waiting)
    return f"{where(pod)} does not start: {known}" + (
        f" ({pod.waiting_message})" if pod.waiting_message else ""
    )


def advice_of(event: ClusterEvent) -> str:
    """Returns what to do about a Kubernetes event; empty if it needs no line in the log."""
    return EVENTS.get(event.reason, "")


def event_line(event: ClusterEvent) -> str:
    return f"{event.about}: {event.reason}: {event.message} ({advice_of(event)})"


def hardware_problems(node: NodeState | None) -> dict[str, str]:
    """Returns the conditions and known taints of a node that report a fault of its hardware or kernel.

    Monitors such as NVSentinel and the node problem detector set them.
    """
    if node is None:
        return {}
    found = [problem for problem in node.problems if monitors.is_fault(problem)]
    found += [key for key, _ in node.taints if key in monitors.TAINTS]
    return {f"{node.name} {problem}": problem for problem in found}


def sick(devices: Mapping[str, str]) -> str:
    """Returns one line about devices that the cluster reports as faulty."""
    names = ", ".join(_named(name, code) for name, code in devices.items())
    return f"the cluster reports a fault of {names}; it is acted on if the training fails, too"


def _named(name: str, code: str) -> str:
    """Returns a faulty device with the evidence against it."""
    if code == UNHEALTHY:
        return name
    if code.startswith("taint "):
        return f"{name} ({code})"
    return f"{name.removesuffix(code)}{monitors.named(code)}"


def devices_line(pod: PodState, devices: Mapping[str, str]) -> str:
    """Returns one line about the faulty devices of a pod, or that they are healthy again."""
    return f"{where(pod)}: {sick(devices) if devices else 'its devices are healthy again'}"


def isolated(node: str, landed_max: int, *, is_tainted: bool) -> str:
    """Returns in one line how a node is isolated. `landed_max`: evictions of pods that land there."""
    if is_tainted:
        return f"its node {node} gets a taint, and it is replaced"
    return (
        f"without the right to taint nodes, Holdfast uses no pod on {node}, and removes pods that land there "
        f"up to {landed_max} times; an administrator can cordon it: kubectl cordon {node}"
    )


def node_act(act: TakeOutOfService | RestoreNode) -> str:
    """Returns one line about a request that takes a node out of service, or back into it."""
    if isinstance(act, TakeOutOfService):
        return (
            f"{act.node} is taken out of service (taint node.kubernetes.io/out-of-service): the agent of pod {act.pod} is "
            "lost, and the node no longer reports to the cluster; the taint is removed when the node is ready again"
        )
    return f"{act.node} is ready again: its out-of-service taint is removed"


def fault_of(node: NodeState) -> str:
    """Returns what the cluster reports as wrong with a node; empty if nothing."""
    if node.ready == "Unknown":
        return f"{node.name} no longer reports to the cluster (Ready Unknown)"
    if node.ready != "True":
        return f"{node.name} is not ready ({node.ready_reason or 'Ready False'})"
    if node.problems:
        return f"{node.name} reports {', '.join(map(monitors.named, node.problems))}"
    taints = [
        f"{monitors.named(key)}:{effect}"
        for key, effect in node.taints
        if not key.startswith(KNOWN_TAINTS) and key != GPU_NODES
    ]
    if taints:
        return f"{node.name} has the taint {', '.join(taints)}: its pods may be moved soon"
    return f"{node.name} is cordoned: no new pod comes there" if node.cordoned else ""
