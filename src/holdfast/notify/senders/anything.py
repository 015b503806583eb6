"""Sends notifications through the package Apprise, which supports SMS gateways, ntfy, Telegram and many
others.

Apprise reports neither why a delivery failed nor whether a retry helps, so every failure is retried. Messages
cannot be updated. Needs the extra `notify`.

source: https://appriseit.com/library/
"""

import importlib
import logging
from typing import Any

from holdfast.core.notify.outbox import Send
from holdfast.notify.config import ChannelConfig, ConfigRefused
from holdfast.notify.forms import Tongue, is_resolved, shown
from holdfast.notify.sender import Plain, Sent, TryLater

APPRISE = "apprise"  # imported on demand, because few receivers need it and it takes 0.1 s
EXTRA = "needs an optional dependency: pip install 'holdfast[notify]'"
KINDS = {"critical": "failure", "warning": "warning", "info": "info"}
WORDS_MAX = 300


class Anything(Plain):
    """Sender through Apprise."""

    def __init__(self, apprise: Any, receiver: Any, language: Tongue) -> None:
        """Creates the sender. `apprise`: the package. `receiver`: an Apprise object."""
        self._apprise, self._receiver, self._language = apprise, receiver, language

    def send(self, send: Send) -> Sent:
        """Sends a message. Raises TryLater."""
        notice = send.notice
        one = shown(notice, self._language)
        body = "\n".join([*one.lines, *([one.link] if one.link else [])])
        with self._apprise.LogCapture(level=logging.WARNING) as said:
            is_sent = self._receiver.notify(
                title=one.title,
                body=body,
                notify_type="success" if is_resolved(notice) else KINDS[notice.severity],
                body_format=self._apprise.NotifyFormat.TEXT,
            )
            words = " ".join(said.getvalue().split())
        if not is_sent:
            raise TryLater(f"Apprise could not send it: {words[-WORDS_MAX:] or 'no reason given'}")
        return Sent()


def anything(channel: ChannelConfig) -> Anything:
    """Creates the sender of a channel. Raises ConfigRefused."""
    addresses = channel.texts("url")
    try:
        apprise: Any = importlib.import_module(APPRISE)
    except ImportError as error:
        raise ConfigRefused(f"channel {channel.name} of kind {channel.kind} {EXTRA}") from error
    receiver = apprise.Apprise()
    for address in addresses:
        if not receiver.add(address):
            scheme = address.partition(":")[0]
            raise ConfigRefused(
                f"url of channel {channel.name}: Apprise does not support URLs that begin with {scheme[:20]}:"
            )
    return Anything(apprise, receiver, channel.language)
