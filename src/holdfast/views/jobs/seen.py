"""Defines the facts about a job that are not in its journal: folder, current state, steps, files. No behaviour."""

from typing import Any

from msgspec import Struct

from holdfast.model.documents.incidents import EvidenceRow, StackGroup, WaitEdge
from holdfast.model.documents.parts import JobState
from holdfast.model.policy import Policy
from holdfast.observe.logs.step_file import StepFile


class Seen(Struct, frozen=True, kw_only=True):
    """Facts about a job from outside its journal.

    `id`: unique on the server. `facts`: the journal's entries about the start (docs/state-folder.md). `living`: ranks
    with running processes; None means unknown, or as in the journal. `is_being_ended`: the job has no supervisor and
    its processes are being ended. `files`: names and sizes in bytes of the current attempt's files, by worker.
    `warnings`: about data that is missing in the document.
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
    """The offset of a log line in its file, and the lines before and after it."""

    offset: int
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Scene(Struct, frozen=True, kw_only=True):
    """The contents of an incident's files: stacks, waiting ranks, kernel log.

    `surroundings`: the lines around each quoted line, by its file and text.
    """

    stacks: tuple[StackGroup, ...] = ()
    waits: tuple[WaitEdge, ...] = ()
    kernel: tuple[EvidenceRow, ...] = ()
    has_bundle: bool = False
    surroundings: dict[tuple[str, str], Surroundings] = {}


NO_SCENE = Scene()
