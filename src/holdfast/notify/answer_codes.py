"""Lists the error codes that notification services return in the body of an HTTP response.

Code 0 means success for every service. A code that is in no table counts as a final rejection.
"""

from collections.abc import Mapping

from msgspec import Struct

from holdfast.notify.http import Answer, good
from holdfast.notify.sender import Rejected, TryLater

FIRST_WORDS_MAX = 200


class Code(Struct, frozen=True):
    """An error code of a notification service. `later`: a retry may succeed, after `after_s` seconds if
    known.

    `do`: the cause, and what a user can do.
    """

    later: bool
    do: str
    after_s: float | None = None


# source: https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot (custom bots: 9499, 11232, 19xxx),
#   https://open.feishu.cn/document/server-docs/api-call-guide/frequency-control (99991400),
#   https://open.feishu.cn/document/server-docs/im-v1/message-card/patch (230xxx),
#   https://open.feishu.cn/document/server-docs/api-call-guide/generic-error-code (9999166x)
FEISHU: Mapping[str, Code] = {
    "9499": Code(False, "the request format is rejected"),
    "11232": Code(True, "the bot has reached its rate limit"),
    "19001": Code(False, "the webhook URL of the bot is wrong: copy it again"),
    "19021": Code(False, "the signature is wrong: check `secret`, and the clock of this machine"),
    "19022": Code(False, "the bot does not accept this machine's IP address: add it to its allow list"),
    "19024": Code(
        False, "the bot accepts only messages with its keywords: add a keyword that every message contains"
    ),
    "99991400": Code(True, "the app has reached its rate limit"),
    "99991661": Code(True, "the token of the app is missing"),
    "99991663": Code(True, "the token of the app has expired"),
    "99991664": Code(True, "the token of the app is not valid"),
    "10003": Code(False, "app_id or app_secret is wrong"),
    "10014": Code(False, "app_id or app_secret is wrong"),
    "230002": Code(False, "the bot is not in the chat: add it there"),
    "230006": Code(False, "the app has no bot: enable it and publish the app"),
    "230020": Code(True, "the chat has reached its rate limit"),
    "230027": Code(False, "the app lacks the permission im:message"),
}
# Of these the message cannot be changed any more, and another one is made.
FEISHU_GONE = frozenset({"230011", "230031"})

# source: https://open.dingtalk.com/document/orgapp/custom-robot-access (more than 20 messages a minute: limited for
#   10 minutes), https://open.dingtalk.com/document/orgapp/server-api-error-codes-1. The wordings of the answers, as several
#   public clients record them: 130101 "send too fast, exceed 20 times per minute"; 300001 and 300005 "token is not
#   exist"; 310000 "keywords not in content", "sign not match" or "ip ... not in whitelist"; 400102 "bot is stopped".
DINGTALK: Mapping[str, Code] = {
    "-1": Code(True, "DingTalk is overloaded"),
    "130101": Code(True, "more than 20 messages within a minute", 600.0),
    "300001": Code(False, "the webhook URL of the robot is wrong: copy it again"),
    "300005": Code(False, "the token in the webhook URL of the robot is wrong: copy it again"),
    "310000": Code(
        False,
        (
            "rejected by the robot's security settings: check `secret`, keywords, IP addresses, and the "
            "clock of this machine"
        ),
    ),
    "400013": Code(False, "the group no longer exists"),
    "400101": Code(False, "the token in the webhook URL of the robot is wrong: copy it again"),
    "400102": Code(False, "the robot is switched off: switch it on in the settings of the group"),
    "400105": Code(False, "the robot does not accept this kind of message"),
    "400106": Code(False, "the robot was removed from the group: add a new one, and copy its webhook URL"),
    "410100": Code(True, "more messages than allowed", 600.0),
}

# source: https://developer.work.weixin.qq.com/document/path/91770 (20 messages a minute),
#   https://developer.work.weixin.qq.com/document/path/90455 (global codes: -1, 40058, 45009, 45033),
#   https://open.work.weixin.qq.com/devtool/query?e=93000 ("invalid webhook url")
WECOM: Mapping[str, Code] = {
    "-1": Code(True, "WeCom is overloaded"),
    "45009": Code(True, "more than 20 messages within a minute", 60.0),
    "45033": Code(True, "too many messages at the same time", 60.0),
    "93000": Code(False, "the webhook URL of the robot is wrong: copy it again"),
    "40058": Code(False, "the message format is rejected"),
}

# source: https://docs.slack.dev/reference/methods/chat.postMessage, chat.update; the same lists, machine-readable, in
#   github.com/slack-ruby/slack-api-ref, methods/chat
SLACK: Mapping[str, Code] = {
    "ratelimited": Code(True, "too many messages"),
    "rate_limited": Code(True, "too many messages"),
    "message_limit_exceeded": Code(True, "too many messages"),
    "internal_error": Code(True, "Slack reports an internal error"),
    "fatal_error": Code(True, "Slack reports an internal error"),
    "service_unavailable": Code(True, "Slack reports an internal error"),
    "request_timeout": Code(True, "Slack reports an internal error"),
    "update_failed": Code(True, "Slack reports an internal error"),
    "team_added_to_org": Code(True, "the workspace is being moved"),
    "org_login_required": Code(True, "the workspace is being moved"),
    "external_channel_migrating": Code(True, "the channel is being moved"),
    "token_expired": Code(False, "the token has expired: create a new one"),
    "invalid_auth": Code(False, "the token is not valid"),
    "not_authed": Code(False, "there is no token"),
    "account_inactive": Code(False, "the token belongs to an account that was removed"),
    "token_revoked": Code(False, "the token was revoked"),
    "missing_scope": Code(False, "the token lacks the scope chat:write"),
    "not_in_channel": Code(False, "the app is not in the channel: invite it"),
    "channel_not_found": Code(False, "there is no such channel: give its id, as C0123456789"),
    "is_archived": Code(False, "the channel is archived"),
}
SLACK_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})


def judged(answer: Answer, code: object, message: object, table: Mapping[str, Code]) -> Answer:
    """Returns the response if its HTTP status and the service's own `code` mean success. Raises TryLater and
    Rejected.

    `code`: None if the body has no code, as in the login page of a proxy; nothing has been delivered then.
    `table`: the known error codes of the service.
    """
    if code is None and answer.is_good:
        raise Rejected(
            f"the response has no code, so `url` is probably not the URL of the service: {answer.text[:80]}"
        )
    if code is None or str(code) == "0":
        return good(answer)
    known = table.get(str(code))
    words = str(message)[:FIRST_WORDS_MAX]
    why = f"the receiver returned code {code} {words}".rstrip() + (
        f": {known.do}" if known is not None else ""
    )
    is_busy = answer.status == 429 or answer.status >= 500
    if (known is not None and known.later) or (known is None and is_busy):
        after_s = answer.after_s if answer.after_s is not None or known is None else known.after_s
        raise TryLater(why, after_s)
    raise Rejected(why)
