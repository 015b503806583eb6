"""Formats the result of `holdfast k8s doctor` (features of a cluster, the user's rights) as lines of text and as a
document.
"""

from typing import Any

import msgspec

from holdfast.core.kubernetes.cluster_report import ClusterReport, Feature, Judged
from holdfast.core.kubernetes.needs import CONTROLLER, VERSION_LEAST, YOU

_MARKS = {True: "yes    ", False: "no     ", None: "unknown"}
_TITLES = {
    YOU: "your rights, to start and follow a job",
    CONTROLLER: "rights that you give the controller (who creates a Role needs the rights in it)",
}


def lines(report: ClusterReport) -> list[str]:
    as_user = f", as {report.user}" if report.user else ""
    found = [
        f"{report.server}, Kubernetes {report.version or 'of unknown version'}, namespace {report.namespace}{as_user}"
    ]
    if report.too_old:
        least = ".".join(map(str, VERSION_LEAST))
        found.append(
            f"this version is too old: jobs need {least} or later (successPolicy, backoffLimitPerIndex)"
        )
    found += ["", "features"]
    for feature in report.features:
        found += _of_feature(feature)
    for who, title in _TITLES.items():
        found += ["", title]
        for one in report.rights:
            if one.need.who == who:
                found += _of_right(one)
    found += ["", _verdict(report)]
    for place, text in report.grants.items():
        where = "in the namespace" if place == "namespace" else "in the cluster (optional)"
        found += ["", f"# what is missing {where}: an administrator applies", *text.splitlines()]
    return found


def document(report: ClusterReport) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(report)
    return {**built, "enough": report.is_enough}


def _of_feature(feature: Feature) -> list[str]:
    line = f"  {_MARKS[feature.present]} {feature.name} ({feature.how})"
    return [line] if feature.present else [line, f"          without it: {feature.without}"]


def _of_right(one: Judged) -> list[str]:
    need = one.need
    name = f"{need.resource}.{need.group}" if need.group else need.resource
    scope = "" if need.namespaced else ", in the whole cluster"
    if one.allowed:
        return [f"  yes     {', '.join(need.verbs)} {name}{scope}: {need.purpose}"]
    wanted = "needed" if need.required else "better"
    found = [f"  no      {', '.join(one.missing)} {name}{scope}: {need.purpose} ({wanted})"]
    if need.lost:
        found.append(f"          without it: {need.lost}")
    if need.instead:
        found.append(f"          instead: {need.instead}")
    return found


def _verdict(report: ClusterReport) -> str:
    missing = [one for one in report.rights if not one.allowed]
    if not report.is_enough:
        return "jobs cannot run here yet: what is marked (needed) is missing"
    if missing:
        return "jobs can run here; what is marked (better) has a second way"
    return "jobs can run here, with all that Holdfast can do"
