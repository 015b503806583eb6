"""Defines the parameters, the result and the error of `holdfast k8s wrap`."""

from msgspec import Struct

AGENT_FOLDER = "/holdfast/agent"  # in pods
IMAGE_FOLDER = "/opt/holdfast"  # in the agent's image


class Refused(Exception):
    """Raised when the manifest cannot be wrapped as it is. `reasons`: one line each, which says what to change."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


class Asked(Struct, frozen=True, kw_only=True):
    """The flags of `holdfast k8s wrap`.

    `container`: NAME, or GROUP/NAME, of the container that trains; empty: it is recognised. `spares`: pods besides the workers.
    `agent_image`: image with the agent's folder; empty: the training's image has `holdfast`. `image`: of the controller's pod;
    empty: the agent's image, else the training's. `image_volume`: the agent's folder is mounted from its image. `secret`: name of
    an existing Secret; empty: a new one. `restart_containers`: all containers of a pod restart in place where one beside the
    training has failed. `state_claim`: a PersistentVolumeClaim for the controller's record. `namespace`: of objects that name none. `jobs`: names of the objects to wrap; empty:
    all. `run_flags`: further flags of `holdfast run`.
    """

    container: str = ""
    spares: int = 1
    image: str = ""
    agent_image: str = ""
    image_volume: bool = False
    secret: str = ""
    state_claim: str = ""
    restart_containers: bool = False
    namespace: str = ""
    jobs: tuple[str, ...] = ()
    run_flags: tuple[str, ...] = ()


class Wrapped(Struct, frozen=True, kw_only=True):
    """Result of wrapping. `text`: the manifests. `notes`: lines for users.

    `names`: wrapped objects, such as "Job/t".
    """

    text: str
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
