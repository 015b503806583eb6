"""Decides from the states of a job's owner and pods whether the cluster ends the job. Pure.

The owner's state alone proves nothing: a list may be stale, and an owner may be deleted without its pods (`--cascade=orphan`).
The cluster ends the job if the owner says so and a pod of it is being removed, has ended or is gone.
"""

from collections.abc import Sequence

from holdfast.model.kubernetes import OwnerState, PodState, RemakeWay
from holdfast.model.nodes.workers import EndAsked

TERMINATED = 143
FAILED = 1


def is_older(version: str, known: str) -> bool:
    """Returns True if the first of two versions of an object is older; False if they are not numbers.

    source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions: from Kubernetes 1.35 on, versions of
    one kind may be compared as numbers
    """
    return version.isdigit() and known.isdigit() and int(version) < int(known)


def newer(known: OwnerState | None, seen: OwnerState) -> OwnerState | None:
    """Returns the state that was seen; None if it is older than the known one."""
    if known is not None and known.uid == seen.uid and is_older(seen.version, known.version):
        return None
    return seen


def end_of(
    owner: OwnerState | None,
    pods: Sequence[PodState],
    remaking: RemakeWay | None,
    grace_s: float,
) -> EndAsked | None:
    """Returns the request to end the job if the cluster ends it, else None.

    `pods`: those that have had a node. `remaking`: how Holdfast itself replaces all pods, if it does.
    """
    if owner is None:
        return None
    ending = [pod for pod in pods if pod.deleting or pod.is_over]
    name, anew = f"{owner.kind} {owner.name}", remaking is not None
    if remaking == "evict" and len(ending) == len(pods):
        return _again("all pods of the job are recreated", grace_s, for_others=False)
    if pods and not ending:
        return None
    if owner.deleting:
        return EndAsked(reason=f"{name} was deleted", code=TERMINATED, finish_s=grace_s)
    if owner.suspended:
        reason = "all pods of the job are recreated" if anew else f"{name} was suspended"
        return _again(reason, grace_s, for_others=not anew)
    if owner.over:
        return EndAsked(reason=f"{name} has {owner.over} ({owner.why})", code=FAILED, finish_s=grace_s)
    return None


def _again(reason: str, grace_s: float, *, for_others: bool) -> EndAsked:
    return EndAsked(
        reason=reason,
        code=TERMINATED,
        finish_s=grace_s,
        comes_back=True,
        for_others=for_others,
        leave_code=TERMINATED,
    )
