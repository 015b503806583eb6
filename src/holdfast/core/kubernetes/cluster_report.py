"""Describes what `holdfast k8s doctor` finds: rights and features of a cluster, and what is lost without each. Data types only."""

from msgspec import Struct


class Need(Struct, frozen=True, kw_only=True):
    """Kubernetes permissions that serve one purpose: `verbs` on a `resource` ("pods/log") of an API `group`.

    `who`: "you" (the user) or "controller". `required`: no job runs without it. `lost`: what does not work
    without it. `instead`: what is used in its place; empty: nothing.
    """

    who: str
    resource: str
    verbs: tuple[str, ...]
    purpose: str
    group: str = ""
    required: bool = False
    namespaced: bool = True
    lost: str = ""
    instead: str = ""


class Judged(Struct, frozen=True, kw_only=True):
    """A permission that Holdfast needs in a cluster, with the verbs that are not allowed."""

    need: Need
    missing: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        return not self.missing


class Feature(Struct, frozen=True, kw_only=True):
    """A feature that a cluster may have. `present`: None: unknown. `how`: how that was determined.

    `without`: the effect if it is missing.
    """

    name: str
    present: bool | None
    how: str
    without: str


class ClusterReport(Struct, frozen=True, kw_only=True):
    """The report of `holdfast k8s doctor` on a cluster.

    `user`: the caller's user name according to the API server; empty: unknown. `too_old`: the server lacks
    required features. `grants`: YAML of roles with the missing permissions, by "namespace" and "cluster".
    """

    server: str
    version: str
    namespace: str
    kind: str
    user: str = ""
    too_old: bool = False
    features: tuple[Feature, ...] = ()
    rights: tuple[Judged, ...] = ()
    grants: dict[str, str] = {}

    @property
    def is_enough(self) -> bool:
        """Whether jobs can run in this cluster with the permissions granted now."""
        return not self.too_old and all(one.allowed or not one.need.required for one in self.rights)
