"""Sends notifications to a Discord webhook as an embed, which is updated in place.

source: https://discord.com/developers/docs/resources/webhook#execute-webhook, #edit-webhook-message,
    https://discord.com/developers/docs/resources/message#embed-object-embed-limits
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice
from holdfast.notify.config import ChannelConfig
from holdfast.notify.forms import Tongue, cut, is_resolved, shown
from holdfast.notify.http import good, post_json
from holdfast.notify.sender import Plain, Sent, TryLater

TITLE_MAX, TEXT_MAX, NAME_MAX, VALUE_MAX, URL_MAX = 256, 4_000, 256, 1_000, 2_000
COLOURS = {"critical": 0xD92D20, "warning": 0xF79009, "info": 0x667085}
GREEN = 0x12B76A
UNKNOWN_MESSAGE = 10008  # it was deleted


class Discord(Plain):
    """Sender to a Discord webhook."""

    can_update = True

    def __init__(self, url: str, language: Tongue, clock: Callable[[], float] = time.time) -> None:
        self._url, _, self._query = url.partition("?")
        self._language, self._clock = language, clock

    def send(self, send: Send) -> Sent:
        """Sends or updates a message. Raises Rejected and TryLater."""
        now_s = self._clock()
        body = message(send.notice, self._language)
        if send.reference:
            place = f"{self._url}/messages/{quote(send.reference)}" + (
                f"?{self._query}" if self._query else ""
            )
            answer = post_json(place, body, method="PATCH", now_s=now_s)
            if answer.body.get("code") != UNKNOWN_MESSAGE:
                good(answer)
                return Sent(reference=send.reference)
        query = "&".join(filter(None, (self._query, "wait=true")))
        answer = good(post_json(f"{self._url}?{query}", body, now_s=now_s))
        if "id" not in answer.body:
            raise TryLater(f"the response is not a message: {answer.text[:100]}")
        return Sent(reference=str(answer.body["id"]))


def message(notice: Notice, language: Tongue) -> dict[str, Any]:
    """Returns the message of a notification as JSON. It mentions no user, whatever the log text contains."""
    one = shown(notice, language)
    embed: dict[str, Any] = {
        "title": cut(one.title, TITLE_MAX),
        "description": cut(one.sentence, TEXT_MAX),
        "color": GREEN if is_resolved(notice) else COLOURS[notice.severity],
        "timestamp": datetime.fromtimestamp(notice.at_s, UTC).isoformat(timespec="seconds"),
        "fields": [
            {"name": cut(name, NAME_MAX), "value": cut(text, VALUE_MAX), "inline": False}
            for name, text in one.facts
            if text
        ],
    }
    if 0 < len(one.link) <= URL_MAX:
        embed["url"] = one.link
    return {"embeds": [embed], "allowed_mentions": {"parse": []}}


def discord(channel: ChannelConfig) -> Discord:
    """Creates the sender of a channel. Raises ConfigRefused."""
    return Discord(channel.text("url"), channel.language)
