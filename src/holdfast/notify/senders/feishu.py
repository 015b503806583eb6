"""Sends notifications to Feishu and Lark as cards (card JSON 2.0), through a custom bot of a group or an app.

A custom bot (`url`, `secret`) cannot update messages: each milestone is a card of its own. An app (`app_id`,
`app_secret`, `chat`) updates its card in place for 14 days, and has an idempotency key (`uuid`, for one
hour).

Log text is in `plain_text` elements only, so that nothing in it is read as markup or as a mention.

source: https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot (custom bot, signature),
    https://open.feishu.cn/document/uAjLw4CM/ukzMukzMukzM/feishu-cards/card-json-v2-structure (card),
    https://open.feishu.cn/document/uAjLw4CM/ukzMukzMukzM/feishu-cards/configure-multi-language-content (languages),
    https://open.feishu.cn/document/server-docs/authentication-management/access-token/tenant_access_token_internal,
    https://open.feishu.cn/document/server-docs/im-v1/message/create, …/im-v1/message-card/patch
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice
from holdfast.model.signatures import Words
from holdfast.notify.answer_codes import FEISHU, FEISHU_GONE, judged
from holdfast.notify.config import ChannelConfig, ConfigRefused
from holdfast.notify.forms import OPEN, Tongue, in_language, is_resolved
from holdfast.notify.http import Answer, post_json
from holdfast.notify.sender import Plain, Sender, Sent, TryLater

BASES = {"feishu": "https://open.feishu.cn", "lark": "https://open.larksuite.com"}
CHAT_TYPES = ("chat_id", "open_id", "user_id", "union_id", "email")
UUID_MAX = 50
EARLY_S = 300.0  # a token is renewed so long before it runs out
TOKEN_CODES = frozenset({"99991661", "99991663", "99991664"})
COLOURS = {"critical": "red", "warning": "orange", "info": "blue"}


class CustomBot(Plain):
    """Sender to a custom bot of a Feishu group."""

    def __init__(
        self, url: str, secret: str, language: Tongue, clock: Callable[[], float] = time.time
    ) -> None:
        self._url, self._secret, self._language, self._clock = url, secret, language, clock

    def send(self, send: Send) -> Sent:
        """Sends a card. Raises Rejected and TryLater."""
        now_s = self._clock()
        body: dict[str, Any] = {"msg_type": "interactive", "card": card(send.notice, self._language)}
        if self._secret:
            stamp = str(int(now_s))
            body = {"timestamp": stamp, "sign": signature(self._secret, stamp), **body}
        _judged(post_json(self._url, body, now_s=now_s))
        return Sent()


class App(Plain):
    """Sender through a Feishu app."""

    can_update = True

    def __init__(
        self,
        base: str,
        credentials: tuple[str, str],
        chat: tuple[str, str],
        language: Tongue,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Creates the sender. `credentials`: id and secret of the app.

        `chat`: the type of the receiver's id, and the id.
        """
        self._base, self._credentials, self._chat = base, credentials, chat
        self._language, self._clock = language, clock
        self._token, self._token_until_s = "", 0.0

    def send(self, send: Send) -> Sent:
        """Sends or updates a card. Raises Rejected and TryLater."""
        content = json.dumps(card(send.notice, self._language), ensure_ascii=False)
        if send.reference:
            answer = self._asked("PATCH", f"/im/v1/messages/{quote(send.reference)}", {"content": content})
            if str(answer.body.get("code")) not in FEISHU_GONE:
                _judged(answer)
                return Sent(reference=send.reference)
        kind, receiver = self._chat
        answer = self._asked(
            "POST",
            f"/im/v1/messages?receive_id_type={kind}",
            {
                "receive_id": receiver,
                "msg_type": "interactive",
                "content": content,
                "uuid": hashlib.sha256(send.key.encode()).hexdigest()[:UUID_MAX],
            },
        )
        data = _judged(answer).body.get("data")
        return Sent(reference=str(data.get("message_id", "")) if isinstance(data, dict) else "")

    def _asked(self, method: str, path: str, body: dict[str, str]) -> Answer:
        """Calls the Feishu API. A revoked token is dropped, so that the next try requests a new one.

        Raises Rejected and TryLater.
        """
        headers = {"Authorization": f"Bearer {self._valid_token()}"}
        url = f"{self._base}/open-apis{path}"
        answer = post_json(url, body, headers=headers, method=method, now_s=self._clock())
        if str(answer.body.get("code")) in TOKEN_CODES:
            self._token = ""
        return answer

    def _valid_token(self) -> str:
        """Returns a valid access token, requesting a new one if needed. Raises Rejected and TryLater."""
        now_s = self._clock()
        if self._token and now_s < self._token_until_s:
            return self._token
        app_id, app_secret = self._credentials
        url = f"{self._base}/open-apis/auth/v3/tenant_access_token/internal"
        answer = _judged(post_json(url, {"app_id": app_id, "app_secret": app_secret}, now_s=now_s))
        token, lives_s = answer.body.get("tenant_access_token"), answer.body.get("expire")
        if not isinstance(token, str) or not isinstance(lives_s, int | float):
            raise TryLater(f"the response contains no token: {answer.text[:100]}")
        self._token, self._token_until_s = token, now_s + max(0.0, lives_s - EARLY_S)
        return token


def signature(secret: str, timestamp: str) -> str:
    """Returns the signature of a request: HMAC of an empty text with timestamp, line feed and secret as the
    key.

    This is what the sample code of the source does.
    """
    key = f"{timestamp}\n{secret}".encode()
    return base64.b64encode(hmac.new(key, b"", hashlib.sha256).digest()).decode()


def card(notice: Notice, language: Tongue) -> dict[str, Any]:
    """Returns the card of a notification as JSON.

    It has both languages, of which the client shows the user's own.
    """
    elements = [_line(notice.sentence.text, language)]
    colon = Words(en=": ", zh="：")
    elements += [
        _line(Words(en=name.en + colon.en + text.en, zh=name.zh + colon.zh + text.zh), language)
        for name, text in notice.facts
    ]
    if notice.link:
        elements.append(
            {
                "tag": "button",
                "type": "primary",
                "text": _plain(OPEN, language),
                "behaviors": [{"type": "open_url", "default_url": notice.link}],
            }
        )
    colour = "green" if is_resolved(notice) else COLOURS[notice.severity]
    return {
        "schema": "2.0",
        "config": {
            "update_multi": True,
            "summary": {"content": in_language(notice.title, _first(language))},
        },
        "header": {"title": _plain(notice.title, language), "template": colour},
        "body": {"elements": elements},
    }


def _line(words: Words, language: Tongue) -> dict[str, Any]:
    return {"tag": "div", "text": _plain(words, language)}


def _plain(words: Words, language: Tongue) -> dict[str, Any]:
    found: dict[str, Any] = {"tag": "plain_text", "content": in_language(words, _first(language))}
    if language == "both":
        found["i18n_content"] = {"en_us": words.en, "zh_cn": words.zh}
    return found


def _first(language: Tongue) -> Tongue:
    return "en" if language == "both" else language


def _judged(answer: Answer) -> Answer:
    """Returns the response if it means success. Raises Rejected and TryLater."""
    body = answer.body
    return judged(answer, body.get("code", body.get("StatusCode")), body.get("msg", ""), FEISHU)


def feishu(channel: ChannelConfig) -> Sender:
    """Creates the sender of a channel. Raises ConfigRefused."""
    if "app_id" not in channel.options:
        return CustomBot(channel.text("url"), channel.text("secret", ""), channel.language)
    chat_type = channel.text("chat_type", "chat_id")
    if chat_type not in CHAT_TYPES:
        raise ConfigRefused(f"chat_type of channel {channel.name} must be one of {', '.join(CHAT_TYPES)}")
    return App(
        channel.text("base_url", BASES[channel.kind]).rstrip("/"),
        (channel.text("app_id"), channel.text("app_secret")),
        (chat_type, channel.text("chat")),
        channel.language,
    )
