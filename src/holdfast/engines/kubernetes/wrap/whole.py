"""Wraps all training jobs of a YAML stream, for `holdfast k8s wrap`, Helm post-renderers and Kustomize
functions.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from holdfast.engines.kubernetes.manifests import PODS_LOST_MAX
from holdfast.engines.kubernetes.names import WRAP, objects_name
from holdfast.engines.kubernetes.wrap import checks, companions, owners, pods, shapes, texts
from holdfast.engines.kubernetes.wrap.asked import Asked, Refused, Wrapped
from holdfast.engines.kubernetes.wrap.trees import (
    Document,
    NotAsExpected,
    items,
    mapping,
    number,
    own_list,
    own_mapping,
    text,
    without,
)

FUNCTION_KIND = "ResourceList"  # of config.kubernetes.io/v1
_FUNCTION_FLAGS = (
    "container",
    "spares",
    "image",
    "agent-image",
    "image-volume",
    "secret",
    "state-claim",
    "restart-containers",
    "namespace",
    "jobs",
    "run-flags",
)


class _Made(NamedTuple):
    """Objects that come before the wrapped one, and after it."""

    before: list[Document]
    after: list[Document]
    notes: list[str]


def wrap(given: Sequence[tuple[str, str]], asked: Asked) -> Wrapped:
    """Wraps manifests. `given`: name and text of each file.

    Raises Refused, with the reasons for all objects.
    """
    streams = [
        (name, [(part, _parsed(name, part)) for part in texts.split(content)]) for name, content in given
    ]
    everything = [one for _, parts in streams for _, document in parts for one in _objects(document)]
    reasons: list[str] = []
    notes: list[str] = []
    names: list[str] = []
    out: list[str] = []
    for name, parts in streams:
        for part, document in parts:
            try:
                text_, found = _wrap_document(document, part, everything, _asked_for(document, asked))
            except Refused as error:
                reasons += [f"{name}: {reason}" for reason in error.reasons]
                continue
            notes += found[0]
            names += found[1]
            out.append(text_ if text_.endswith("\n") else f"{text_}\n")
    if reasons:
        raise Refused(*reasons)
    if not names and not any(_is_done(one) for one in everything):
        raise Refused(_nothing(everything, asked))
    return Wrapped(text=_joined(out), notes=tuple(dict.fromkeys(notes)), names=tuple(names))


def _joined(parts: Sequence[str]) -> str:
    """Returns the documents as one stream, with `---` lines between them."""
    out: list[str] = []
    for part in parts:
        out.append(part if not out or part.startswith("---") else f"---\n{part}")
    return "".join(out)


def _parsed(name: str, part: str) -> Any:
    try:
        return texts.parsed(part)
    except Refused as error:
        raise Refused(*(f"{name}: {reason}" for reason in error.reasons)) from error


def _objects(document: Any) -> list[Any]:
    """Returns the object of a document, or the objects of a List."""
    if not isinstance(document, dict):
        return []
    if _is_list(document):
        return [one for one in items(document, "items") if isinstance(one, dict)]
    return [document]


def _is_list(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("items"), list) and str(document.get("kind", "")).endswith("List")


def _wrap_document(
    document: Any, part: str, everything: list[Any], asked: Asked
) -> tuple[str, tuple[list[str], list[str]]]:
    """Returns the text of a wrapped document, with notes and object names.

    Raises Refused, with all reasons.
    """
    if not isinstance(document, dict):
        return part, ([], [])
    if _is_list(document):
        return _wrap_list(document, part, everything, asked)
    made = _wrap_object(document, everything, asked)
    if made is None:
        return part, ([], [])
    new = [
        *(texts.fresh(one) for one in made.before),
        texts.written(document, part),
        *(texts.fresh(one) for one in made.after),
    ]
    return _joined([one if one.endswith("\n") else f"{one}\n" for one in new]), (
        made.notes,
        [_name_of(document)],
    )


def _wrap_list(
    document: Document, part: str, everything: list[Any], asked: Asked
) -> tuple[str, tuple[list[str], list[str]]]:
    notes: list[str] = []
    names: list[str] = []
    reasons: list[str] = []
    new: list[Any] = []
    listed = own_list(document, "items")
    for one in listed:
        try:
            made = _wrap_object(one, everything, asked) if isinstance(one, dict) else None
        except Refused as error:
            reasons += error.reasons
            continue
        if made is not None:
            new += [*made.before, *made.after]
            notes += made.notes
            names.append(_name_of(one))
    if reasons:
        raise Refused(*reasons)
    if not names:
        return part, ([], [])
    listed.extend(texts.quoted(new))
    return texts.written(document, part), (notes, names)


def _wrap_object(document: Document, everything: list[Any], asked: Asked) -> _Made | None:
    """Wraps an object of a known kind in place; returns None if it is unchanged. Raises Refused."""
    key = shapes.kind_of(document)
    if not key or not _is_meant(document, asked):
        return None
    where = _name_of(document)
    if _is_done(document):
        return None
    try:
        if key == shapes.POD:
            return _wrap_pod(document, everything, asked)
        return _wrap_owner(key, document, everything, asked)
    except NotAsExpected as error:
        raise Refused(f"{where}: {error}") from error
    except Refused as error:
        raise Refused(*(f"{where}: {reason}" for reason in error.reasons)) from error


def _wrap_owner(key: str, document: Document, everything: list[Any], asked: Asked) -> _Made:
    """Wraps an object that owns pods. Raises Refused, NotAsExpected."""
    reasons = [
        *checks.name_refusals(document),
        *checks.annotation_refusals(document),
        *checks.flag_refusals(key, asked.run_flags),
    ]
    shaped = _runtime_copy(document, everything, asked) if key == "trainjob" else document
    choice = shapes.chosen(key, _counted(key, document, shapes.groups_of(key, shaped)), asked.container)
    over = mapping(document, "spec", "trainer") if key == "trainjob" else {}
    trained, containers = [], []
    for group in choice.groups:
        container = next(one for one in group.containers if text(one, "name") == choice.container)
        one = checks.Trained(
            checks.words_of(container, over), text(over, "image") or text(container, "image")
        )
        reasons += checks.pod_refusals(key, group, container, one)
        trained.append(one)
        containers.append(container)
    workers = owners.pods_of(choice)
    reasons += [*checks.command_refusals(trained[0], workers), *checks.choice_refusals(choice, trained)]
    if reasons:
        raise Refused(*reasons)
    sizes = (workers, asked.spares)
    wanted = companions.wanted(
        key, document, containers[0], trained[0].command, sizes, trained[0].image, asked
    )
    before, after = companions.before(wanted, asked), []
    after.append(companions.controller(wanted, choice.container, choice.groups[0].pod_spec, asked))
    notes = [
        f"{_name_of(document)}: {note}"
        for group in choice.groups
        for note in checks.pod_notes(group, choice.container)
    ]
    notes += [f"{_name_of(document)}: {note}" for note in checks.annotation_notes(document)]
    if not wanted.namespace:
        notes.append(f"{_name_of(document)}: {_NO_NAMESPACE}")
    owners.wrap_owner(key, shaped, choice, asked.spares)
    if key == "volcano" and checks.REMAKES in asked.run_flags:
        own_mapping(shaped, "spec")["maxRetry"] = PODS_LOST_MAX  # of RestartJob
    done: set[int] = set()
    for group in owners.groups_again(shapes.groups_of(key, shaped), choice):
        template = own_mapping(group.holder, "template")
        if id(template) not in done:
            done.add(id(template))
            pods.wrap_template(template, choice.container, wanted.job, wanted.pods, asked)
    if key == "trainjob":
        _wrap_train_job(document, wanted.pods, asked)
        before.append(shaped)
    own_mapping(document, "metadata", "annotations")[WRAP] = "done"
    return _Made(before, after, notes)


_NO_NAMESPACE = (
    'the manifest names no namespace, and a RoleBinding needs one: its subject is in "default"; give --namespace NAME, or '
    "let Kustomize set it"
)


def _runtime_copy(document: Document, everything: list[Any], asked: Asked) -> Document:
    """Returns a copy of the runtime for this TrainJob alone, because other jobs may use the original."""
    reference = mapping(document, "spec", "runtimeRef")
    kind, name = text(reference, "kind") or "ClusterTrainingRuntime", text(reference, "name")
    for one in everything:
        if (one.get("apiVersion"), one.get("kind"), text(one, "metadata", "name")) == (
            shapes.TRAINER_API,
            kind,
            name,
        ):
            break
    else:
        raise Refused(
            f"the runtime of the TrainJob is needed too, because it contains the pod template: kubectl get {kind.lower()} {name} -o yaml > runtime.yaml, "
            "and give both files"
        )
    made: Document = copy.deepcopy(one)
    labels = {key: value for key, value in mapping(made, "metadata", "labels").items() if "argocd" not in key}
    space = text(document, "metadata", "namespace") or asked.namespace
    made["kind"] = "TrainingRuntime"
    made["metadata"] = {
        "name": objects_name(text(document, "metadata", "name")),
        **({"namespace": space} if space else {}),
        **({"labels": labels} if labels else {}),
        "annotations": {WRAP: "done"},
    }
    without(made, "status")
    return made


def _counted(key: str, document: Document, groups: list[shapes.Group]) -> list[shapes.Group]:
    """Returns the groups of pods with their numbers, which for a TrainJob are set in the TrainJob itself."""
    if key != "trainjob":
        return groups
    nodes = number(document, "spec", "trainer", "numNodes")
    return groups if nodes is None else [group._replace(pods=nodes) for group in groups]


def _wrap_train_job(document: Document, count: int, asked: Asked) -> None:
    name = objects_name(text(document, "metadata", "name"))
    reference = own_mapping(document, "spec", "runtimeRef")
    reference.update({"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": name})
    trainer = own_mapping(document, "spec", "trainer")
    trainer["numNodes"] = count
    if trainer.get("command"):
        trainer["command"] = [pods.program(asked), "agent"]
    without(trainer, "args")


def _wrap_pod(document: Document, everything: list[Any], asked: Asked) -> _Made:
    """Wraps a bare Pod. No owner recreates it, so Holdfast restarts processes only inside it.

    Raises Refused.
    """
    choice = shapes.chosen(shapes.POD, shapes.groups_of(shapes.POD, document), asked.container)
    group = choice.groups[0]
    index = next(n for n, one in enumerate(group.containers) if text(one, "name") == choice.container)
    container = group.containers[index]
    trained = checks.Trained(checks.words_of(container, {}), text(container, "image"))
    if reasons := checks.pod_refusals(shapes.POD, group, container, trained):
        raise Refused(*reasons)
    several = sum(shapes.kind_of(one) == shapes.POD for one in everything) > 1
    flags = tuple(texts.quoted(list(asked.run_flags)))
    pods.wrap_pod(document, index, replace(asked, run_flags=flags), restarts=not several)
    own_mapping(document, "metadata", "annotations")[WRAP] = "done"
    what = "reports why a pod failed" if several else "restarts inside this pod"
    return _Made(
        [],
        [],
        [
            f"{_name_of(document)}: a lost bare Pod is not recreated, so Holdfast only {what}: use a Job to have lost pods replaced"
        ],
    )


def _is_meant(document: Document, asked: Asked) -> bool:
    meta = document.get("metadata")
    notes = meta.get("annotations") if isinstance(meta, dict) else None
    if isinstance(notes, dict) and str(notes.get(WRAP, "")).lower() == "false":
        return False
    return not asked.jobs or (isinstance(meta, dict) and meta.get("name") in asked.jobs)


def _is_done(document: Document) -> bool:
    meta = document.get("metadata")
    notes = meta.get("annotations") if isinstance(meta, dict) else None
    return isinstance(notes, dict) and notes.get(WRAP) == "done"


def _name_of(document: Document) -> str:
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return f"{document.get('kind')}/{name or '(no name)'}"


def _nothing(everything: list[Any], asked: Asked) -> str:
    """Returns the reason why nothing was wrapped."""
    if asked.jobs and any(shapes.kind_of(one) for one in everything):
        return (
            f"no object is named {' or '.join(asked.jobs)}: there are {', '.join(map(_name_of, everything))}"
        )
    kinds = [str(one.get("kind")) for one in everything if one.get("kind")]
    if not kinds:
        return f"no Kubernetes object is in the input; known kinds: {shapes.KNOWN}"
    hints = [f"{kind}: {shapes.INSTEAD[kind]}" for kind in dict.fromkeys(kinds) if kind in shapes.INSTEAD]
    found = ", ".join(dict.fromkeys(kinds))
    return "; ".join([f"nothing to wrap: found {found}; known kinds: {shapes.KNOWN}", *hints])


def _asked_for(document: Any, asked: Asked) -> Asked:
    """Returns the parameters, with those of the function's configuration if the input is that of a KRM
    function.

    Raises Refused.
    """
    if not isinstance(document, dict) or document.get("kind") != FUNCTION_KIND:
        return asked
    data = document.get("functionConfig")
    data = (data.get("data") or data.get("spec") or {}) if isinstance(data, dict) else {}
    given: dict[str, object] = {}
    for key, value in data.items():
        if key not in _FUNCTION_FLAGS:
            raise Refused(
                f"functionConfig has the unknown key {key}; known keys: {', '.join(_FUNCTION_FLAGS)}"
            )
        words = str(value).split() if key in ("jobs", "run-flags") else str(value)
        given[key.replace("-", "_")] = words
    try:
        merged: Asked = msgspec.convert({**msgspec.structs.asdict(asked), **given}, Asked, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"functionConfig: {error}") from error
    return merged
