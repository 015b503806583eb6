"""Sends notifications to a custom robot of a DingTalk group: a card with a button, or markdown if there is no
page.

The robot cannot update messages, and accepts 20 messages a minute.

source: https://open.dingtalk.com/document/orgapp/custom-robot-access,
    https://open.dingtalk.com/document/orgapp/customize-robot-security-settings (signature)
"""

import base64
import hashlib
import hmac
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_plus

from holdfast.core.notify.outbox import Send
from holdfast.notify.answer_codes import DINGTALK, judged
from holdfast.notify.config import ChannelConfig
from holdfast.notify.forms import Shown, Tongue, cut, shown
from holdfast.notify.http import post_json
from holdfast.notify.sender import Plain, Sent

TITLE_MAX, TEXT_MAX = 60, 4_900
MARKUP = re.compile(r"([\\`*_{}\[\]()#+!|>~-])")


class DingTalk(Plain):
    """Sender to a DingTalk robot."""

    def __init__(
        self, url: str, secret: str, language: Tongue, clock: Callable[[], float] = time.time
    ) -> None:
        self._url, self._secret, self._language, self._clock = url, secret, language, clock

    def send(self, send: Send) -> Sent:
        """Sends a message. Raises Rejected and TryLater."""
        now_s = self._clock()
        url = self._url
        if self._secret:
            stamp = str(round(now_s * 1000))
            url += ("&" if "?" in url else "?") + f"timestamp={stamp}&sign={signature(self._secret, stamp)}"
        answer = post_json(url, message(shown(send.notice, self._language)), now_s=now_s)
        judged(answer, answer.body.get("errcode"), answer.body.get("errmsg", ""), DINGTALK)
        return Sent()


def signature(secret: str, timestamp_ms: str) -> str:
    digest = hmac.new(secret.encode(), f"{timestamp_ms}\n{secret}".encode(), hashlib.sha256).digest()
    return quote_plus(base64.b64encode(digest))


def message(one: Shown) -> dict[str, Any]:
    lines = [f"### {escaped(one.title)}", escaped(one.sentence)]
    lines += [f"- **{escaped(name)}**{one.colon}{escaped(text)}" for name, text in one.facts]
    title, text = cut(one.title, TITLE_MAX), cut("\n\n".join(lines), TEXT_MAX)
    if not one.link:
        return {"msgtype": "markdown", "markdown": {"title": title, "text": text}}
    return {
        "msgtype": "actionCard",
        "actionCard": {"title": title, "text": text, "singleTitle": one.button, "singleURL": one.link},
    }


def escaped(text: str) -> str:
    """Escapes log text, so that it has no markup and mentions no one."""
    return MARKUP.sub(r"\\\1", text.replace("<", "‹").replace("@", "@\u200b"))


def dingtalk(channel: ChannelConfig) -> DingTalk:
    """Creates the sender of a channel. Raises ConfigRefused."""
    return DingTalk(channel.text("url"), channel.text("secret", ""), channel.language)
