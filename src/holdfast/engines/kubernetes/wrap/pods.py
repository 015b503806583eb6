"""Changes a pod template so that its training container runs the agent. Pure.

The rest of the template is kept.

source: https://kubernetes.io/docs/concepts/security/pod-security-standards/ (restricted),
https://kubernetes.io/docs/tasks/configure-pod-container/image-volumes/
"""

from typing import Any

from holdfast.core.kubernetes.wrapped import PODS_ENV
from holdfast.engines.kubernetes.manifests import SECRET, SECRET_MODE, STATE, Document, labels, restart_rules
from holdfast.engines.kubernetes.names import LIFE_PORT, PORT, ROLE_WORKER, controller_name, objects_name
from holdfast.engines.kubernetes.wrap.asked import AGENT_FOLDER, IMAGE_FOLDER, Asked
from holdfast.engines.kubernetes.wrap.trees import mapping, own_item, own_list, own_mapping, text, without

STATE_VOLUME, SECRET_VOLUME, AGENT_VOLUME = "holdfast-state", "holdfast-secret", "holdfast-agent"
USER = 65532  # of Holdfast's own containers, where the pod names none


def program(asked: Asked) -> str:
    """Returns the path of `holdfast` in pods: in a mounted folder, or on PATH of the training's image."""
    return f"{AGENT_FOLDER}/bin/holdfast" if asked.agent_image else "holdfast"


def wrap_template(template: Document, container: str, job: str, pods: int, asked: Asked) -> None:
    """Changes the template in place. `pods`: of the job, with spares."""
    own_mapping(template, "metadata", "labels").update(labels(job, ROLE_WORKER))
    spec = own_mapping(template, "spec")
    for number, one in enumerate(own_list(spec, "containers")):
        if text(one, "name") == container:
            wrap_container(own_item(own_list(spec, "containers"), number), job, pods, asked)
    own_list(spec, "volumes").extend(volumes(asked, asked.secret or objects_name(job)))
    if asked.agent_image and not asked.image_volume:
        own_list(spec, "initContainers").insert(0, agent_copy(asked.agent_image, spec))


def wrap_container(container: Document, job: str, pods: int, asked: Asked) -> None:
    container["command"] = [program(asked), "agent"]
    without(container, "args")
    own_list(container, "env").extend(environment(job, pods))
    if asked.restart_containers:
        container.update(restart_rules())
    own_list(container, "volumeMounts").extend(mounts(asked))


def environment(job: str, pods: int) -> list[Document]:
    """Returns environment variables by which an agent finds its controller.

    They use the short name of the controller's Service, so that they are valid in any namespace.
    """
    return [
        {"name": "HOLDFAST_NODE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "HOLDFAST_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "HOLDFAST_LIFE_PORT", "value": str(LIFE_PORT)},
        {"name": "HOLDFAST_STATE_DIR", "value": STATE},
        {"name": "HOLDFAST_JOB_FOLDER", "value": f"{STATE}/jobs/{job}"},
        {"name": "HOLDFAST_CONTROLLER", "value": f"{controller_name(job)}:{PORT}"},
        {"name": "HOLDFAST_SECRET_FILE", "value": f"{SECRET}/secret"},
        {"name": PODS_ENV, "value": str(pods)},
    ]


def mounts(asked: Asked) -> list[Document]:
    """Returns the volume mounts of a container that runs Holdfast."""
    agent = [{"name": AGENT_VOLUME, "mountPath": AGENT_FOLDER, "readOnly": True}] if asked.agent_image else []
    if agent and asked.image_volume:
        agent[0]["subPath"] = IMAGE_FOLDER.lstrip("/")
    return [
        {"name": STATE_VOLUME, "mountPath": STATE},
        {"name": SECRET_VOLUME, "mountPath": SECRET, "readOnly": True},
        *agent,
    ]


def volumes(asked: Asked, secret: str) -> list[Document]:
    return [
        {"name": STATE_VOLUME, "emptyDir": {}},
        {"name": SECRET_VOLUME, "secret": {"secretName": secret, "defaultMode": SECRET_MODE}},
        *agent_volumes(asked),
    ]


def agent_volumes(asked: Asked) -> list[Document]:
    """Returns the volumes with the agent's files; empty if the training's image contains `holdfast`."""
    if not asked.agent_image:
        return []
    image = {"image": {"reference": asked.agent_image, "pullPolicy": "IfNotPresent"}}
    return [{"name": AGENT_VOLUME, **(image if asked.image_volume else {"emptyDir": {}})}]


def agent_copy(image: str, pod_spec: Document) -> Document:
    """Returns the init container that copies the agent's folder; permitted in a restricted namespace."""
    return {
        "name": AGENT_VOLUME,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": [f"{IMAGE_FOLDER}/bin/holdfast-copy", AGENT_FOLDER],
        "securityContext": restricted(pod_spec),
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": [{"name": AGENT_VOLUME, "mountPath": AGENT_FOLDER}],
    }


def restricted(pod_spec: Document) -> dict[str, Any]:
    """Returns a security context for restricted namespaces, with a non-root user if the pod names none."""
    user = mapping(pod_spec, "securityContext").get("runAsUser")
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **({} if user else {"runAsUser": USER}),
    }


def wrap_pod(document: Document, index: int, asked: Asked, *, restarts: bool) -> None:
    """Changes a bare Pod in place. `index`: of the container that trains. `restarts`: else it is only watched."""
    spec = own_mapping(document, "spec")
    container = own_item(own_list(spec, "containers"), index)
    words = ["run", *asked.run_flags] if restarts else ["agent"]
    container["command"] = [program(asked), *words, "--", *container["command"]]
    own_list(container, "env").append({"name": "HOLDFAST_STATE_DIR", "value": STATE})
    own_list(container, "volumeMounts").extend(one for one in mounts(asked) if one["name"] != SECRET_VOLUME)
    own_list(spec, "volumes").extend([{"name": STATE_VOLUME, "emptyDir": {}}, *agent_volumes(asked)])
    if asked.agent_image and not asked.image_volume:
        own_list(spec, "initContainers").insert(0, agent_copy(asked.agent_image, spec))
