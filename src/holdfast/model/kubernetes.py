"""Defines the objects that are read from a Kubernetes cluster for one job, and the requests to it."""

from typing import Literal

from msgspec import Struct

RENEW = 93  # exit code of an agent whose pod's containers are all to restart
# The exit code of an agent when the whole job has failed: the owner then makes no other pod. The training's own code is
# in the controller's termination message.
JOB_FAILED = 90
RemakeWay = Literal["suspend", "restart-job", "evict"]


class ContainerEnd(Struct, frozen=True, kw_only=True):
    """The end of a container. `code`: its exit code, 128 + N for signal N."""

    code: int
    reason: str = ""
    message: str = ""
    signal: int = 0


class PodState(Struct, frozen=True, kw_only=True):
    """One pod of the job.

    `running`: its container runs. `ended`: of the training's container. `waiting`: why that cannot start.
    `disruption`: reason of the condition DisruptionTarget. `unscheduled`: the scheduler's message. `sick_devices`: names
    of devices whose health is Unhealthy. `address`: of the pod; empty until it has one. `broken`: a container beside the
    training that has failed and that its kubelet does not restart, and how it ended. `is_renewable`: its containers all
    restart if the agent ends with RENEW.
    """

    name: str
    uid: str
    version: str = ""
    index: int | None = None
    node: str = ""
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    deleting: bool = False
    grace_s: int = 0
    running: bool = False
    restarts: int = 0
    ended: ContainerEnd | None = None
    waiting: str = ""
    waiting_message: str = ""
    disruption: str = ""
    disruption_message: str = ""
    unscheduled: str = ""
    sick_devices: tuple[str, ...] = ()
    address: str = ""
    broken: str = ""
    is_renewable: bool = False

    @property
    def is_over(self) -> bool:
        """Whether all containers of the pod have ended, according to its kubelet."""
        return self.phase in ("Succeeded", "Failed") or (self.ended is not None and not self.running)

    @property
    def shows_end_of_job(self) -> bool:
        """Whether the agent has ended with an exit code by which the owner of the pods learns that the job has ended.

        If such a pod is deleted before the owner's controller has counted it, the owner creates it again and never ends.
        """
        return self.ended is not None and self.ended.code in (0, JOB_FAILED)


class NodeState(Struct, frozen=True, kw_only=True):
    """One node of the cluster. `ready`: True, False or Unknown, as in its condition. `taints`: (key, effect).

    `problems`: types of conditions that report a fault. `is_out_of_service`: Holdfast has taken it out of service.
    """

    name: str
    version: str = ""
    ready: str = "True"
    ready_reason: str = ""
    cordoned: bool = False
    taints: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    is_out_of_service: bool = False


class Device(Struct, frozen=True):
    """A device of dynamic resource allocation, by the names in the API."""

    driver: str
    pool: str
    name: str


class SliceState(Struct, frozen=True, kw_only=True):
    """A ResourceSlice. `tainted`: its devices with taints, each taint as KEY=VALUE:EFFECT."""

    name: str
    tainted: dict[Device, tuple[str, ...]] = {}


class ClaimState(Struct, frozen=True, kw_only=True):
    """A ResourceClaim. `devices`: allocated to it; `pods`: uids of pods that use it."""

    name: str
    devices: tuple[Device, ...] = ()
    pods: tuple[str, ...] = ()


class OwnerState(Struct, frozen=True, kw_only=True):
    """The state of the object that creates the job's pods: a Job, JobSet, TrainJob, Volcano Job or
    PyTorchJob.

    `over`: "succeeded" or "failed"; empty while it runs. `suspended`: requested in its spec; `is_suspended`:
    reported by its controller.
    """

    kind: str
    name: str
    uid: str = ""
    version: str = ""
    suspended: bool = False
    is_suspended: bool = False
    deleting: bool = False
    over: str = ""
    why: str = ""
    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}


class ClusterEvent(Struct, frozen=True, kw_only=True):
    """A Kubernetes Event about an object of the job."""

    about: str
    reason: str
    message: str
    is_warning: bool = False
    version: str = ""


# What the engine does to the cluster ------------------------------------------------------------------------------


class ClusterAct(Struct, frozen=True, kw_only=True):
    """The base class of requests to the Kubernetes API server. Each can be repeated safely."""


class Evict(ClusterAct, frozen=True):
    """Request: evict a pod, so that its owner creates another.

    `grace_s`: None for the pod's own period; 0: by force.
    """

    pod: str
    uid: str
    grace_s: int | None = None


class DeletePod(ClusterAct, frozen=True):
    """Request: delete a pod that has ended, if its owner creates no other one before."""

    pod: str
    uid: str


class TaintNode(ClusterAct, frozen=True):
    """Request: taint a node, so that no new pods are scheduled on it."""

    node: str
    reason: str


class TakeOutOfService(ClusterAct, frozen=True):
    """Request: taint a dead node as out of service, so that its pods are removed and their volumes detached.

    `pod`: a pod there whose agent was lost.
    """

    node: str
    pod: str


class RestoreNode(ClusterAct, frozen=True):
    """Request: remove the out-of-service taint of Holdfast from a node that is ready again."""

    node: str


class RemakePods(ClusterAct, frozen=True):
    """Request: end all pods of the job, so that their owner creates them again for this attempt."""

    way: RemakeWay
    attempt: int


class ProbePod(ClusterAct, frozen=True):
    """Request one byte of the pod's log, which only a living kubelet can return. A read."""

    pod: str
    uid: str


class KnockAgent(ClusterAct, frozen=True):
    """Request: connect to the port of the pod's agent, without the API server, to see whether it answers."""

    pod: str
    uid: str
    address: str


AnyClusterAct = (
    Evict | DeletePod | TaintNode | TakeOutOfService | RestoreNode | RemakePods | ProbePod | KnockAgent
)
