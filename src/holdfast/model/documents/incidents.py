"""Documents about one incident: verdict, evidence, what was done and why, and what people said of it."""

from msgspec import Struct

from holdfast.model.documents.jobs import IncidentRow
from holdfast.model.documents.parts import Cost, LinePlace, Sentence, Who
from holdfast.model.signatures import Words


class EvidenceRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing seen. `id`: to fetch it again ("3.12": incident 3, the 12th). `kind`: line, exit, stack, kernel, check, sample, ...

    `count`: how often; `before`, `after`: the lines around it, at most three each.
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
    """Ranks with the same stack, innermost frame first."""

    ranks: tuple[int, ...]
    frames: tuple[str, ...]
    waits_in: str = ""


class WaitEdge(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ranks that wait, for whom, and in what."""

    ranks: tuple[int, ...]
    awaits: tuple[int, ...]
    collective: str
    sequence: int | None = None
    group: str = ""


class RungRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A rung of the ladder that was chosen, or considered. `why`: also why it was not chosen; `says`: in both languages."""

    rung: str
    why: str
    says: Words | None = None
    at_s: float | None = None
    chosen: bool = True
    shadow: bool = False


class CheckRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    node: str
    check: str
    status: str
    text: str
    device: str = ""
    advice: str = ""


class Similar(Struct, frozen=True, kw_only=True):
    """An incident of the same cause in another job, or earlier in this one."""

    job: str
    incident: int
    at_s: float
    sentence: Sentence


class Correction(Struct, frozen=True, kw_only=True):
    """What a person said against the verdict; both are kept."""

    category: str
    text: str
    by: str
    at_s: float


class IncidentDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`evidence`: in order of time, the first error marked; `evidence_total`: also those that are left out here.

    `timeline`: seconds of each part between the finding and the first step after it, in order.
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
    similar: tuple[Similar, ...] = ()
    corrections: tuple[Correction, ...] = ()
    has_bundle: bool = False
    etag: str = ""
