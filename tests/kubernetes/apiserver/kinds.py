"""Lists the kinds that the server has from its start, and takes further ones from CustomResourceDefinitions."""

from dataclasses import dataclass, field


@dataclass
class Kind:
    """`schema`: of a custom resource; `status`: it has the subresource, and writes to the object leave it alone."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    status: bool = False
    schema: dict = field(default_factory=dict)

    @property
    def api_version(self):
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self):
        return (self.group, self.plural)

    @property
    def full_name(self):
        return f"{self.plural}.{self.group}" if self.group else self.plural


BUILT_IN = [
    Kind("", "v1", "Namespace", "namespaces", namespaced=False, status=True),
    Kind("", "v1", "Node", "nodes", namespaced=False, status=True),
    Kind("", "v1", "Pod", "pods", status=True),
    Kind("", "v1", "ConfigMap", "configmaps"),
    Kind("", "v1", "Secret", "secrets"),
    Kind("", "v1", "Service", "services", status=True),
    Kind("", "v1", "ServiceAccount", "serviceaccounts"),
    Kind("", "v1", "Event", "events"),
    Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", status=True),
    Kind("batch", "v1", "Job", "jobs", status=True),
    Kind("coordination.k8s.io", "v1", "Lease", "leases"),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", status=True),
    Kind("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False),
    Kind("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
    Kind(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        status=True,
    ),
    Kind(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy",
        "mutatingadmissionpolicies",
        namespaced=False,
    ),
    Kind(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicyBinding",
        "mutatingadmissionpolicybindings",
        namespaced=False,
    ),
    Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False),
    Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", status=True),
    # Of the operators whose controllers are emulated.
    Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", status=True),
    Kind("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs", status=True),
    Kind("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", "trainingruntimes"),
    Kind(
        "trainer.kubeflow.org",
        "v1alpha1",
        "ClusterTrainingRuntime",
        "clustertrainingruntimes",
        namespaced=False,
    ),
    Kind("batch.volcano.sh", "v1alpha1", "Job", "jobs", status=True),
    Kind("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", status=True),
    Kind("bus.volcano.sh", "v1alpha1", "Command", "commands"),
    Kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", status=True),
]


class Kinds:
    def __init__(self):
        self._kinds = {(kind.group, kind.version, kind.plural): kind for kind in BUILT_IN}

    def find(self, group, version, plural):
        return self._kinds.get((group, version, plural))

    def of(self, api_version, kind):
        return next((one for one in self if (one.api_version, one.kind) == (api_version, kind)), None)

    def __iter__(self):
        return iter(list(self._kinds.values()))

    def forget(self, group):
        """Serves the kinds of this group no more: its operator is not installed."""
        self._kinds = {key: kind for key, kind in self._kinds.items() if kind.group != group}

    def define(self, definition):
        """Serves the kind of a CustomResourceDefinition."""
        spec = definition["spec"]
        for version in spec["versions"]:
            schema = version.get("schema", {}).get("openAPIV3Schema", {})
            names = spec["names"]
            kind = Kind(
                spec["group"],
                version["name"],
                names["kind"],
                names["plural"],
                spec.get("scope", "Namespaced") == "Namespaced",
                "status" in version.get("subresources", {}),
                schema,
            )
            self._kinds[(kind.group, kind.version, kind.plural)] = kind
