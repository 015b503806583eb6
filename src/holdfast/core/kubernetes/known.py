"""Defines what is known of one pod of a job, and what the job may do in its cluster. Data types only."""

from msgspec import Struct

from holdfast.model.kubernetes import PodState


class Rules(Struct, frozen=True, kw_only=True):
    """Permissions. `node_rights`: to taint nodes. `remakes_ended`: the owner replaces ended pods at once."""

    node_rights: bool = False
    remakes_ended: bool = True


class KnownPod(Struct):
    """A pod. `announced`, `down`: reported to the controller as ready, as lost.

    `removed`: deletion ordered.
    """

    state: PodState
    announced: bool = False
    down: bool = False
    removed: bool = False
    deleting_s: float | None = None
    waits_s: float | None = None
    again_s: float = 0.0  # before which a refused removal is not asked for again
    noted: str = ""
    sick: dict[str, str] = {}
