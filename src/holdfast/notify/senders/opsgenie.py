"""Sends notifications to Opsgenie or Jira Service Management as alerts, which a recovery closes.

All requests about one notification have the same `alias`, so sending it twice does not duplicate the alert.
For EU accounts and Jira Service Management set `url`: https://api.eu.opsgenie.com,
https://api.atlassian.com/jsm/ops/integration.

source: https://docs.opsgenie.com/docs/alert-api
"""

import hashlib
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from holdfast.core.notify.outbox import Send
from holdfast.notify.config import ChannelConfig
from holdfast.notify.forms import Tongue, cut, is_resolved, shown
from holdfast.notify.http import good, post_json
from holdfast.notify.sender import Plain, Sent

URL = "https://api.opsgenie.com"
MESSAGE_MAX, DESCRIPTION_MAX, ALIAS_MAX, VALUE_MAX, TAG_MAX = 130, 15_000, 250, 1_000, 50
PRIORITIES = {"critical": "P1", "warning": "P3", "info": "P5"}


class Opsgenie(Plain):
    """Sender to Opsgenie."""

    can_update = True

    def __init__(self, url: str, key: str, language: Tongue, clock: Callable[[], float] = time.time) -> None:
        self._url, self._key, self._language, self._clock = url, key, language, clock

    def send(self, send: Send) -> Sent:
        """Creates, updates or closes an alert. Raises Rejected and TryLater."""
        notice, now_s = send.notice, self._clock()
        mark = alias(notice.id)
        one = shown(notice, self._language)
        headers = {"Authorization": f"GenieKey {self._key}"}
        if is_resolved(notice):
            place = f"{self._url}/v2/alerts/{quote(mark, safe='')}/close?identifierType=alias"
            note: dict[str, Any] = {"source": "Holdfast", "note": one.sentence}
            good(post_json(place, note, headers=headers, now_s=now_s))
            return Sent(reference=mark)
        alert = {
            "message": cut(one.title, MESSAGE_MAX),
            "alias": mark,
            "description": cut("\n".join([*one.lines, one.link]).rstrip(), DESCRIPTION_MAX),
            "priority": PRIORITIES[notice.severity],
            "source": "Holdfast",
            "entity": notice.job,
            "tags": [cut(tag, TAG_MAX) for tag in ("holdfast", notice.event, notice.category) if tag],
            "details": {name: cut(text, VALUE_MAX) for name, text in one.facts},
        }
        good(post_json(f"{self._url}/v2/alerts", alert, headers=headers, now_s=now_s))
        return Sent(reference=mark)


def alias(notice: str) -> str:
    return notice if len(notice) <= ALIAS_MAX else hashlib.sha256(notice.encode()).hexdigest()


def opsgenie(channel: ChannelConfig) -> Opsgenie:
    """Creates the sender of a channel. Raises ConfigRefused."""
    return Opsgenie(channel.text("url", URL).rstrip("/"), channel.text("key"), channel.language)
