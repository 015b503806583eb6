"""Makes the sender of each channel by its kind. An optional package that is missing is a refused configuration."""

from collections.abc import Callable, Mapping

from holdfast.notify.config import ChannelConfig, ConfigRefused, NotifyConfig
from holdfast.notify.sender import Sender
from holdfast.notify.senders.webhook import webhook

MAKERS: Mapping[str, Callable[[ChannelConfig], Sender]] = {
    "webhook": webhook,
}


def senders_of(config: NotifyConfig) -> dict[str, Sender]:
    """By the name of the channel. raises: ConfigRefused"""
    return {channel.name: sender_of(channel) for channel in config.channels}


def sender_of(channel: ChannelConfig) -> Sender:
    """raises: ConfigRefused"""
    make = MAKERS.get(channel.kind)
    if make is None:
        raise ConfigRefused(f"channels of kind {channel.kind} are not known: {', '.join(sorted(MAKERS))}")
    return make(channel)
