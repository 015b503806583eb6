"""Changes the owner of the pods: adds spares, and leaves the handling of ended pods to Holdfast. Pure.

The owner recreates ended pods, and fails only when an agent reports that the job has failed.

source: https://kubernetes.io/docs/concepts/workloads/controllers/job/,
https://jobset.sigs.k8s.io/docs/concepts/ (failurePolicy), https://volcano.sh/en/docs/vcjob/ (policies),
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/job-scheduling/ (runPolicy, ExitCode)
"""

from typing import Any

from holdfast.engines.kubernetes.manifests import PODS_LOST_MAX
from holdfast.engines.kubernetes.wrap.asked import Refused
from holdfast.engines.kubernetes.wrap.shapes import Choice, Group
from holdfast.engines.kubernetes.wrap.trees import (
    Document,
    items,
    mapping,
    number,
    own_item,
    own_list,
    own_mapping,
    text,
    without,
)
from holdfast.model.kubernetes import JOB_FAILED

FINAL = "holdfast"  # name of the rule that makes a failure final
_VOLCANO_OURS = ("PodFailed", "PodEvicted", "Unknown", "OutOfSync")


def wrap_owner(key: str, document: Document, choice: Choice, spares: int) -> None:
    """Changes the owner in place. `document`: the owner; for a TrainJob its runtime. Raises Refused."""
    spec = own_mapping(document, "spec")
    if key == "job":
        job_spec(spec, choice.groups[0].pods + spares, choice.container)
    elif key == "jobset":
        _jobset(spec, choice, spares, "spec")
    elif key == "trainjob":
        _runtime(spec, choice, spares)
    elif key == "volcano":
        _volcano(spec, choice, spares)
    elif key == "pytorchjob":
        _pytorch(spec, choice, spares)


def job_spec(spec: Document, pods: int, container: str) -> None:
    """Changes the spec of a Job into an Indexed Job that succeeds once one agent ended with 0, as it does
    after the training.
    """
    spec["completions"] = spec["parallelism"] = pods
    spec["completionMode"] = "Indexed"
    without(spec, "backoffLimit")
    spec["backoffLimitPerIndex"] = PODS_LOST_MAX
    spec["podReplacementPolicy"] = "Failed"
    spec["successPolicy"] = {"rules": [{"succeededCount": 1}]}
    own_mapping(spec, "template", "spec")["restartPolicy"] = "Never"
    failed = {
        "action": "FailJob",
        "onExitCodes": {"containerName": container, "operator": "In", "values": [JOB_FAILED]},
    }
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    rules = own_list(spec, "podFailurePolicy", "rules")
    rules.insert(0, failed)
    if not any(items(rule, "onPodConditions") for rule in rules):
        rules.append(disrupted)


def _jobset(spec: Document, choice: Choice, spares: int, path: str) -> None:
    _refuse_in_place(spec, path)
    chosen = {group.name: group for group in choice.groups}
    largest = max(choice.groups, key=lambda group: group.pods).name
    parts = own_list(spec, "replicatedJobs")
    for index in range(len(parts)):
        if text(parts[index], "name") not in chosen:
            continue
        part = own_item(parts, index)
        replicas = number(part, "replicas")
        replicas = 1 if replicas is None else replicas
        each, rest = divmod(chosen[text(part, "name")].pods, max(1, replicas))
        more = spares if text(part, "name") == largest else 0
        if more and replicas > 1:
            if each > 1 or rest:
                raise Refused(
                    f"{path}.replicatedJobs[{index}] has {replicas} replicas of {each} pods: a spare fits in none of them; set "
                    f"replicas to 1 with parallelism and completions {replicas * each}, or give --spares 0"
                )
            part["replicas"], more = replicas + more, 0
        job_spec(own_mapping(part, "template", "spec"), each + more, choice.container)
    if "failurePolicy" in spec:  # else the failure of a Job is that of the JobSet
        final = {"name": FINAL, "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
        own_list(spec, "failurePolicy", "rules").insert(0, final)


def _refuse_in_place(spec: Document, path: str) -> None:
    """Raises Refused for JobSet's own restart in place, and for its agent, which bypasses itself without that strategy.

    source: github.com/kubernetes-sigs/jobset, keps/467-InPlaceRestart, cmd/in-place-restart-agent/main.go: the agent is the
    container's command with the training in WORKER_COMMAND, or a sidecar whose startup probe holds the training back
    """
    found = []
    if text(mapping(spec, "failurePolicy"), "restartStrategy") == "InPlaceRestart":
        found.append(
            f"{path}.failurePolicy.restartStrategy is InPlaceRestart: Holdfast restarts the training in place itself, without the "
            "API server; remove restartStrategy"
        )
    for index, part in enumerate(items(spec, "replicatedJobs")):
        pod = mapping(part, "template", "spec", "template", "spec")
        where = f"{path}.replicatedJobs[{index}].template.spec.template.spec"
        for kind in ("containers", "initContainers"):
            found += [
                f"{where}.{kind}[{text(one, 'name')}] {_AGENT}" for one in items(pod, kind) if _is_agent(one)
            ]
    if found:
        raise Refused(*found)


_AGENT = (
    "is JobSet's agent for restarts in place: remove it (a sidecar), or write its WORKER_COMMAND as command and the "
    "training's image as image"
)


def _is_agent(container: Document) -> bool:
    names = {text(one, "name") for one in items(container, "env")}
    return "in-place-restart-agent" in text(container, "image") or {"JOBSET_NAME", "WORKER_COMMAND"} <= names


def _runtime(spec: Document, choice: Choice, spares: int) -> None:
    """Changes the runtime of a TrainJob. The TrainJob itself sets the number of pods."""
    if mapping(spec, "mlPolicy").get("mpi") is not None:
        raise Refused(
            "the runtime's mlPolicy is mpi, whose launcher starts ranks over SSH: use a runtime with torch or plain"
        )
    jobs = own_mapping(spec, "template", "spec")
    _refuse_in_place(jobs, "the runtime's spec.template.spec")
    parts = own_list(jobs, "replicatedJobs")
    names = {group.name for group in choice.groups}
    pods = max(group.pods for group in choice.groups) + spares
    for index in range(len(parts)):
        if text(parts[index], "name") in names:
            job_spec(own_mapping(own_item(parts, index), "template", "spec"), pods, choice.container)
    if "failurePolicy" in jobs:
        final = {"name": FINAL, "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
        own_list(jobs, "failurePolicy", "rules").insert(0, final)


def _volcano(spec: Document, choice: Choice, spares: int) -> None:
    """Policies on pods that end are taken out: they would restart the whole job, or end it."""
    pods = sum(group.pods for group in choice.groups)
    least = number(spec, "minAvailable")
    spec["minAvailable"] = (pods if least is None else least) + spares
    spec["minSuccess"] = 1
    final = {"exitCode": JOB_FAILED, "action": "AbortJob"}
    spec["policies"] = [final, *(one for one in items(spec, "policies") if not _is_ours(one))]
    names = {group.name for group in choice.groups}
    largest = max(choice.groups, key=lambda group: group.pods).name
    tasks = own_list(spec, "tasks")
    for index in range(len(tasks)):
        name = text(tasks[index], "name") or str(index)
        if name not in names:
            continue
        task = own_item(tasks, index)
        if name == largest:
            task["replicas"] = max(group.pods for group in choice.groups) + spares
            if "minAvailable" in task:
                task["minAvailable"] = (number(task, "minAvailable") or 0) + spares
        kept = [one for one in items(task, "policies") if not _is_ours(one, of_task=True)]
        if len(kept) < len(items(task, "policies")):
            task["policies"] = kept
        own_mapping(task, "template", "spec")["restartPolicy"] = "Never"


def _is_ours(policy: Document, *, of_task: bool = False) -> bool:
    """Returns whether a policy is about ended pods, or about the success of a task, which one agent
    decides.
    """
    events = {text(policy, "event"), *map(str, items(policy, "events"))} - {""}
    ended = {*_VOLCANO_OURS, "TaskCompleted", "TaskFailed"} if of_task else set(_VOLCANO_OURS)
    return bool(events & ended) or "*" in events or policy.get("exitCode") is not None


def _pytorch(spec: Document, choice: Choice, spares: int) -> None:
    if spec.get("elasticPolicy") is not None:
        raise Refused(
            "spec.elasticPolicy lets the operator change the number of pods: remove it; spares replace lost pods"
        )
    names = [group.name for group in choice.groups]
    if spares and "Worker" not in names:
        raise Refused(
            "a PyTorchJob has one Master: spares are Workers; add spec.pytorchReplicaSpecs.Worker, or give --spares 0"
        )
    run = own_mapping(spec, "runPolicy")
    run["backoffLimit"] = PODS_LOST_MAX
    parts = own_mapping(spec, "pytorchReplicaSpecs")
    for group in choice.groups:
        part: Any = own_mapping(parts, group.name)
        part["restartPolicy"] = "ExitCode"  # 90 fails the job, a killed pod is made again
        if group.name == "Worker":
            part["replicas"] = group.pods + spares


def pods_of(choice: Choice) -> int:
    return sum(group.pods for group in choice.groups)


def groups_again(groups: list[Group], choice: Choice) -> list[Group]:
    """Returns the chosen groups of pods after their object was changed."""
    names = {group.name for group in choice.groups}
    return [group for group in groups if group.name in names]
