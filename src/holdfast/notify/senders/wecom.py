"""Sends notifications to a robot of a WeCom group as markdown.

The robot cannot update messages, and accepts 20 messages a minute.

source: https://developer.work.weixin.qq.com/document/path/91770
"""

import re
import time
from collections.abc import Callable

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice
from holdfast.notify.answer_codes import WECOM, judged
from holdfast.notify.config import ChannelConfig
from holdfast.notify.forms import Tongue, cut_bytes, is_resolved, shown
from holdfast.notify.http import post_json
from holdfast.notify.sender import Plain, Sent

BYTES_MAX = 4_096
LINK_BYTES_MAX = 1_024
MARKUP = re.compile(r"[\[\]`*]")
COLOURS = {"critical": "warning", "warning": "warning", "info": "comment"}


class WeCom(Plain):
    """Sender to a WeCom robot."""

    def __init__(self, url: str, language: Tongue, clock: Callable[[], float] = time.time) -> None:
        self._url, self._language, self._clock = url, language, clock

    def send(self, send: Send) -> Sent:
        """Sends a message. Raises Rejected and TryLater."""
        body = {"msgtype": "markdown", "markdown": {"content": content(send.notice, self._language)}}
        answer = post_json(self._url, body, now_s=self._clock())
        judged(answer, answer.body.get("errcode"), answer.body.get("errmsg", ""), WECOM)
        return Sent()


def content(notice: Notice, language: Tongue) -> str:
    one = shown(notice, language)
    colour = "info" if is_resolved(notice) else COLOURS[notice.severity]  # info is green
    lines = [f'### <font color="{colour}">{escaped(one.title)}</font>', escaped(one.sentence)]
    lines += [f"> {escaped(name)}{one.colon}{escaped(text)}" for name, text in one.facts]
    link = f"\n[{one.button}]({one.link})" if 0 < len(one.link.encode()) <= LINK_BYTES_MAX else ""
    return cut_bytes("\n".join(lines), BYTES_MAX - len(link.encode())) + link


def escaped(text: str) -> str:
    """Removes or replaces markup in log text, because WeCom has no way to escape it."""
    return MARKUP.sub("", text.replace("<", "‹").replace(">", "›")).replace("\n", "\n> ")


def wecom(channel: ChannelConfig) -> WeCom:
    """Creates the sender of a channel. Raises ConfigRefused."""
    return WeCom(channel.text("url"), channel.language)
