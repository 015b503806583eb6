"""Sends notifications as documented JSON to any URL, signed with HMAC-SHA256.

    X-Holdfast-Event: verdict
    X-Holdfast-Delivery: llama/incident-3/2/ops          the same for every try: an idempotency key
    X-Holdfast-Timestamp: 1767280798
    X-Holdfast-Signature: sha256=HEX                     of "TIMESTAMP.BODY", with the channel's secret

The body is {"version": 1, "notice": …, "joined": […]}; the fields are those of
model.documents.notices.Notice.
"""

import hashlib
import hmac
import time
from collections.abc import Callable

import msgspec

from holdfast.core.notify.outbox import Send
from holdfast.notify.config import ChannelConfig
from holdfast.notify.http import good, post
from holdfast.notify.sender import Plain, Sent

VERSION = 1


class Webhook(Plain):
    """Sender to a URL. Sends every version of a notification, also those that are not milestones."""

    can_update = True

    def __init__(self, url: str, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._url, self._secret, self._clock = url, secret.encode(), clock

    def send(self, send: Send) -> Sent:
        """Sends a notification. Raises Rejected and TryLater."""
        body = msgspec.json.encode({"version": VERSION, "notice": send.notice, "joined": send.joined})
        now_s = self._clock()
        headers = {
            "Content-Type": "application/json",
            "X-Holdfast-Event": send.notice.event,
            "X-Holdfast-Delivery": send.key,
            "X-Holdfast-Timestamp": str(int(now_s)),
        }
        if self._secret:
            headers["X-Holdfast-Signature"] = "sha256=" + signature(self._secret, str(int(now_s)), body)
        good(post(self._url, body, headers=headers, now_s=now_s))
        return Sent(reference=send.notice.id)


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    return hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def webhook(channel: ChannelConfig) -> Webhook:
    """Creates the sender of a channel. Raises ConfigRefused."""
    return Webhook(channel.text("url"), channel.text("secret", ""))
