"""What people are told: one notice for each incident, kept up to date, and what has been delivered of it. No behaviour."""

from typing import Literal

from msgspec import Struct

from holdfast.model.documents.parts import Sentence
from holdfast.model.signatures import Words

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")

# Of an incident, in order: opened (or a hang), verdict, recovered or failed. The others are notices of their own.
NoticeEvent = Literal[
    "incident",
    "hang",
    "verdict",
    "recovered",
    "failed",
    "waiting-for-node",
    "no-spare",
    "isolation",
    "budget-low",
    "slowdown",
    "straggler",
    "loss",
    "checkpoint-old",
    "log-silence",
    "unsupervised",
    "job-started",
    "job-done",
]
NOTICE_EVENTS: tuple[NoticeEvent, ...] = NoticeEvent.__args__  # type: ignore[attr-defined]


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that people are told of, as it is now.

    `id`: the same for all versions; `version`: counts from 1. `event`: what made this version. `facts`: rows of name and
    text for a card, in order. `link`: the page of it, where there is one. `cause`: equal for equal incidents of a fleet.
    `is_milestone`: worth a message of its own where a receiver cannot update an earlier one. `is_over`: nothing follows.
    """

    id: str
    version: int
    event: NoticeEvent
    severity: Severity
    at_s: float
    job: str
    sentence: Sentence
    title: Words
    facts: tuple[tuple[Words, Words], ...] = ()
    incident: int | None = None
    category: str = ""
    cause: str = ""
    labels: dict[str, str] = {}
    link: str = ""
    is_milestone: bool = True
    is_over: bool = False


class Attempted(Struct, frozen=True, kw_only=True, tag="attempted"):
    """A delivery was begun; without a row after it, it is not known whether it arrived."""

    notice: str
    channel: str
    version: int
    at_s: float
    count: int


class Delivered(Struct, frozen=True, kw_only=True, tag="delivered"):
    """A version arrived. `reference`: by which the receiver updates or continues it; empty: it cannot."""

    notice: str
    channel: str
    version: int
    at_s: float
    reference: str = ""


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """A delivery failed. `retry_at_s` None: it is given up. `in_a_row`: failures of this channel, this one included."""

    notice: str
    channel: str
    version: int
    at_s: float
    count: int
    why: str
    retry_at_s: float | None = None
    in_a_row: int = 0


class Joined(Struct, frozen=True, kw_only=True, tag="joined"):
    """A notice was counted in another one, `into`, instead of being sent by itself."""

    notice: str
    channel: str
    version: int
    at_s: float
    into: str


AnyDelivery = Attempted | Delivered | Failed | Joined
