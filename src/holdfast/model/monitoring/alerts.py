"""Alerts as Alertmanager sends and takes them. No behaviour."""

from msgspec import Struct


class Alert(Struct, frozen=True, kw_only=True):
    """One alert to send. Its labels are what it is told from others by: they stay the same until it is resolved.

    `ends_s`: when it is resolved, or when it counts as resolved unless it is sent again.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_s: float
    ends_s: float
    url: str = ""


class ReceivedAlert(Struct, frozen=True, kw_only=True):
    """One alert of a webhook. Times in seconds since the epoch; None if not told."""

    status: str  # firing, resolved
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_s: float | None
    ends_s: float | None
    fingerprint: str


class AlertEvidence(Struct, frozen=True, kw_only=True):
    """What an alert says of a node that a job runs on. `key`: the same alert in the same state has the same one."""

    job: str
    node: str
    text: str
    at_s: float | None
    key: str
