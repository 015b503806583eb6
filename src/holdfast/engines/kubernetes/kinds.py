"""Lists the kinds of objects that own a job's pods, and where the API has them."""

from typing import NamedTuple


class OwnerKind(NamedTuple):
    """`remakes_ended`: it makes another pod while the ended one is still there. `suspends`: it has spec.suspend."""

    kind: str
    api: str  # path of its group and version
    plural: str
    remakes_ended: bool = True
    suspends: bool = True

    def path(self, namespace: str, name: str = "") -> str:
        base = f"{self.api}/namespaces/{namespace}/{self.plural}"
        return f"{base}/{name}" if name else base


KINDS = {
    "Job": OwnerKind("Job", "/apis/batch/v1", "jobs"),
    "JobSet": OwnerKind("JobSet", "/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "TrainJob": OwnerKind("TrainJob", "/apis/trainer.kubeflow.org/v1alpha1", "trainjobs"),
    "VolcanoJob": OwnerKind(
        "VolcanoJob", "/apis/batch.volcano.sh/v1alpha1", "jobs", remakes_ended=False, suspends=False
    ),
}
