"""Sends notifications to a Microsoft Teams workflow ("Post to a channel when a webhook request is received").

It sends adaptive cards, which have at most 28 KB and cannot be updated.

source: https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using,
    https://adaptivecards.io/explorer/AdaptiveCard.html
"""

import re
import time
from collections.abc import Callable
from typing import Any

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice
from holdfast.notify.config import ChannelConfig
from holdfast.notify.forms import Tongue, cut, is_resolved, shown
from holdfast.notify.http import good, post_json
from holdfast.notify.sender import Plain, Rejected, Sent, TryLater

# An old connector answers 200 and says in the text that Teams did not take it.
NOT_DELIVERED = re.compile(r"Webhook message delivery failed.*?(?:HTTP error (\d+)|$)")
TEXT_MAX, NAME_MAX = 1_500, 100  # characters of one text: seven of them are less than a card may have
COLOURS = {"critical": "attention", "warning": "warning", "info": "default"}
MARKUP = re.compile(r"([\\*_\[\]()#])")


class Teams(Plain):
    """Sender to Microsoft Teams."""

    def __init__(self, url: str, language: Tongue, clock: Callable[[], float] = time.time) -> None:
        self._url, self._language, self._clock = url, language, clock

    def send(self, send: Send) -> Sent:
        """Sends a card. Raises Rejected and TryLater."""
        answer = good(post_json(self._url, message(send.notice, self._language), now_s=self._clock()))
        failed = NOT_DELIVERED.search(answer.text)
        if failed is not None:
            why = f"the receiver returned: {answer.text[:200]}"
            raise TryLater(why) if failed[1] in ("429", "500", "502", "503", "504") else Rejected(why)
        return Sent()


def message(notice: Notice, language: Tongue) -> dict[str, Any]:
    one = shown(notice, language)
    colour = "good" if is_resolved(notice) else COLOURS[notice.severity]
    title = {"size": "medium", "weight": "bolder", "color": colour}
    body = [_text(one.title, **title), _text(one.sentence)]
    if one.facts:
        facts = [{"title": cut(name, NAME_MAX), "value": escaped(text)} for name, text in one.facts]
        body.append({"type": "FactSet", "facts": facts})
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    }
    if one.link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": one.button, "url": one.link}]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "attachments": [attachment]}


def _text(text: str, **more: str) -> dict[str, Any]:
    return {"type": "TextBlock", "text": escaped(text), "wrap": True, **more}


def escaped(text: str) -> str:
    """Escapes markup in log text."""
    return MARKUP.sub(r"\\\1", cut(text, TEXT_MAX))


def teams(channel: ChannelConfig) -> Teams:
    """Creates the sender of a channel. Raises ConfigRefused."""
    return Teams(channel.text("url"), channel.language)
