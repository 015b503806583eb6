"""Sends a sample notification to channels, to test their configuration."""

import time
from collections.abc import Sequence

from msgspec import Struct

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.notices import Notice
from holdfast.model.documents.parts import Sentence
from holdfast.model.signatures import Words
from holdfast.notify.config import ChannelConfig
from holdfast.notify.registry import MAKERS
from holdfast.notify.secrets import secret_words, without_secrets
from holdfast.notify.sender import Rejected, TryLater


class Tried(Struct, frozen=True, kw_only=True):
    """The result of sending a sample notification. `is_final`: a retry is useless. `why`: the error; empty if
    it was sent.
    """

    channel: str
    kind: str
    is_sent: bool
    took_s: float
    why: str = ""
    is_final: bool = False


def sample(page: str, at_s: float) -> Notice:
    """Returns a sample notification, whose text says that it is a sample.

    It is already resolved, so receivers close its alert at once.
    """
    return Notice(
        id=f"holdfast-sample/{int(at_s)}",
        version=1,
        event="job-done",
        severity="info",
        at_s=at_s,
        job="sample",
        title=Words(en="Holdfast: sample notification", zh="Holdfast：示例通知"),
        sentence=Sentence(
            text=Words(
                en="This channel works: notifications of Holdfast arrive here.",
                zh="通道正常：Holdfast 的通知会发送到这里。",
            )
        ),
        link=page,
        is_over=True,
    )


def tried(channels: Sequence[ChannelConfig], notice: Notice) -> list[Tried]:
    """Sends the notification to each channel, one after another, and returns the results. Raises
    ConfigRefused.
    """
    return [_tried(channel, notice) for channel in channels]


def _tried(channel: ChannelConfig, notice: Notice) -> Tried:
    """Sends the notification to one channel. Raises ConfigRefused."""
    sender = MAKERS[channel.kind](channel)
    sender.begin(())
    began_s = time.monotonic()
    key = f"{notice.id}/{notice.version}/{channel.name}"
    why, is_final = "", False
    try:
        sender.send(Send(channel=channel.name, notice=notice, reference="", count=1, key=key))
    except (Rejected, TryLater) as error:
        why = without_secrets(str(error), secret_words(channel.options))
        is_final = isinstance(error, Rejected)
    return Tried(
        channel=channel.name,
        kind=channel.kind,
        is_sent=not why,
        took_s=round(time.monotonic() - began_s, 3),
        why=why,
        is_final=is_final,
    )
