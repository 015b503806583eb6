"""Describes what `holdfast k8s doctor` finds: rights and features of a cluster, and what is lost without each."""

from msgspec import Struct


class Need(Struct, frozen=True, kw_only=True):
    """Rights that serve one purpose. `who`: "you" or "controller". `verbs` on `resource` ("pods/log") of `group`.

    `required`: nothing works without it. `lost`: what is missing without it. `instead`: the second way; empty: none.
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
    """Something that a cluster may have. `present`: None: not known. `how`: by what that is known. `without`: what happens
    where it is missing.
    """

    name: str
    present: bool | None
    how: str
    without: str


class ClusterReport(Struct, frozen=True, kw_only=True):
    """`user`: whom the API server takes the caller for; empty: it does not say. `too_old`: the server lacks what jobs need.
    `grants`: YAML of roles for what is missing, by "namespace" and "cluster".
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
