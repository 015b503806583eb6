"""Reads the body of Alertmanager's webhook.

    {"version": "4", "status": "firing", "alerts": [{"status": "firing", "labels": {"alertname": "GpuXid", "Hostname":
     "node-1"}, "annotations": {"summary": "..."}, "startsAt": "2026-01-02T03:04:05.6Z", "endsAt": "0001-01-01T00:00:00Z",
     "fingerprint": "c0ffee"}]}

source: prometheus.io/docs/alerting/latest/configuration, webhook_config
"""

from holdfast.model.documents.actions import AlertWebhook, WebhookAlert
from holdfast.model.monitoring.alerts import ReceivedAlert
from holdfast.parsers.log_lines.stamps import stamp_at

ALERTS_MAX = 1_000
LABELS_MAX = 64
TEXT_MAX = 1_000


def received(webhook: AlertWebhook) -> list[ReceivedAlert]:
    """Converts a webhook request of Alertmanager to at most ALERTS_MAX alerts, with times in seconds and
    shortened texts.
    """
    return [_one(alert) for alert in webhook.alerts[:ALERTS_MAX]]


def _one(alert: WebhookAlert) -> ReceivedAlert:
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
