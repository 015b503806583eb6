"""Describes what is read of a Kubernetes cluster about one job, and what is written to it."""

from typing import Literal

from msgspec import Struct

RemakeWay = Literal["suspend", "restart-job", "evict"]


class ContainerEnd(Struct, frozen=True, kw_only=True):
    """How a container ended. `code`: its exit code, 128 + N for signal N."""

    code: int
    reason: str = ""
    message: str = ""
    signal: int = 0


class PodState(Struct, frozen=True, kw_only=True):
    """One pod. `node`: empty until it is scheduled. `deleting`: its removal was ordered, with `grace_s` to end.

    `running`: its container runs. `ended`: of the training's container. `waiting`: why that cannot start.
    `disruption`: reason of the condition DisruptionTarget. `unscheduled`: the scheduler's message. `sick_devices`: names
    of devices whose health is Unhealthy. `address`: of the pod; empty until it has one.
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

    @property
    def is_over(self) -> bool:
        """Nothing of it runs any more, by the word of its kubelet."""
        return self.phase in ("Succeeded", "Failed") or (self.ended is not None and not self.running)


class NodeState(Struct, frozen=True, kw_only=True):
    """One node. `ready`: True, False or Unknown, as its condition says. `taints`: (key, effect). `problems`: types of
    conditions that report a fault.
    """

    name: str
    version: str = ""
    ready: str = "True"
    ready_reason: str = ""
    cordoned: bool = False
    taints: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()


class OwnerState(Struct, frozen=True, kw_only=True):
    """The object that makes the pods: a Job, JobSet, TrainJob or Volcano Job. `over`: empty, "succeeded" or "failed".

    `suspended`: it is to be; `is_suspended`: its controller says that it is.
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
    """An Event about an object of the job."""

    about: str
    reason: str
    message: str
    is_warning: bool = False
    version: str = ""


# What the engine does to the cluster ------------------------------------------------------------------------------


class ClusterAct(Struct, frozen=True, kw_only=True):
    """A request to the API server. Each may be repeated without harm."""


class Evict(ClusterAct, frozen=True):
    """Removes a pod, so that its owner makes another. `grace_s`: None: as its spec says; 0: by force."""

    pod: str
    uid: str
    grace_s: int | None = None


class DeletePod(ClusterAct, frozen=True):
    """Removes a pod that has ended already, where its owner makes no other before."""

    pod: str
    uid: str


class TaintNode(ClusterAct, frozen=True):
    """Keeps new pods off a node."""

    node: str
    reason: str


class RemakePods(ClusterAct, frozen=True):
    """Ends all pods of the job, so that their owner makes them anew for this attempt."""

    way: RemakeWay
    attempt: int


class ProbePod(ClusterAct, frozen=True):
    """Asks the pod's kubelet for a byte of its log: only a living kubelet can answer. A read."""

    pod: str
    uid: str


class KnockAgent(ClusterAct, frozen=True):
    """Connects to the port of the pod's agent, past the API server. A read."""

    pod: str
    uid: str
    address: str


AnyClusterAct = Evict | DeletePod | TaintNode | RemakePods | ProbePod | KnockAgent
