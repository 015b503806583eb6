"""Recognises jobs whose journal is in a Kubernetes cluster and not on this machine, so that commands are run there.

kubernetes/<job>.json      in the state folder: written when the job was submitted from this machine
"""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

SUBMITTED = "kubernetes"  # folder of the notes
INSIDE_ENV = "HOLDFAST_KUBERNETES_ROLE"  # set in the pods of a job


class JobElsewhere(Exception):
    """Raised when the journal is in the pod of the job's controller.

    `name`: None means the newest job that was submitted from this state folder. `why_not_here`: message for users if
    the journal is not there either.
    """

    def __init__(self, name: str | None, root: Path, why_not_here: str) -> None:
        super().__init__(why_not_here)
        self.name, self.root, self.why_not_here = name, root, why_not_here


def is_elsewhere(name: str | None, root: Path, env: Mapping[str, str]) -> bool:
    """Returns whether a job was submitted to a cluster, from this machine or possibly from another one."""
    if env.get(INSIDE_ENV):
        return False
    with suppress(OSError, ValueError):
        if any((root / SUBMITTED).glob(f"{name or '*'}.json")):
            return True
    is_configured = bool(env.get("KUBECONFIG")) or (Path(env.get("HOME", "/")) / ".kube/config").exists()
    return name is not None and is_configured
