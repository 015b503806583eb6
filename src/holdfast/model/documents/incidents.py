"""Defines the documents of one incident: verdict, evidence, actions with reasons, corrections."""

from msgspec import Struct

from holdfast.model.documents.jobs import IncidentRow
from holdfast.model.documents.parts import Cost, LinePlace, Sentence, Who
from holdfast.model.signatures import Words


class EvidenceRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of evidence of an incident.

    `id`: unique in the job ("3.12": incident 3, piece 12). `kind`: line, exit, stack, kernel, check, sample,
    ... `count`: number of occurrences. `before`, `after`: surrounding lines, at most three each.
    """

    id: str
    text: str
    kind: str = "line"
    says: Words | None = None
    at_s: float | None = None
    who: Who | None = None
    place: LinePlace | None = None
    signature: str = ""
    count: int = 1
    first_error: bool = False
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class StackGroup(Struct, frozen=True, kw_only=True):
    """Ranks with the same Python stack. `frames`: the innermost first."""

    ranks: tuple[int, ...]
    frames: tuple[str, ...]
    waits_in: str = ""


class WaitEdge(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An edge of a wait graph: ranks that wait, the ranks they wait for, and the collective operation."""

    ranks: tuple[int, ...]
    awaits: tuple[int, ...]
    collective: str
    sequence: int | None = None
    group: str = ""


class RungRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action of the recovery ladder (rung) that was chosen or considered for an incident.

    `why`: why it was chosen or rejected. `says`: the same in English and Chinese.
    """

    rung: str
    why: str
    says: Words | None = None
    at_s: float | None = None
    chosen: bool = True
    shadow: bool = False


class CheckRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a node check in an incident."""

    node: str
    check: str
    status: str
    text: str
    device: str = ""
    advice: str = ""


class IncidentLink(Struct, frozen=True, kw_only=True):
    """An incident of any job, with its number there and its sentence."""

    job: str
    incident: int
    at_s: float
    sentence: Sentence


class Correction(Struct, frozen=True, kw_only=True):
    """A user's correction of an incident's verdict. Both are kept."""

    category: str
    text: str
    by: str
    at_s: float


class IncidentDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One incident with its verdict, evidence and recovery.

    `evidence`: by time, with the first error marked. `evidence_total`: includes evidence omitted here.
    `timeline`: seconds of each part from detection to the first step after recovery, in order.
    `resume`: how the losses of repeated steps compare with those before the fault; `resume_verdict`: exact, noise or
    different. `checkpoint`: whether it was as saved, or restored from memory; only with ram-checkpoints.
    """

    job: str
    row: IncidentRow
    title: Words
    explanation: Words | None = None
    advice: Words | None = None
    action: str = ""
    problem: str = ""
    evidence: tuple[EvidenceRow, ...] = ()
    evidence_total: int = 0
    stacks: tuple[StackGroup, ...] = ()
    waits: tuple[WaitEdge, ...] = ()
    kernel: tuple[EvidenceRow, ...] = ()
    checks: tuple[CheckRow, ...] = ()
    rungs: tuple[RungRow, ...] = ()
    also: dict[str, float] = {}
    timeline: tuple[tuple[str, float], ...] = ()
    cost: Cost | None = None
    step_before: int | None = None
    step_resumed: int | None = None
    resume: Words | None = None
    resume_verdict: str = ""
    checkpoint: Words | None = None
    similar: tuple[IncidentLink, ...] = ()
    corrections: tuple[Correction, ...] = ()
    has_bundle: bool = False
    etag: str = ""
