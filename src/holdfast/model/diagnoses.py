"""Defines the result of a diagnosis of logs, in English and Chinese; JSON and report are made of it.

No behaviour.
"""

from msgspec import Struct

from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit


class FirstError(Struct, frozen=True, kw_only=True):
    """The first error: the log line of which all other errors are consequences.

    `file`: name of its Source; `line` counts from 1. `at_s`: seconds since the epoch; None if unknown.
    `before`, `after`: surrounding lines, in order, at most three each. `verbatim`: the line with its colours,
    if any. `frame`: the user's own line of code that caused it. `source`, `offset`: its position in the
    sources of the Search.
    """

    file: str
    line: int | None
    text: str
    at_s: float | None = None
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    frame: str = ""
    verbatim: str = ""
    source: int | None = None
    offset: int = 0


class Fact(Struct, frozen=True, kw_only=True):
    """One observation in the logs and what it means.

    `count`: number of occurrences; `ranks`: the ranks that logged it, if known.
    """

    file: str
    line: int | None
    text: str
    says: Words
    signature: str = ""
    at_s: float | None = None
    count: int = 1
    ranks: tuple[int, ...] = ()


class Other(Struct, frozen=True, kw_only=True):
    """An alternative cause of a failure. `title`: None if only the category is known."""

    category: str
    confidence: float
    title: Words | None = None


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Why a job stopped, or that nothing was wrong ("none"), or that the cause is unknown ("unknown").

    `confidence`: 0..1, the share of correct verdicts among those with this confidence. `action`: of the
    taxonomy. `culprits`: most likely first; `culprits_left_out`: number of further ones. `evidence`: most
    important first. `decided_by`: the source that decided about a device fault; `disagree`: what contradicts
    the verdict. `not_found`: missing logs.
    """

    category: str
    class_: str
    confidence: float
    title: Words
    explanation: Words
    advice: Words
    action: str = "unknown"
    culprits: tuple[Culprit, ...] = ()
    culprits_left_out: int = 0
    first_error: FirstError | None = None
    evidence: tuple[Fact, ...] = ()
    also: tuple[Other, ...] = ()
    decided_by: Words | None = None
    disagree: tuple[Words, ...] = ()
    notes: tuple[Words, ...] = ()
    not_found: tuple[Words, ...] = ()
