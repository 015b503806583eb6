"""Creates the sender of each channel by the channel's kind.

If an optional package that a kind needs is missing, the configuration is rejected.
"""

from collections.abc import Callable, Mapping

from holdfast.notify.config import ChannelConfig, NotifyConfig
from holdfast.notify.sender import Sender
from holdfast.notify.senders.alertmanager import alertmanager
from holdfast.notify.senders.anything import anything
from holdfast.notify.senders.dingtalk import dingtalk
from holdfast.notify.senders.discord import discord
from holdfast.notify.senders.feishu import feishu
from holdfast.notify.senders.mail import mail
from holdfast.notify.senders.opsgenie import opsgenie
from holdfast.notify.senders.pagerduty import pagerduty
from holdfast.notify.senders.slack import slack
from holdfast.notify.senders.teams import teams
from holdfast.notify.senders.webhook import webhook
from holdfast.notify.senders.wecom import wecom

MAKERS: Mapping[str, Callable[[ChannelConfig], Sender]] = {
    "feishu": feishu,
    "lark": feishu,
    "dingtalk": dingtalk,
    "wecom": wecom,
    "slack": slack,
    "teams": teams,
    "discord": discord,
    "email": mail,
    "pagerduty": pagerduty,
    "opsgenie": opsgenie,
    "alertmanager": alertmanager,
    "webhook": webhook,
    "apprise": anything,
}


def senders_of(config: NotifyConfig) -> dict[str, Sender]:
    """Returns the senders by channel name. Raises ConfigRefused."""
    return {channel.name: MAKERS[channel.kind](channel) for channel in config.channels}
