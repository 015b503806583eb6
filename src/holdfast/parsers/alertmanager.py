"""Reads the body of Alertmanager's webhook.

    {"version": "4", "status": "firing", "alerts": [{"status": "firing", "labels": {"alertname": "GpuXid", "Hostname":
     "node-1"}, "annotations": {"summary": "..."}, "startsAt": "2026-01-02T03:04:05.6Z", "endsAt": "0001-01-01T00:00:00Z",
     "fingerprint": "c0ffee"}]}

source: prometheus.io/docs/alerting/latest/configuration, webhook_config
"""

import msgspec
from msgspec import Struct

from holdfast.model.monitoring.alerts import ReceivedAlert
from holdfast.parsers.log_lines.stamps import stamp_at

BODY_BYTES_MAX = 4 << 20
ALERTS_MAX = 1_000
LABELS_MAX = 64
TEXT_MAX = 1_000


class WebhookUnreadable(ValueError):
    """Raised for a request body that is no webhook of Alertmanager; the message says why."""


class _Alert(Struct, kw_only=True):
    status: str
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: str = ""
    endsAt: str = ""
    fingerprint: str = ""


class _Webhook(Struct, kw_only=True):
    version: str
    alerts: list[_Alert]


def received(body: bytes) -> list[ReceivedAlert]:
    """Parses a webhook's body; returns the first ALERTS_MAX alerts. raises: WebhookUnreadable"""
    if len(body) > BODY_BYTES_MAX:
        raise WebhookUnreadable(f"the body has more than {BODY_BYTES_MAX >> 20} MiB")
    try:
        told = msgspec.json.decode(body, type=_Webhook)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WebhookUnreadable(f"this is no webhook of Alertmanager: {error}") from error
    return [_one(alert) for alert in told.alerts[:ALERTS_MAX]]


def _one(alert: _Alert) -> ReceivedAlert:
    return ReceivedAlert(
        status=alert.status,
        labels=_short(alert.labels),
        annotations=_short(alert.annotations),
        starts_s=_seconds(alert.startsAt),
        ends_s=_seconds(alert.endsAt),
        fingerprint=alert.fingerprint[:TEXT_MAX],
    )


def _short(texts: dict[str, str]) -> dict[str, str]:
    return {name[:TEXT_MAX]: text[:TEXT_MAX] for name, text in list(texts.items())[:LABELS_MAX]}


def _seconds(text: str) -> float | None:
    """Parses a time in seconds since the epoch; None for Go's zero time, the year 1."""
    stamp = stamp_at(text[:TEXT_MAX], 0)
    return stamp.stamp_s if stamp is not None else None
