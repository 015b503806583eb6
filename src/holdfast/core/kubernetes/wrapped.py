"""Adapts environment, command and folder of a pod to the worker that runs in it, if its manifest was wrapped.

Pure.

A manifest wrapped by `holdfast k8s wrap` keeps the environment variables by which its platform numbers pods.
Holdfast assigns workers to pods itself, so each of these variables is set to the worker's number, and
addresses of pods are removed.

source: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode (JOB_COMPLETION_INDEX),
https://volcano.sh/en/docs/v1-8-2/plugins/ (VC_TASK_INDEX), https://www.kubeflow.org/docs/components/trainer/
(PET_*), https://www.kubeflow.org/docs/components/trainer/legacy-v1/user-guides/pytorch/ (RANK, WORLD_SIZE)
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

PODS_ENV = "HOLDFAST_WRAPPED"  # in a wrapped pod: the number of the job's pods, as its platform counts them
REPLACED_ENV = "HOLDFAST_WRAPPED_NAMES"  # addresses that the platform had set, by name
ADDRESSES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "NNODES",
    "NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
)
_NUMBERS = ("RANK", "JOB_COMPLETION_INDEX", "VC_TASK_INDEX", "VK_TASK_INDEX")
_SIZES = ("WORLD_SIZE",)
# source: https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#entrypoint: $(VAR), and $$ for $
_REFERENCE = re.compile(r"\$(?:(\$)|\(([A-Za-z_.][A-Za-z0-9_.-]*)\))")


def is_wrapped(env: Mapping[str, str]) -> bool:
    return bool(env.get(PODS_ENV))


def without_addresses(env: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the environment without the platform's addresses and counts of pods; unchanged if nothing is
    wrapped.

    `REPLACED_ENV` lists their names, because a launcher inside a script also reads them.
    """
    if not is_wrapped(env):
        return env
    kept = {key: value for key, value in env.items() if key not in ADDRESSES}
    return {**kept, REPLACED_ENV: " ".join(name for name in ADDRESSES if name in env)}


class Place(NamedTuple):
    """Worker `worker` of `workers`, and the rendezvous of its attempt. `address`: empty where it is not known yet."""

    worker: int
    workers: int
    address: str = ""
    port: int = 0
    run_id: str = ""


def numbers(base: Mapping[str, str], place: Place) -> dict[str, str]:
    """Returns the platform's numbers and addresses of pods for this worker, for variables that the
    platform has set.
    """
    if not is_wrapped(base):
        return {}
    worker, workers = str(place.worker), str(place.workers)
    addresses = {"PET_NNODES": workers, "PET_NODE_RANK": worker, "PET_RDZV_ID": place.run_id}
    if place.address:
        addresses |= {
            "PET_MASTER_ADDR": place.address,
            "PET_MASTER_PORT": str(place.port),
            "PET_RDZV_ENDPOINT": f"{place.address}:{place.port}",
        }
    replaced = base.get(REPLACED_ENV, "").split()
    found = {name: worker for name in _NUMBERS if name in base}
    found |= {name: value for name, value in addresses.items() if name in replaced}
    for name in _SIZES:
        if name in base:
            found[name] = str(place.workers * _ranks_per_pod(base[name], base[PODS_ENV]))
    return found


def expanded(argv: tuple[str, ...], env: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the command with $(VAR) expanded as a kubelet does; unchanged if nothing is wrapped."""
    if not is_wrapped(env):
        return argv
    return tuple(_REFERENCE.sub(lambda found: _value(found, env), word) for word in argv)


def _value(found: re.Match[str], env: Mapping[str, str]) -> str:
    return "$" if found[1] else env.get(found[2], found[0])


def _ranks_per_pod(world_size: str, pods: str) -> int:
    """Returns the number of ranks per pod: 1, unless the platform counts ranks instead of pods."""
    if not (world_size.isdigit() and pods.isdigit() and int(pods)):
        return 1
    ranks, rest = divmod(int(world_size), int(pods))
    return ranks if ranks and not rest else 1
