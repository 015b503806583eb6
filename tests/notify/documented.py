"""The documented forms of receivers, as types that refuse what is not in them."""

from typing import Any, Literal

from msgspec import Struct

from holdfast.model.documents.notices import Notice


class Strict(Struct, forbid_unknown_fields=True, kw_only=True):
    """Nothing else is allowed."""


# Feishu: https://open.feishu.cn/document/uAjLw4CM/ukzMukzMukzM/feishu-cards/card-json-v2-structure


class PlainText(Strict, tag_field="tag", tag="plain_text"):
    content: str
    i18n_content: dict[Literal["en_us", "zh_cn"], str] = {}


class OpenUrl(Strict, tag_field="type", tag="open_url"):
    default_url: str


class Div(Strict, tag_field="tag", tag="div"):
    text: PlainText


class Button(Strict, tag_field="tag", tag="button"):
    type: Literal["default", "primary", "danger"]
    text: PlainText
    behaviors: list[OpenUrl]


class CardHeader(Strict):
    title: PlainText
    template: Literal["blue", "green", "orange", "red", "grey"]


class CardBody(Strict):
    elements: list[Div | Button]


class Summary(Strict):
    content: str


class CardConfig(Strict):
    update_multi: Literal[True]
    summary: Summary


class FeishuCard(Strict):
    schema: Literal["2.0"]
    config: CardConfig
    header: CardHeader
    body: CardBody


class FeishuBot(Strict):
    msg_type: Literal["interactive"]
    card: FeishuCard
    timestamp: str = ""
    sign: str = ""


class FeishuMessage(Strict):
    receive_id: str
    msg_type: Literal["interactive"]
    content: str
    uuid: str


# DingTalk: https://open.dingtalk.com/document/orgapp/custom-robot-access


class DingMarkdownText(Strict):
    title: str
    text: str


class DingCard(Strict):
    title: str
    text: str
    singleTitle: str
    singleURL: str


class DingMarkdown(Strict, tag_field="msgtype", tag="markdown"):
    markdown: DingMarkdownText


class DingActionCard(Strict, tag_field="msgtype", tag="actionCard"):
    actionCard: DingCard


DINGTALK = DingMarkdown | DingActionCard


# WeCom: https://developer.work.weixin.qq.com/document/path/91770


class WeComText(Strict):
    content: str


class WeCom(Strict):
    msgtype: Literal["markdown"]
    markdown: WeComText


# Slack: https://docs.slack.dev/reference/block-kit/blocks


class SlackPlain(Strict, tag_field="type", tag="plain_text"):
    text: str


class SlackMarkdown(Strict, tag_field="type", tag="mrkdwn"):
    text: str


class SlackHeader(Strict, tag_field="type", tag="header"):
    text: SlackPlain


class SlackSection(Strict, tag_field="type", tag="section"):
    text: SlackMarkdown


class SlackButton(Strict, tag_field="type", tag="button"):
    text: SlackPlain
    url: str


class SlackActions(Strict, tag_field="type", tag="actions"):
    elements: list[SlackButton]


class SlackMessage(Strict):
    text: str
    blocks: list[SlackHeader | SlackSection | SlackActions] = []
    channel: str = ""
    ts: str = ""
    thread_ts: str = ""


# Teams: https://adaptivecards.io/explorer/AdaptiveCard.html


class TextBlock(Strict, tag_field="type", tag="TextBlock"):
    text: str
    wrap: bool
    size: Literal["medium", "default"] = "default"
    weight: Literal["bolder", "default"] = "default"
    color: Literal["good", "warning", "attention", "default"] = "default"


class Fact(Strict):
    title: str
    value: str


class FactSet(Strict, tag_field="type", tag="FactSet"):
    facts: list[Fact]


class OpenUrlAction(Strict, tag_field="type", tag="Action.OpenUrl"):
    title: str
    url: str


class AdaptiveCard(Strict, tag_field="type", tag="AdaptiveCard", rename={"schema": "$schema"}):
    schema: str
    version: Literal["1.4"]
    body: list[TextBlock | FactSet]
    msteams: dict[str, str]
    actions: list[OpenUrlAction] = []


class Attachment(Strict):
    contentType: Literal["application/vnd.microsoft.card.adaptive"]
    contentUrl: None
    content: AdaptiveCard


class TeamsMessage(Strict, tag_field="type", tag="message"):
    attachments: list[Attachment]


# Discord: https://discord.com/developers/docs/resources/message#embed-object


class EmbedField(Strict):
    name: str
    value: str
    inline: bool


class Embed(Strict):
    title: str
    description: str
    color: int
    timestamp: str
    fields: list[EmbedField]
    url: str = ""


class DiscordMessage(Strict):
    embeds: list[Embed]
    allowed_mentions: dict[str, list[str]]


# PagerDuty: https://developer.pagerduty.com/docs/send-alert-event


class PagerPayload(Strict, rename={"class_": "class"}):
    summary: str
    source: str
    severity: Literal["critical", "error", "warning", "info"]
    timestamp: str
    component: str
    class_: str
    custom_details: dict[str, Any]


class PagerLink(Strict):
    href: str
    text: str


class PagerDuty(Strict):
    routing_key: str
    event_action: Literal["trigger", "resolve"]
    dedup_key: str
    payload: PagerPayload | None = None
    client: str = ""
    client_url: str = ""
    links: list[PagerLink] = []


# Opsgenie: https://docs.opsgenie.com/docs/alert-api


class OpsgenieAlert(Strict):
    message: str
    alias: str
    description: str
    priority: Literal["P1", "P2", "P3", "P4", "P5"]
    source: str
    entity: str
    tags: list[str]
    details: dict[str, str]


# Holdfast's own: docs/notify.md


class Webhook(Strict):
    version: Literal[1]
    notice: Notice
    joined: list[Notice]
