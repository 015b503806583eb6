"""Builds the objects added to a wrapped one: the controller, its role, its Service and the job's Secret.

Pure.
"""

import secrets
from collections.abc import Sequence
from typing import Any

from holdfast.engines.kubernetes import manifests, names
from holdfast.engines.kubernetes.manifests import STATE, Document, Wanted
from holdfast.engines.kubernetes.wrap import pods
from holdfast.engines.kubernetes.wrap.asked import Asked
from holdfast.engines.kubernetes.wrap.trees import items, mapping, text

KEPT_S = 24 * 3600  # a controller's Job that has ended, for its log
REQUESTS = {"cpu": "250m", "memory": "256Mi"}
_COPIED = (
    "imagePullSecrets",
)  # from the training's pods: the controller's image is often of the same registry


def wanted(
    key: str,
    document: Document,
    container: Document,
    command: Sequence[str],
    sizes: tuple[int, int],
    image: str,
    asked: Asked,
) -> Wanted:
    """Returns the parameters of the objects that are added to a wrapped one.

    `sizes`: number of workers and of spares. `command`: of the training. `image`: of the training.
    """
    job = text(document, "metadata", "name")
    workers, spares = sizes
    counts = ("--nnodes", str(workers), "--spares", str(spares))
    # A kubelet would replace $(VAR) from the controller's environment; agents do it from the training's.
    words = tuple(word.replace("$", "$$") for word in command)
    run = ("run", "--engine", "kubernetes", "--state-dir", STATE, "--job", job, *counts)
    return Wanted(
        job=job,
        namespace=text(document, "metadata", "namespace") or asked.namespace,
        image=asked.image or asked.agent_image or image,
        pods=workers + spares,
        run=(*run, *asked.run_flags, "--", *words),
        secret=secrets.token_hex(32),
        kind=key,
        env=_settings_in(container),
    )


def before(one: Wanted, asked: Asked) -> list[Document]:
    """Returns the objects that must exist before the pods start."""
    secret = [] if asked.secret else [manifests.secret(one)]
    return [_tidy(document) for document in (*secret, *manifests.access(one), manifests.service(one))]


def controller(one: Wanted, container: str, pod_spec: Document, asked: Asked) -> Document:
    """Returns the Job whose only pod runs the controller.

    `container`: the training container. `pod_spec`: of the training's pods.
    """
    made = _tidy(manifests.controller_job(one))
    made["spec"]["ttlSecondsAfterFinished"] = KEPT_S
    spec = made["spec"]["template"]["spec"]
    for field in _COPIED:
        if field in pod_spec:
            spec[field] = [dict(each) for each in items(pod_spec, field)]
    main: dict[str, Any] = spec["containers"][0]
    main["command"], main["args"] = [pods.program(asked)], list(one.run)
    main["env"].append({"name": names.CONTAINER_ENV, "value": container})
    main["env"].append({"name": "XDG_CACHE_HOME", "value": f"{STATE}/cache"})  # its root may be read-only
    main["volumeMounts"] = pods.mounts(asked)
    main["resources"] = {"requests": dict(REQUESTS)}
    main["securityContext"] = pods.restricted({})
    spec["volumes"] = pods.volumes(asked, asked.secret or names.objects_name(one.job))
    if asked.state_claim:
        spec["volumes"][0] = {
            "name": pods.STATE_VOLUME,
            "persistentVolumeClaim": {"claimName": asked.state_claim},
        }
    if asked.agent_image and not asked.image_volume:
        spec["initContainers"] = [pods.agent_copy(asked.agent_image, {})]
    return made


def _settings_in(container: Document) -> tuple[tuple[str, str], ...]:
    """Settings of Holdfast that the training's container has: the controller reads most of them."""
    found = [(text(one, "name"), one.get("value")) for one in items(container, "env")]
    return tuple(
        (name, str(value))
        for name, value in found
        if value is not None
        and name.startswith(("HOLDFAST_", "MA_"))
        and name not in ("HOLDFAST_STATE_DIR", "HOLDFAST_JOB")
    )


def _tidy(document: Document) -> Document:
    """Returns the object without an empty namespace, so that kubectl or Kustomize sets it."""
    if not mapping(document, "metadata").get("namespace"):
        document["metadata"].pop("namespace", None)
        for subject in document.get("subjects", ()):
            subject["namespace"] = "default"
    document["metadata"]["annotations"] = {names.WRAP: "done"}
    return document
