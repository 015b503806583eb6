"""Defines alerts that Alertmanager receives and sends. No behaviour."""

from msgspec import Struct


class Alert(Struct, frozen=True, kw_only=True):
    """One alert to send to Alertmanager. Its labels identify it and stay the same until it resolves.

    `ends_s`: when it resolved, or when it resolves unless it is sent again.
    """

    labels: dict[str, str]
    annotations: dict[str, str]
    starts_s: float
    ends_s: float
    url: str = ""


class ReceivedAlert(Struct, frozen=True, kw_only=True):
    """One alert received from Alertmanager's webhook. Times in seconds since the epoch; None if missing."""

    status: str  # firing, resolved
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_s: float | None
    ends_s: float | None
    fingerprint: str


class AlertEvidence(Struct, frozen=True, kw_only=True):
    """Evidence from a monitoring alert about a node of a job.

    `at_s`: since when the alert is in this state; None: unknown. `key`: equal for the same alert in the same
    state.
    """

    job: str
    node: str
    text: str
    at_s: float | None
    status: str
    key: str
