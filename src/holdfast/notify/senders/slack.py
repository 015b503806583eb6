"""Sends to Slack: by an incoming webhook, or as an app with a bot token.

A webhook (`url`) cannot change what it has sent. An app (`token`, `channel`) changes its message in place, and tells each
milestone in the message's thread too, since nobody is told of a change.

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
    def __init__(self, url: str, language: Tongue, clock: Callable[[], float] = time.time) -> None:
        self._url, self._language, self._clock = url, language, clock

    def send(self, send: Send) -> Sent:
        """raises: Rejected, TryLater"""
        body = message(shown(send.notice, self._language))
        answer = good(post_json(self._url, body, now_s=self._clock()))
        if answer.body.get("ok") is False:
            _judged(answer)
        return Sent()


class App(Plain):
    can_update = True

    def __init__(
        self, base: str, token: str, channel: str, language: Tongue, clock: Callable[[], float] = time.time
    ) -> None:
        self._base, self._token, self._channel = base, token, channel
        self._language, self._clock = language, clock

    def send(self, send: Send) -> Sent:
        """raises: Rejected, TryLater"""
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
        """raises: Rejected, TryLater"""
        headers = {"Authorization": f"Bearer {self._token}"}
        return post_json(f"{self._base}/api/{method}", body, headers=headers, now_s=self._clock())


def _judged(answer: Answer) -> Answer:
    """raises: Rejected, TryLater"""
    return judged(answer, 0 if answer.body.get("ok") is True else answer.body.get("error"), "", SLACK)


def message(one: Shown) -> dict[str, Any]:
    """`text` is what a phone shows before the message is opened."""
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
    """Text of a log is no link and mentions nobody. source: https://docs.slack.dev/messaging/formatting-message-text"""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack(channel: ChannelConfig) -> Sender:
    """raises: ConfigRefused"""
    if "token" not in channel.options:
        return Webhook(channel.text("url"), channel.language)
    base = channel.text("base_url", BASE).rstrip("/")
    return App(base, channel.text("token"), channel.text("channel"), channel.language)
