"""What is known of a job outside of its journal: where it lies, its true state, its steps, its files. No behaviour."""

from typing import Any

from msgspec import Struct

from holdfast.model.documents.incidents import EvidenceRow, StackGroup, WaitEdge
from holdfast.model.documents.parts import JobState
from holdfast.model.policy import Policy
from holdfast.observe.logs.step_file import StepFile


class Seen(Struct, frozen=True, kw_only=True):
    """`id`: of the job among all of a server. `facts`: what its journal says of its start (docs/state-folder.md).

    `living`: ranks whose processes live; None: it cannot be told, or the journal tells it. `is_being_ended`: nobody
    supervises the job, and its processes are being ended. `files`: by worker, names and sizes of the present attempt.
    `warnings`: what limits the document.
    """

    id: str
    name: str
    state: JobState
    source: str = ""
    state_since_s: float | None = None
    seen_at_s: float | None = None
    facts: dict[str, Any] = {}
    policy: Policy = Policy()
    folder: str = ""
    user: str = ""
    supervisor: str = ""
    labels: dict[str, str] = {}
    steps: StepFile | None = None
    worker_steps: dict[int, StepFile] = {}
    files: dict[int, dict[str, int]] = {}
    living: frozenset[int] | None = None
    is_being_ended: bool = False
    warnings: tuple[str, ...] = ()


class Surroundings(Struct, frozen=True):
    """Where a line stands in its file now, and the lines around it."""

    offset: int
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Scene(Struct, frozen=True, kw_only=True):
    """What the files of an incident hold beside the journal. `surroundings`: by file and text of the line."""

    stacks: tuple[StackGroup, ...] = ()
    waits: tuple[WaitEdge, ...] = ()
    kernel: tuple[EvidenceRow, ...] = ()
    has_bundle: bool = False
    surroundings: dict[tuple[str, str], Surroundings] = {}


NO_SCENE = Scene()
