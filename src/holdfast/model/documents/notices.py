"""Defines notices: one per incident, updated in place, with the state of its deliveries. No behaviour."""

from typing import Literal

from msgspec import Struct

from holdfast.model.documents.parts import Sentence
from holdfast.model.signatures import Words

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")

# Events of an incident, in order: opened (or a hang), verdict, recovered or failed. Others are separate
# notices.
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
    """One version of a notification on a job or incident.

    `id`: equal for all versions. `version`: counts from 1. `event`: the reason for this version. `facts`:
    rows of name and text for a card. `link`: its page, if any. `cause`: equal for equal incidents of a fleet.
    `is_milestone`: needs a separate message if a receiver cannot update earlier ones. `is_over`: the last
    version.
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
    """Row of the delivery log: a delivery has started.

    Without a later row, it is unknown whether it arrived.
    """

    notice: str
    channel: str
    version: int
    at_s: float
    count: int


class Delivered(Struct, frozen=True, kw_only=True, tag="delivered"):
    """Row of the delivery log: a version was delivered.

    `reference`: the receiver's id of the message; empty if not supported.
    """

    notice: str
    channel: str
    version: int
    at_s: float
    reference: str = ""


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """Row of the delivery log: a delivery failed.

    `retry_at_s`: None for no retry. `in_a_row`: consecutive failures of this channel, including this one.
    """

    notice: str
    channel: str
    version: int
    at_s: float
    count: int
    why: str
    retry_at_s: float | None = None
    in_a_row: int = 0


class Joined(Struct, frozen=True, kw_only=True, tag="joined"):
    """Row of the delivery log: a notification was not sent by itself, but merged into another one, `into`."""

    notice: str
    channel: str
    version: int
    at_s: float
    into: str


AnyDelivery = Attempted | Delivered | Failed | Joined
