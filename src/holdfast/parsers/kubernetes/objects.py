"""Parses objects and watch events of the Kubernetes API into the types of `model.kubernetes`. Pure.

Only the needed fields are decoded: a controller reads thousands of pods, of several kilobytes each.

source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/,
…/cluster-resources/node-v1/, …/using-api/api-concepts/#efficient-detection-of-changes
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from holdfast.model.kubernetes import RENEW, ClusterEvent, ContainerEnd, NodeState, OwnerState, PodState

MESSAGE_MAX = 400
INDEX = "batch.kubernetes.io/job-completion-index"
OUT_OF_SERVICE_MARK = "holdfast.dev/out-of-service"  # annotation of nodes that Holdfast took out of service
VOLCANO_INDEX = "volcano.sh/task-index"
# Conditions of a node that are no fault when True.
_GOOD_CONDITIONS = ("Ready", "SriovReady", "GpuReady")
_WANTED_TRUE = "True"


class NotRead(ValueError):
    """Raised for bytes that are not the expected Kubernetes object."""


class _Meta(Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    continue_: str = msgspec.field(name="continue", default="")


class _Condition(Struct, rename="camel"):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


class _Terminated(Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    signal: int = 0


class _Waiting(Struct, rename="camel"):
    reason: str = ""
    message: str = ""


class _ContainerState(Struct, rename="camel"):
    running: dict[str, Any] | None = None
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None


class _DeviceHealth(Struct, rename="camel"):
    resource_id: str = msgspec.field(name="resourceID", default="")
    health: str = ""


class _DeviceStatus(Struct, rename="camel"):
    name: str = ""
    resources: list[_DeviceHealth] | None = None


class _ContainerStatus(Struct, rename="camel"):
    name: str = ""
    restart_count: int = 0
    state: _ContainerState = msgspec.field(default_factory=_ContainerState)
    allocated_resources_status: list[_DeviceStatus] | None = None


class _Variable(Struct):
    name: str
    value: str = ""


class _Container(Struct):
    name: str = ""
    command: list[str] | None = None
    env: list[_Variable] | None = None


class _ExitCodes(Struct):
    operator: str = ""
    values: list[int] | None = None


class _RestartRule(Struct, rename="camel"):
    action: str = ""
    exit_codes: _ExitCodes | None = None


class _SpecContainer(Struct, rename="camel"):
    name: str = ""
    restart_policy: str | None = None
    restart_policy_rules: list[_RestartRule] | None = None


class _PodSpec(Struct, rename="camel"):
    node_name: str = ""
    restart_policy: str = ""
    containers: list[_SpecContainer] | None = None


class _PodCommands(Struct):
    containers: list[_Container] | None = None


class _PodWithCommands(Struct):
    spec: _PodCommands = msgspec.field(default_factory=_PodCommands)


class _PodStatus(Struct, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None


class _Pod(Struct, rename="camel"):
    metadata: _Meta
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _Taint(Struct, rename="camel"):
    key: str
    effect: str = ""


class _NodeSpec(Struct, rename="camel"):
    unschedulable: bool = False
    taints: list[_Taint] | None = None


class _NodeStatus(Struct, rename="camel"):
    conditions: list[_Condition] | None = None


class _Node(Struct, rename="camel"):
    metadata: _Meta
    spec: _NodeSpec = msgspec.field(default_factory=_NodeSpec)
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


class _RunPolicy(Struct, rename="camel"):
    suspend: bool | None = None


class _OwnerSpec(Struct, rename="camel"):
    suspend: bool | None = None
    run_policy: _RunPolicy | None = None  # of a PyTorchJob


class _VolcanoState(Struct, rename="camel"):
    phase: str = ""
    reason: str = ""
    message: str = ""


class _OwnerStatus(Struct, rename="camel"):
    conditions: list[_Condition] | None = None
    state: _VolcanoState | None = None


class _Owner(Struct, rename="camel"):
    metadata: _Meta
    kind: str = ""
    api_version: str = ""
    spec: _OwnerSpec = msgspec.field(default_factory=_OwnerSpec)
    status: _OwnerStatus = msgspec.field(default_factory=_OwnerStatus)


class _Involved(Struct):
    name: str = ""
    kind: str = ""


class _Event(Struct, rename="camel"):
    metadata: _Meta
    involved_object: _Involved = msgspec.field(default_factory=_Involved)
    reason: str = ""
    message: str = ""
    type: str = ""


class WatchLine(Struct):
    """One line of a watch response of the Kubernetes API. `object`: undecoded."""

    type: str
    object: Raw = msgspec.field(default_factory=lambda: Raw(b"{}"))


class Page(Struct):
    """One page of a list response of the Kubernetes API. `items`: undecoded."""

    metadata: _Meta
    items: list[Raw] | None = None

    @property
    def version(self) -> str:
        """Returns the resource version of the list response."""
        return self.metadata.resource_version

    @property
    def more(self) -> str:
        """Returns the continue token of the next page; empty on the last page."""
        return self.metadata.continue_


class StatusBody(Struct, rename="camel"):
    """A Kubernetes Status object, the body of an error response."""

    reason: str = ""
    message: str = ""
    code: int = 0


_PODS = msgspec.json.Decoder(_Pod)
_COMMANDS = msgspec.json.Decoder(_PodWithCommands)
_NODES = msgspec.json.Decoder(_Node)
_OWNERS = msgspec.json.Decoder(_Owner)
_EVENTS = msgspec.json.Decoder(_Event)
_LINES = msgspec.json.Decoder(WatchLine)
_PAGES = msgspec.json.Decoder(Page)
_STATUSES = msgspec.json.Decoder(StatusBody)


def watch_line(line: bytes) -> WatchLine:
    """Parses one line of a Kubernetes watch response. raises: NotRead"""
    try:
        return _LINES.decode(line)
    except msgspec.MsgspecError as error:
        raise NotRead(f"a message of a watch is not a valid event: {error}") from error


def page(body: bytes) -> Page:
    """Parses one page of a Kubernetes list response. raises: NotRead"""
    try:
        return _PAGES.decode(body)
    except msgspec.MsgspecError as error:
        raise NotRead(f"the answer is not a valid list of objects: {error}") from error


def status_body(body: bytes) -> StatusBody:
    """Parses a Kubernetes Status object; returns an empty one if the body is none."""
    try:
        return _STATUSES.decode(body)
    except msgspec.MsgspecError:
        return StatusBody()


def version_of(raw: bytes) -> str:
    """Returns the resource version of any object, such as a bookmark; empty if it cannot be parsed."""
    try:
        return _PODS.decode(raw).metadata.resource_version
    except msgspec.MsgspecError:
        return ""


def pod_of(raw: bytes, container: str = "") -> PodState:
    """Parses a pod. `container`: name of the training's container; empty for the first. raises: NotRead"""
    try:
        pod = _PODS.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotRead(f"a pod cannot be read: {error}") from error
    meta, status = pod.metadata, pod.status
    conditions = {one.type: one for one in status.conditions or ()}
    target = conditions.get("DisruptionTarget")
    disrupted = target is not None and target.status == _WANTED_TRUE
    scheduled = conditions.get("PodScheduled")
    ours = _of_name(status.container_statuses, container)
    stuck = _stuck(status.init_container_statuses) or (ours.state.waiting if ours else None)
    ended = ours.state.terminated if ours else None
    return PodState(
        name=meta.name,
        uid=meta.uid,
        version=meta.resource_version,
        index=_index(meta),
        node=pod.spec.node_name,
        phase=status.phase,
        reason=status.reason,
        message=_short(status.message),
        deleting=meta.deletion_timestamp is not None,
        grace_s=meta.deletion_grace_period_seconds or 0,
        running=ours is not None and ours.state.running is not None,
        restarts=ours.restart_count if ours else 0,
        ended=_end(ended) if ended is not None else None,
        waiting=stuck.reason if stuck else "",
        waiting_message=_short(stuck.message) if stuck else "",
        disruption=target.reason if target is not None and disrupted else "",
        disruption_message=_short(target.message) if target is not None and disrupted else "",
        unscheduled=_short(scheduled.message)
        if scheduled is not None and scheduled.status == "False"
        else "",
        sick_devices=_sick(ours),
        address=status.pod_ip,
        broken=_broken(pod, ours),
        is_renewable=_is_renewable(pod.spec, ours.name if ours else container),
    )


def command_of(raw: bytes, container: str) -> str:
    """Returns the command of a pod's container; empty if its image defines it. raises: NotRead"""
    try:
        pod = _COMMANDS.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotRead(f"a pod cannot be read: {error}") from error
    found = next((one for one in pod.spec.containers or () if one.name == container), None)
    return found.command[0] if found is not None and found.command else ""


def variable_of(raw: bytes, container: str, name: str) -> str:
    """Parses the value of a pod's environment variable; empty if its container has none. raises: NotRead"""
    try:
        pod = _COMMANDS.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotRead(f"a pod cannot be read: {error}") from error
    variables = [each for one in pod.spec.containers or () if one.name == container for each in one.env or ()]
    return next((each.value for each in variables if each.name == name), "")


def node_of(raw: bytes) -> NodeState:
    """Parses a Kubernetes Node object. raises: NotRead"""
    try:
        node = _NODES.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotRead(f"a node cannot be read: {error}") from error
    conditions = node.status.conditions or []
    ready = next((one for one in conditions if one.type == "Ready"), None)
    problems = [
        one.type for one in conditions if one.status == _WANTED_TRUE and one.type not in _GOOD_CONDITIONS
    ]
    return NodeState(
        name=node.metadata.name,
        version=node.metadata.resource_version,
        ready=ready.status if ready is not None else "Unknown",
        ready_reason=ready.reason if ready is not None else "",
        cordoned=node.spec.unschedulable,
        taints=tuple((one.key, one.effect) for one in node.spec.taints or ()),
        problems=tuple(problems),
        is_out_of_service=OUT_OF_SERVICE_MARK in (node.metadata.annotations or {}),
    )


def owner_of(raw: bytes) -> OwnerState:
    """Parses the object that owns the pods: a Job, JobSet, TrainJob or Volcano Job. raises: NotRead"""
    try:
        owner = _OWNERS.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotRead(f"the job's object cannot be read: {error}") from error
    over, why = _outcome(owner.status)
    return OwnerState(
        kind=owner.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        version=owner.metadata.resource_version,
        suspended=bool(owner.spec.suspend or (owner.spec.run_policy and owner.spec.run_policy.suspend))
        or _is_restarting(owner.status),
        is_suspended=any(
            (one.type, one.status) == ("Suspended", _WANTED_TRUE) for one in owner.status.conditions or ()
        ),
        deleting=owner.metadata.deletion_timestamp is not None,
        over=over,
        why=why,
        annotations=owner.metadata.annotations or {},
        labels=owner.metadata.labels or {},
    )


def event_of(raw: bytes) -> ClusterEvent:
    """Parses a Kubernetes Event object. raises: NotRead"""
    try:
        event = _EVENTS.decode(raw)
    except msgspec.MsgspecError as error:
        raise NotRead(f"an Event cannot be read: {error}") from error
    return ClusterEvent(
        about=event.involved_object.name,
        reason=event.reason,
        message=_short(event.message),
        is_warning=event.type == "Warning",
        version=event.metadata.resource_version,
    )


def _outcome(status: _OwnerStatus) -> tuple[str, str]:
    """Returns the outcome of a Job, JobSet, TrainJob, Volcano Job or PyTorchJob: "succeeded" or "failed", and
    the reason.

    ("", "") while it runs.
    """
    for one in status.conditions or ():
        if one.status != _WANTED_TRUE:
            continue
        if one.type in ("Complete", "Completed", "SuccessCriteriaMet", "Succeeded"):
            return "succeeded", one.reason
        if one.type in ("Failed", "FailureTarget"):
            return "failed", f"{one.reason}: {_short(one.message)}" if one.message else one.reason
    state = status.state
    if state is not None and state.phase in ("Completed", "Completing"):
        return "succeeded", state.phase
    if state is not None and state.phase in ("Failed", "Aborted", "Aborting", "Terminated", "Terminating"):
        return "failed", _short(f"{state.phase} {state.reason} {state.message}")
    return "", ""


def _is_restarting(status: _OwnerStatus) -> bool:
    """Returns whether a Volcano Job is ending all its pods to create them again."""
    return status.state is not None and status.state.phase == "Restarting"


def _index(meta: _Meta) -> int | None:
    for holder in (meta.annotations or {}, meta.labels or {}):
        text = holder.get(INDEX) or holder.get(VOLCANO_INDEX) or ""
        if text.isdigit():
            return int(text)
    return None


def _of_name(statuses: list[_ContainerStatus] | None, name: str) -> _ContainerStatus | None:
    found = statuses or []
    return next((one for one in found if not name or one.name == name), None)


def _stuck(statuses: list[_ContainerStatus] | None) -> _Waiting | None:
    """Returns why an init container cannot start; None if there is none."""
    for one in statuses or ():
        waiting = one.state.waiting
        if waiting is not None and waiting.reason not in ("", "PodInitializing"):
            return waiting
    return None


def _end(one: _Terminated) -> ContainerEnd:
    return ContainerEnd(code=one.exit_code, reason=one.reason, message=_short(one.message), signal=one.signal)


def _broken(pod: _Pod, ours: _ContainerStatus | None) -> str:
    """Returns the first container beside the training that has failed for good; empty if there is none."""
    policies = {one.name: one.restart_policy for one in pod.spec.containers or ()}
    for one in pod.status.container_statuses or ():
        end = one.state.terminated
        policy = policies.get(one.name) or pod.spec.restart_policy
        if end is not None and end.exit_code and policy == "Never" and one is not ours:
            return f"{one.name} has ended with exit code {end.exit_code}"
    return ""


def _is_renewable(spec: _PodSpec, container: str) -> bool:
    """Returns whether all containers of a pod restart once this one ends with RENEW."""
    rules = [
        rule
        for one in spec.containers or ()
        if one.name == container
        for rule in one.restart_policy_rules or ()
    ]
    return any(
        rule.action == "RestartAllContainers"
        and rule.exit_codes is not None
        and rule.exit_codes.operator == "In"
        and RENEW in (rule.exit_codes.values or ())
        for rule in rules
    )


def _sick(one: _ContainerStatus | None) -> tuple[str, ...]:
    """Returns the names of devices of this container whose health is Unhealthy.

    source:
    https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/#device-health-monitoring
    """
    devices = [
        f"{status.name} {device.resource_id}".strip()
        for status in (one.allocated_resources_status or () if one is not None else ())
        for device in status.resources or ()
        if device.health == "Unhealthy"
    ]
    return tuple(devices)


def _short(text: str) -> str:
    return " ".join(text.split())[:MESSAGE_MAX]
