"""Checks whether Holdfast can supervise the pods of an object without changes to them. Pure.

Each reason for a refusal says what to change.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast.core.kubernetes.annotations import checked, of_platform
from holdfast.core.kubernetes.wrapped import ADDRESSES
from holdfast.engines.kubernetes.names import LABEL_JOB
from holdfast.engines.kubernetes.wrap.shapes import POD, Choice, Group
from holdfast.engines.kubernetes.wrap.trees import Document, items, mapping, text

NAME_MAX = 40  # names of pods and labels are longer, and end at 63
REMAKES = "--reschedule-pods"
RESERVED = "holdfast-"
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # of a Service: RFC 1035
_NO_STRINGS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")  # in YAML 1.1
_HOST_DNS = "ClusterFirstWithHostNet"
_OPTION = re.compile(
    r"--(rdzv[-_]endpoint|master[-_]addr|master[-_]port|node[-_]rank|nnodes)(?:[= ]+([^\s'\"]+))?"
)
_VARIABLE = re.compile(r"\$[({]?([A-Za-z_][A-Za-z0-9_]*)")
_OWN_NUMBERS = ("RANK", "JOB_COMPLETION_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX", "WORLD_SIZE")


class Trained(NamedTuple):
    """The training in a pod: the container's command and arguments, and its image."""

    command: tuple[str, ...]
    image: str


def name_refusals(document: Document) -> list[str]:
    meta = mapping(document, "metadata")
    name = text(meta, "name")
    if not name:
        return [
            "metadata.name is missing: Holdfast names its objects after it; replace generateName by a name"
        ]
    if len(name) > NAME_MAX or not _NAME.fullmatch(name) or name in _NO_STRINGS:
        return [
            f"metadata.name {name!r}: use lower-case letters, digits and -, beginning with a letter, {NAME_MAX} at most; names of "
            "Holdfast's objects are longer"
        ]
    return []


def annotation_refusals(document: Document) -> list[str]:
    """Returns why annotations for fault tolerance would be refused once the job runs."""
    found = of_platform(mapping(document, "metadata", "annotations"))
    no_text = [key for key, value in found.items() if not isinstance(value, str)]
    texts = {key: value for key, value in found.items() if isinstance(value, str)}
    return [
        *(
            f"metadata.annotations: {key} is {found[key]!r}, and Kubernetes takes text alone: quote it"
            for key in no_text
        ),
        *(f"metadata.annotations: {line}" for line in checked(texts)[0]),
    ]


def annotation_notes(document: Document) -> list[str]:
    return list(checked(of_platform(mapping(document, "metadata", "annotations")))[1])


def flag_refusals(key: str, flags: Sequence[str]) -> list[str]:
    """Returns why flags of `holdfast run` cannot be used with this kind of object."""
    if key == "pytorchjob" and REMAKES in flags:
        return [f"{REMAKES} does not work with a PyTorchJob: leave it out; its pods are replaced one by one"]
    return []


def pod_refusals(key: str, group: Group, container: Document, trained: Trained) -> list[str]:
    """Returns why Holdfast cannot supervise a group of pods; empty if it can."""
    spec, path = group.pod_spec, f"{group.path}.spec".lstrip(".")
    where = f"{path}.containers[{text(container, 'name')}]"
    found = [*_restart_refusals(key, group, path), *_rule_refusals(key, spec, path, container)]
    if not trained.command:
        found.append(
            f"{where} has no command, and the ENTRYPOINT of {trained.image or 'its image'} is not known here: write it as "
            "command (docker inspect or skopeo inspect --config shows it)"
        )
    if spec.get("hostNetwork") and text(spec, "dnsPolicy") != _HOST_DNS and key != POD:
        found.append(
            f"{path}.hostNetwork without dnsPolicy: {_HOST_DNS}: agents could not resolve the name of their controller; "
            f"set {path}.dnsPolicy to {_HOST_DNS}"
        )
    for kind in ("containers", "initContainers", "volumes"):
        for one in items(spec, kind):
            if text(one, "name").startswith(RESERVED):
                found.append(
                    f"{path}.{kind} has {text(one, 'name')}: names with {RESERVED} are Holdfast's; rename it"
                )
    labels = mapping(group.holder, "template", "metadata", "labels")
    if LABEL_JOB in labels:
        found.append(f"{group.path}.metadata.labels has {LABEL_JOB}, which Holdfast sets: remove it")
    return found


def command_refusals(trained: Trained, pods: int) -> list[str]:
    """Returns why a launch command cannot be wrapped: it has options that name a pod or a number of pods, but a
    worker may run in any pod.
    """
    if pods < 2:
        return []
    found = []
    words = list(trained.command)
    for index, word in enumerate(words):
        for option, value in _OPTION.findall(word):
            value = value or (words[index + 1] if index + 1 < len(words) else "")
            if why := _why_fixed(option.replace("_", "-"), value, pods):
                found.append(why)
    return found


def choice_refusals(choice: Choice, trained: Sequence[Trained]) -> list[str]:
    """Returns why the chosen pods cannot be workers of one job.

    Any worker may run in any pod, so all must have the same command and image.
    """
    if len(set(trained)) < 2:
        return []
    names = " and ".join(group.name for group in choice.groups)
    return [
        f"{names} have different commands or images in container {choice.container}: a worker may run in any of their pods; "
        "make them equal, or name one with --container GROUP/NAME"
    ]


def pod_notes(group: Group, container: str) -> list[str]:
    """Returns remarks on settings of pods that are permitted but perhaps unintended."""
    others = [text(one, "name") for one in group.containers if text(one, "name") != container]
    return [
        f"container {name} stays as it is: a pod ends only when all its containers have; if {name} never ends, move it to "
        "initContainers with restartPolicy: Always"
        for name in others
    ]


def words_of(container: Document, over: Document) -> tuple[str, ...]:
    """Returns a container's command and arguments.

    `over`: those of a TrainJob's trainer, which take precedence.
    """
    command = items(over, "command") or items(container, "command")
    arguments = items(over, "args") or items(container, "args")
    return tuple(str(word) for word in [*command, *arguments]) if command else ()


def _restart_refusals(key: str, group: Group, path: str) -> list[str]:
    holder: Any = group.holder if key == "pytorchjob" else group.pod_spec
    found = text(holder, "restartPolicy")
    if key == "pytorchjob" and found in ("OnFailure", "Always"):
        return [
            f"{group.path.rpartition('.')[0]}.restartPolicy is {found}: the kubelet would restart containers beside Holdfast's own "
            "restarts; set it to ExitCode"
        ]
    if key not in ("pytorchjob", POD) and found in ("OnFailure", "Always"):
        return [
            f"{path}.restartPolicy is {found}: the kubelet would restart containers beside Holdfast's own restarts, with a "
            "back-off of up to 5 min; set it to Never"
        ]
    return []


def _rule_refusals(key: str, spec: Document, path: str, container: Document) -> list[str]:
    """Returns which restarts by the kubelet of single containers would cross Holdfast's own.

    source: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-restart-rules
    """
    if key == POD:
        return []
    found = []
    if text(container, "restartPolicy") not in ("", "Never") or items(container, "restartPolicyRules"):
        found.append(
            f"{path}.containers[{text(container, 'name')}] has restartPolicy or restartPolicyRules: the kubelet would restart "
            "the agent beside Holdfast's own restarts; remove both (--restart-containers writes Holdfast's rule)"
        )
    for kind in ("containers", "initContainers"):
        for one in items(spec, kind):
            rules = [text(rule, "action") for rule in items(one, "restartPolicyRules")]
            if one is not container and "RestartAllContainers" in rules:
                found.append(
                    f"{path}.{kind}[{text(one, 'name')}] has a rule RestartAllContainers, which would end the training without "
                    "grace: remove it (--restart-containers writes Holdfast's rule)"
                )
    return found


def _why_fixed(option: str, value: str, pods: int) -> str:
    names = _VARIABLE.findall(value)
    if names and all(name in ADDRESSES or name in _OWN_NUMBERS for name in names):
        return ""
    if option == "nnodes" and value == str(pods):
        return ""
    if option == "master-port" and value.isdigit():
        return ""
    said = f"the command has --{option} {value}"
    if option == "nnodes":
        return f"{said}, and the job has {pods} pods: remove it, or write --nnodes $NNODES in a shell"
    variable = {"node-rank": "$NODE_RANK", "master-port": "$MASTER_PORT"}.get(option, "$MASTER_ADDR")
    if option == "rdzv-endpoint":
        variable = "$MASTER_ADDR:$MASTER_PORT"
    return f"{said}, but a worker may run in any pod: remove it (torchrun gets it from Holdfast), or write {variable} in a shell"
