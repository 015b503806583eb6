"""Defines data types of a failure's diagnosis: evidence, culprits, verdict. No behaviour."""

from msgspec import Struct


class Culprit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A culprit: rank, worker, host or device that caused a failure.

    An unknown field is None, never a guess.
    """

    rank: int | None = None
    worker: int | None = None
    host: str | None = None
    device: str | None = None


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One piece of evidence for a verdict.

    `file`: relative to the job's folder; `offset`: byte offset of the line in it.

    `at_s`: on the job's clock.
    """

    text: str
    says: str = ""  # what it means, in one sentence
    file: str = ""
    line: int | None = None
    at_s: float | None = None
    signature: str = ""  # id of the signature that matched it
    offset: int | None = None


class Verdict(Struct, frozen=True, kw_only=True):
    """Why a job stopped. Categories, classes and actions are those of the taxonomy (docs/words.md).

    `raised`: the first exception, as "type at file.py:88: message", with # for each number of the message:
    failures with equal text occurred at the same place. Empty without an exception, or if it only reports
    another process's end.
    """

    category: str
    class_: str
    title: str  # one line: what, who
    confidence: float  # 0..1
    action: str = "unknown"
    advice: str = ""
    culprits: tuple[Culprit, ...] = ()
    first_error: Evidence | None = None
    evidence: tuple[Evidence, ...] = ()
    raised: str = ""
    title_zh: str = ""
    advice_zh: str = ""
    also: dict[str, float] = {}


UNKNOWN = Verdict(category="unknown", class_="unknown", title="nothing explains it", confidence=0.0)
