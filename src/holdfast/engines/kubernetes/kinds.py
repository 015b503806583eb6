"""Lists the kinds of objects that can own a job's pods, with their API paths."""

from typing import NamedTuple

from holdfast.engines.kubernetes.names import CONTAINER


class OwnerKind(NamedTuple):
    """A kind of object that owns a job's pods.

    `remakes_ended`: it creates another pod while the ended one still exists.

    `suspends`: it has spec.suspend. `container`: name of the training's container.
    """

    kind: str
    api_version: str
    plural: str
    remakes_ended: bool = True
    suspends: bool = True
    container: str = CONTAINER

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str, name: str = "") -> str:
        base = f"/apis/{self.api_version}/namespaces/{namespace}/{self.plural}"
        return f"{base}/{name}" if name else base


# By the word that people choose.
KINDS = {
    "job": OwnerKind("Job", "batch/v1", "jobs"),
    "jobset": OwnerKind("JobSet", "jobset.x-k8s.io/v1alpha2", "jobsets"),
    # A runtime's container for the training has this name.
    "trainjob": OwnerKind("TrainJob", "trainer.kubeflow.org/v1alpha1", "trainjobs", container="node"),
    "volcano": OwnerKind("Job", "batch.volcano.sh/v1alpha1", "jobs", remakes_ended=False, suspends=False),
}

# Those, and kinds that `holdfast run` does not make but wrapped manifests have.
OWNERS = {
    **KINDS,
    "pytorchjob": OwnerKind("PyTorchJob", "kubeflow.org/v1", "pytorchjobs", container="pytorch"),
}
