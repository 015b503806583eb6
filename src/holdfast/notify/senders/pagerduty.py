"""Sends notifications to PagerDuty (Events API v2): an incident triggers an alert, which its recovery
resolves.

All events of one notification have the same `dedup_key`, so sending it twice does not duplicate the alert.

source: https://developer.pagerduty.com/docs/send-alert-event
"""

import hashlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice
from holdfast.notify.config import ChannelConfig
from holdfast.notify.forms import Tongue, cut, is_resolved, shown
from holdfast.notify.http import good, post_json
from holdfast.notify.sender import Plain, Sent

URL = "https://events.pagerduty.com/v2/enqueue"
KEY_MAX, SUMMARY_MAX = 255, 1_024


class PagerDuty(Plain):
    """Sender to PagerDuty."""

    can_update = True

    def __init__(self, url: str, key: str, language: Tongue, clock: Callable[[], float] = time.time) -> None:
        self._url, self._key, self._language, self._clock = url, key, language, clock

    def send(self, send: Send) -> Sent:
        """Triggers or resolves an alert. Raises Rejected and TryLater."""
        mark = dedup_key(send.notice.id)
        if is_resolved(send.notice):
            event: dict[str, Any] = {"routing_key": self._key, "event_action": "resolve", "dedup_key": mark}
        else:
            event = self._trigger(send.notice, mark)
        good(post_json(self._url, event, now_s=self._clock()))
        return Sent(reference=mark)

    def _trigger(self, notice: Notice, mark: str) -> dict[str, Any]:
        one = shown(notice, self._language)
        event: dict[str, Any] = {
            "routing_key": self._key,
            "event_action": "trigger",
            "dedup_key": mark,
            "client": "Holdfast",
            "payload": {
                "summary": cut(f"{one.title}: {one.sentence}", SUMMARY_MAX),
                "source": notice.job,
                "severity": notice.severity,
                "timestamp": datetime.fromtimestamp(notice.at_s, UTC).isoformat(timespec="milliseconds"),
                "component": notice.job,
                "class": notice.category or notice.event,
                "custom_details": dict(one.facts),
            },
        }
        if one.link:
            event["client_url"] = one.link
            event["links"] = [{"href": one.link, "text": one.button}]
        return event


def dedup_key(notice: str) -> str:
    return notice if len(notice) <= KEY_MAX else hashlib.sha256(notice.encode()).hexdigest()


def pagerduty(channel: ChannelConfig) -> PagerDuty:
    """Creates the sender of a channel. Raises ConfigRefused."""
    return PagerDuty(channel.text("url", URL), channel.text("key"), channel.language)
