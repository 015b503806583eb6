"""Sends notifications to Slack, through an incoming webhook or as an app with a bot token.

A webhook (`url`) cannot update messages. An app (`token`, `channel`) updates its message in place, and also
posts each milestone in the message's thread, because Slack notifies no one of an update.

source: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks,
    https://docs.slack.dev/reference/methods/chat.postMessage, …/chat.update,
    https://docs.slack.dev/reference/block-kit/blocks (limits of blocks)
"""

import time
from collections.abc import Callable
from typing import Any

from holdfast.core.notify.outbox import Send
from holdfast.notify.answer_codes import SLACK, SLACK_GONE, judged
from holdfast.notify.config import ChannelConfig
from holdfast.notify.forms import Shown, Tongue, cut, shown
from holdfast.notify.http import Answer, good, post_json
from holdfast.notify.sender import Plain, Sender, Sent

BASE = "https://slack.com"
HEADER_MAX, SECTION_MAX, BUTTON_MAX, URL_MAX = 150, 2_900, 75, 3_000


class Webhook(Plain):
    """Sender to a Slack webhook."""

    def __init__(self, url: str, language: Tongue, clock: Callable[[], float] = time.time) -> None:
        self._url, self._language, self._clock = url, language, clock

    def send(self, send: Send) -> Sent:
        """Sends a message. Raises Rejected and TryLater."""
        body = message(shown(send.notice, self._language))
        answer = good(post_json(self._url, body, now_s=self._clock()))
        if answer.body.get("ok") is False:
            _judged(answer)
        return Sent()


class App(Plain):
    """Sender through a Slack app."""

    can_update = True

    def __init__(
        self, base: str, token: str, channel: str, language: Tongue, clock: Callable[[], float] = time.time
    ) -> None:
        self._base, self._token, self._channel = base, token, channel
        self._language, self._clock = language, clock

    def send(self, send: Send) -> Sent:
        """Sends or updates a message. Raises Rejected and TryLater."""
        one = shown(send.notice, self._language)
        channel, _, stamp = send.reference.partition(":")
        if stamp:
            answer = self._asked("chat.update", {"channel": channel, "ts": stamp, **message(one)})
            if answer.body.get("error") not in SLACK_GONE:
                _judged(answer)
                if send.notice.is_milestone:
                    reply = {"channel": channel, "thread_ts": stamp, "text": escaped(one.sentence)}
                    _judged(self._asked("chat.postMessage", reply))
                return Sent(reference=send.reference)
        body = _judged(self._asked("chat.postMessage", {"channel": self._channel, **message(one)})).body
        return Sent(reference=f"{body.get('channel', self._channel)}:{body.get('ts', '')}")

    def _asked(self, method: str, body: dict[str, Any]) -> Answer:
        """Calls a method of the Slack API. Raises Rejected and TryLater."""
        headers = {"Authorization": f"Bearer {self._token}"}
        return post_json(f"{self._base}/api/{method}", body, headers=headers, now_s=self._clock())


def _judged(answer: Answer) -> Answer:
    """Returns the response if it means success. Raises Rejected and TryLater."""
    return judged(answer, 0 if answer.body.get("ok") is True else answer.body.get("error"), "", SLACK)


def message(one: Shown) -> dict[str, Any]:
    """Returns the message of a notification as JSON. Its `text` is what a phone shows before the message is
    opened.
    """
    facts = "\n".join(f"*{escaped(name)}*{one.colon}{escaped(text)}" for name, text in one.facts)
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": cut(one.title, HEADER_MAX)}},
        _section(escaped(one.sentence)),
        *([_section(facts)] if facts else []),
    ]
    if 0 < len(one.link) <= URL_MAX:
        button = {"type": "plain_text", "text": cut(one.button, BUTTON_MAX)}
        blocks.append({"type": "actions", "elements": [{"type": "button", "text": button, "url": one.link}]})
    return {"text": escaped(f"{one.title}\n{one.sentence}"), "blocks": blocks}


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": cut(text, SECTION_MAX)}}


def escaped(text: str) -> str:
    """Escapes log text, so that it has no links and mentions no one.

    source: https://docs.slack.dev/messaging/formatting-message-text
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack(channel: ChannelConfig) -> Sender:
    """Creates the sender of a channel. Raises ConfigRefused."""
    if "token" not in channel.options:
        return Webhook(channel.text("url"), channel.language)
    base = channel.text("base_url", BASE).rstrip("/")
    return App(base, channel.text("token"), channel.text("channel"), channel.language)
