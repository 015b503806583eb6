"""Finds the pod templates of an object, their numbers of pods, and the training container. Pure.

source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/job-v1/,
https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/, https://www.kubeflow.org/docs/components/trainer/,
https://volcano.sh/en/docs/vcjob/,
https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/
"""

from typing import Any, NamedTuple

from holdfast.engines.kubernetes.kinds import OWNERS
from holdfast.engines.kubernetes.wrap.asked import Refused
from holdfast.engines.kubernetes.wrap.trees import Document, items, mapping, number, text

POD = "pod"
TRAINER_API = "trainer.kubeflow.org/v1alpha1"
KNOWN = "Job, JobSet, TrainJob with its runtime, Volcano Job, PyTorchJob, Pod"
# Kinds that people try, and what to do instead.
INSTEAD = {
    "CronJob": "wrap the Job of spec.jobTemplate as a manifest of its own",
    "Deployment": "its pods are restarted even after the training has ended: make it an Indexed Job",
    "StatefulSet": "its pods are restarted even after the training has ended: make it an Indexed Job",
    "ReplicaSet": "its pods are restarted even after the training has ended: make it an Indexed Job",
    "MPIJob": "its launcher starts ranks over SSH: make it an Indexed Job or a JobSet with torchrun",
    "RayJob": "Ray restarts its own workers: wrap the command inside with holdfast run",
    "LeaderWorkerSet": "make it a JobSet",
}


class Group(NamedTuple):
    """Pods of an object that have the same template. `path`: path of the template in the object, for messages.
    `holder`: the mapping that contains the template as "template".
    """

    name: str
    path: str
    holder: Document
    pods: int

    @property
    def pod_spec(self) -> Document:
        return mapping(self.holder, "template", "spec")

    @property
    def containers(self) -> list[Any]:
        return items(self.pod_spec, "containers")


class Choice(NamedTuple):
    """The container that trains, and the groups of pods that contain it."""

    container: str
    groups: tuple[Group, ...]


def kind_of(document: Document) -> str:
    """Returns the key of OWNERS for an object, or "pod"; "" for other kinds."""
    named = (document.get("apiVersion"), document.get("kind"))
    if named == ("v1", "Pod"):
        return POD
    return next((key for key, one in OWNERS.items() if (one.api_version, one.kind) == named), "")


def groups_of(key: str, document: Document) -> list[Group]:
    """Returns all groups of pods of an object. `document`: for a TrainJob its runtime.

    Raises Refused, NotAsExpected.
    """
    spec = mapping(document, "spec")
    if key == "job":
        return [Group("", "spec.template", spec, job_pods(spec, "spec"))]
    if key == "jobset":
        return _replicated(spec, "spec")
    if key == "trainjob":
        return _replicated(mapping(spec, "template", "spec"), "spec.template.spec")
    if key == "volcano":
        return [
            Group(
                text(task, "name") or str(index),
                f"spec.tasks[{index}].template",
                task,
                _one(number(task, "replicas")),
            )
            for index, task in enumerate(items(spec, "tasks"))
        ]
    if key == "pytorchjob":
        return [
            Group(name, f"spec.pytorchReplicaSpecs.{name}.template", part, _one(number(part, "replicas")))
            for name, part in mapping(spec, "pytorchReplicaSpecs").items()
        ]
    return [Group("", "", {"template": document}, 1)]


def job_pods(spec: Document, path: str) -> int:
    """Returns how many pods a Job runs in parallel. Raises Refused if not all of its pods run in parallel."""
    completions, parallelism = number(spec, "completions"), number(spec, "parallelism")
    if completions is None:
        return 1 if parallelism is None else parallelism
    if parallelism != completions and not (completions == 1 and parallelism is None):
        raise Refused(
            f"{path}.parallelism is {1 if parallelism is None else parallelism} and {path}.completions is {completions}: the pods of one training run at the same "
            f"time; set both to the same number"
        )
    return completions


def chosen(key: str, groups: list[Group], wanted: str) -> Choice:
    """Returns the training container. `wanted`: value of --container. Raises Refused."""
    there = [(group, text(one, "name")) for group in groups for one in group.containers]
    if not there:
        raise Refused("its pod template has no containers")
    if wanted:
        place, _, name = wanted.rpartition("/")
        found = [pair for pair in there if pair[1] == name and place in ("", pair[0].name)]
        if not found:
            raise Refused(f"--container {wanted}: there is no such container; there are {_listed(there)}")
        return Choice(name, tuple(group for group, _ in found))
    if key == "trainjob":
        there = [(group, name) for group, name in there if _is_trainer(group)] or there
    names = {name for _, name in there}
    usual = OWNERS[key].container if key in ("trainjob", "pytorchjob") else ""
    if usual in names:
        names = {usual}
    if len(names) > 1:
        names = {
            text(one, "name") for group, _ in there for one in group.containers if _has_device(one)
        } or names
    if len(names) > 1:
        raise Refused(f"which container trains? Name it with --container: {_listed(there)}")
    (name,) = names
    return Choice(name, tuple(group for group, each in there if each == name))


def _replicated(spec: Document, path: str) -> list[Group]:
    found = []
    for index, part in enumerate(items(spec, "replicatedJobs")):
        here = f"{path}.replicatedJobs[{index}].template.spec"
        job = mapping(part, "template", "spec")
        pods = _one(number(part, "replicas")) * job_pods(job, here)
        found.append(Group(text(part, "name"), f"{here}.template", job, pods))
    return found


def _is_trainer(group: Group) -> bool:
    """Returns whether a group of pods of a runtime trains, by the name of its container.

    The runtime's label for this is on the Job, which is not visible here.
    """
    return any(text(one, "name") == OWNERS["trainjob"].container for one in group.containers)


def _has_device(container: Document) -> bool:
    """Returns whether a container requests an extended resource, such as nvidia.com/gpu."""
    limits = {**mapping(container, "resources", "requests"), **mapping(container, "resources", "limits")}
    return any("/" in name for name in limits) or bool(items(container, "resources", "claims"))


def _listed(there: list[tuple[Group, str]]) -> str:
    return ", ".join(dict.fromkeys(f"{group.name}/{name}" if group.name else name for group, name in there))


def _one(found: int | None) -> int:
    return 1 if found is None else found
