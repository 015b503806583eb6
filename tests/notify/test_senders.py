"""Each sender against a receiver that checks the documented form and signature."""

import re

import pytest
from msgspec.structs import replace

from holdfast.core.notify.outbox import Send
from holdfast.model.documents.parts import Sentence
from holdfast.model.signatures import Words
from holdfast.notify.config import KINDS, ChannelConfig, ConfigRefused
from holdfast.notify.registry import MAKERS
from holdfast.notify.sender import Rejected, TryLater
from notices_kit import made
from notify import receiver as services
from notify.receiver import Receiver, Reply

LINK = "https://hf.example.org/jobs/llama/incidents/1"
NASTY = "<!channel> @everyone <@U1> *bold* [x](http://evil) <at id=all></at> `rm -rf`"
FULL = made(
    facts=(
        (Words(en="cause", zh="原因"), Words(en="CUDA out of memory", zh="显存不足")),
        (Words(en="who", zh="定位"), Words(en="rank 3 on gpu-7", zh="rank 3 on gpu-7")),
    ),
    link=LINK,
    category="gpu_oom",
    incident=1,
)
END = replace(FULL, version=3, event="recovered", severity="info", is_over=True)
FAILED = replace(FULL, version=3, event="failed", severity="critical", is_over=True)


# What must not come through as it is, and in which text it would be markup.
MARKUP = {
    "dingtalk": ("@everyone", "[x](http", " *bold*"),
    "wecom": ("<@U1>", "[x](http", "*bold*"),
    "slack": ("<!channel>", "<@U1>"),
    "teams": ("[x](http", " *bold*"),
}


def _marked_up(kind, body):
    if kind == "slack":
        return [block["text"]["text"] for block in body["blocks"] if block["type"] == "section"][0]
    if kind == "teams":
        return body["attachments"][0]["content"]["body"][1]["text"]
    return body["markdown"].get("text") or body["markdown"]["content"]


def sender(kind, language="en", **options):
    return MAKERS[kind](ChannelConfig(name="c", kind=kind, language=language, options=options))


def order(notice, reference="", joined=()):
    key = f"{notice.id}/{notice.version}/c"
    return Send(
        channel="c",
        notice=notice,
        reference=reference,
        count=1,
        key=key,
        is_update=bool(reference),
        joined=joined,
    )


HOOK = "/open-apis/bot/v2/hook/token"
WITH_URL = {
    "feishu": (services.feishu_bot(), HOOK, {}),
    "lark": (services.feishu_bot(), HOOK, {}),
    "dingtalk": (services.dingtalk_robot(), "/robot/send?access_token=tok", {}),
    "wecom": (services.wecom_robot, "/cgi-bin/webhook/send?key=k", {}),
    "slack": (services.slack_hook, "/services/T/B/x", {}),
    "teams": (services.teams_workflow, "/workflows/1/triggers/manual/paths/invoke?sig=x", {}),
    "discord": (services.DiscordHook(), "/api/webhooks/1/tok", {}),
    "pagerduty": (services.PagerDuty(), "/v2/enqueue", {"key": "r0ut1ng"}),
    "opsgenie": (services.Opsgenie(), "", {"key": "g3nie"}),
    "webhook": (services.webhook(), "/hook", {}),
}


def test_each_kind_has_a_sender_and_options():
    assert set(KINDS) == set(MAKERS)


@pytest.mark.parametrize("language", ["en", "zh", "both"])
@pytest.mark.parametrize("notice", [FULL, made(), END, FAILED], ids=["full", "bare", "end", "failed"])
@pytest.mark.parametrize("kind", WITH_URL)
def test_the_form_is_the_documented_one(kind, notice, language):
    answer, path, options = WITH_URL[kind]
    with Receiver(answer) as receiver:
        one = sender(kind, language, url=receiver.url + path, **options)
        if kind == "opsgenie":
            one.send(order(FULL))
        one.send(order(notice))
        assert receiver.requests


@pytest.mark.parametrize("kind", WITH_URL)
def test_long_texts_are_cut_to_what_the_receiver_takes(kind):
    answer, path, options = WITH_URL[kind]
    words = Words(en="x" * 3_000, zh="故障" * 3_000)
    long = replace(
        FULL, id="j" * 600, title=words, sentence=Sentence(text=words), facts=((words, words),) * 3, version=1
    )
    with Receiver(answer) as receiver:
        sender(kind, "zh", url=receiver.url + path, **options).send(order(long))


@pytest.mark.parametrize(
    "kind", [kind for kind in WITH_URL if kind not in ("pagerduty", "opsgenie", "webhook")]
)
def test_text_of_a_log_is_no_markup_and_mentions_nobody(kind):
    answer, path, options = WITH_URL[kind]
    words = Words(en=NASTY, zh=NASTY)
    nasty = replace(made(), title=words, sentence=Sentence(text=words), facts=((words, words),))
    with Receiver(answer) as receiver:
        sender(kind, url=receiver.url + path, **options).send(order(nasty))
        text = receiver.requests[0].raw.decode()
    if kind in ("feishu", "lark"):
        assert "markdown" not in text and "lark_md" not in text
    elif kind == "discord":
        assert '"allowed_mentions": {"parse": []}' in text
    else:
        assert not [sign for sign in MARKUP[kind] if sign in _marked_up(kind, receiver.requests[0].body)]


@pytest.mark.parametrize("kind", WITH_URL)
@pytest.mark.parametrize(
    ("reply", "error", "after_s"),
    [
        (Reply(429, {}, {"Retry-After": "7"}), TryLater, 7.0),
        (Reply(429, {}, {"x-ogw-ratelimit-reset": "52"}), TryLater, 52.0),
        (Reply(500, b"<html>oops</html>"), TryLater, None),
        (Reply(503, b""), TryLater, None),
        (Reply(400, {"why": "bad form"}), Rejected, None),
        (Reply(403, b"no_service"), Rejected, None),
        (Reply(302, b"", {"Location": "https://login.example.org/"}), Rejected, None),
    ],
    ids=["429", "429-feishu", "500", "503", "400", "403", "302"],
)
def test_what_a_status_means(kind, reply, error, after_s):
    answer, path, options = WITH_URL[kind]
    with Receiver(answer) as receiver:
        receiver.replies = [reply]
        with pytest.raises(error, match=str(reply.status)) as caught:
            sender(kind, url=receiver.url + path, **options).send(order(FULL))
    if error is TryLater:
        assert caught.value.after_s == after_s


@pytest.mark.parametrize(
    ("kind", "body", "error", "after_s", "words"),
    [
        ("feishu", {"code": 11232, "msg": "frequency limited"}, TryLater, None, "rate limit"),
        (
            "feishu",
            {"code": 99991400, "msg": "request trigger frequency limit"},
            TryLater,
            None,
            "rate limit",
        ),
        ("feishu", {"code": 19024, "msg": "Key Words Not Found"}, Rejected, None, "keywords"),
        ("feishu", {"code": 19022, "msg": "Ip Not Allowed"}, Rejected, None, "address"),
        ("lark", {"code": 424242, "msg": "what nobody has seen"}, Rejected, None, "424242 what nobody"),
        ("dingtalk", {"errcode": 130101, "errmsg": "send too fast"}, TryLater, 600.0, "20 messages"),
        ("dingtalk", {"errcode": -1, "errmsg": "busy"}, TryLater, None, "busy"),
        ("dingtalk", {"errcode": 310000, "errmsg": "keywords not in content"}, Rejected, None, "security"),
        ("wecom", {"errcode": 45009, "errmsg": "api freq out of limit"}, TryLater, 60.0, "20 messages"),
        ("wecom", {"errcode": 93000, "errmsg": "invalid webhook url"}, Rejected, None, "copy it again"),
        ("slack", {"ok": False, "error": "ratelimited"}, TryLater, None, "too many"),
        ("slack", {"ok": False, "error": "is_archived"}, Rejected, None, "archived"),
    ],
)
def test_an_error_code_in_a_good_answer_is_a_failure(kind, body, error, after_s, words):
    answer, path, options = WITH_URL[kind]
    with Receiver(answer) as receiver:
        receiver.replies = [Reply(200, body)]
        with pytest.raises(error, match=re.escape(words)) as caught:
            sender(kind, url=receiver.url + path, **options).send(order(FULL))
    if error is TryLater:
        assert caught.value.after_s == after_s


def test_an_old_connector_of_teams_says_in_the_text_that_it_failed():
    failed = b"Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429 with ..."
    with Receiver(services.teams_workflow) as receiver:
        receiver.replies = [Reply(200, failed), Reply(200, failed.replace(b"429", b"400"))]
        one = sender("teams", url=receiver.url)
        with pytest.raises(TryLater):
            one.send(order(FULL))
        with pytest.raises(Rejected):
            one.send(order(FULL))


@pytest.mark.parametrize(
    ("kind", "make", "path"),
    [
        ("feishu", services.feishu_bot, HOOK),
        ("dingtalk", services.dingtalk_robot, "/robot/send?access_token=tok"),
        ("webhook", services.webhook, "/hook"),
    ],
)
def test_signatures(kind, make, path):
    with Receiver(make("right")) as receiver:
        sender(kind, url=receiver.url + path, secret="right").send(order(FULL))
        with pytest.raises(Rejected):
            sender(kind, url=receiver.url + path, secret="wrong").send(order(FULL))


def test_a_feishu_card_has_both_languages_a_colour_and_a_button():
    with Receiver(services.feishu_bot()) as receiver:
        sender("feishu", "both", url=receiver.url + HOOK).send(order(FULL))
        sender("feishu", "zh", url=receiver.url + HOOK).send(order(END))
        first, second = (request.body["card"] for request in receiver.requests)
    assert first["header"]["template"] == "orange" and second["header"]["template"] == "green"
    assert first["header"]["title"]["i18n_content"] == {"en_us": FULL.title.en, "zh_cn": FULL.title.zh}
    assert first["body"]["elements"][1]["text"]["i18n_content"]["zh_cn"] == "原因：显存不足"
    assert first["body"]["elements"][-1]["behaviors"] == [{"type": "open_url", "default_url": LINK}]
    assert second["header"]["title"] == {"tag": "plain_text", "content": FULL.title.zh}


# Those that update ------------------------------------------------------------------------------------


def app(receiver, **options):
    return sender(
        "feishu", base_url=receiver.url, app_id="cli_1", chat="oc_1", **{"app_secret": "s3cret", **options}
    )


def test_an_app_of_feishu_updates_its_card_in_place_and_doubles_none():
    service = services.FeishuApp()
    with Receiver(service) as receiver:
        one = app(receiver)
        sent = one.send(order(FULL))
        assert one.send(order(FULL)).reference == sent.reference  # the answer was lost, and it is tried again
        assert one.send(order(END, sent.reference)).reference == sent.reference
    assert [len(cards) for cards in service.cards.values()] == [2]
    assert service.cards["om_1"][1].header.template == "green"
    assert service.tokens == 1


def test_an_app_of_feishu_renews_its_token_and_a_card_that_is_gone():
    service = services.FeishuApp()
    with Receiver(service) as receiver:
        one = app(receiver)
        sent = one.send(order(FULL))
        service.tokens += 1  # withdrawn
        with pytest.raises(TryLater, match="has expired"):
            one.send(order(END, sent.reference))
        assert one.send(order(END, sent.reference)).reference == sent.reference
        service.cards.clear()
        assert one.send(order(replace(END, version=4), sent.reference)).reference == "om_1"


def test_a_wrong_secret_of_an_app_is_refused():
    with Receiver(services.FeishuApp()) as receiver, pytest.raises(Rejected, match="app_id or app_secret"):
        app(receiver, app_secret="wrong").send(order(FULL))


def test_an_app_of_slack_updates_its_message_and_says_milestones_in_the_thread():
    service = services.SlackApp()
    with Receiver(service) as receiver:
        one = sender("slack", base_url=receiver.url, token="xoxb-1", channel="C1")
        sent = one.send(order(FULL))
        one.send(order(replace(FULL, version=2, is_milestone=False), sent.reference))
        assert not service.threads
        one.send(order(END, sent.reference))
        assert len(service.threads[sent.reference.partition(":")[2]]) == 1
        service.messages.clear()
        again = one.send(order(replace(END, version=4), sent.reference))
        assert again.reference in {f"C1:{stamp}" for stamp in service.messages}
        for options, words in (({"token": "xoxb-2"}, "not valid"), ({"channel": "C2"}, "no such channel")):
            known = {"token": "xoxb-1", "channel": "C1", **options}
            with pytest.raises(Rejected, match=words):
                sender("slack", base_url=receiver.url, **known).send(order(FULL))


def test_discord_updates_its_message_and_makes_another_where_it_is_gone():
    service = services.DiscordHook()
    with Receiver(service) as receiver:
        one = sender("discord", url=receiver.url + "/api/webhooks/1/tok")
        sent = one.send(order(FULL))
        assert one.send(order(END, sent.reference)) == sent
        assert [embed.color for embed in service.messages[sent.reference]] == [0xF79009, 0x12B76A]
        service.messages.clear()
        assert one.send(order(END, "999")).reference == "100"


def test_pagerduty_opens_one_alert_and_recovery_resolves_it():
    service = services.PagerDuty()
    with Receiver(service) as receiver:
        one = sender("pagerduty", url=receiver.url, key="r0ut1ng")
        sent = one.send(order(FULL))
        one.send(order(FULL))
        one.send(order(END, sent.reference))
        assert service.alerts == {FULL.id: ["trigger", "trigger", "resolve"]}
        one.send(order(replace(FAILED, id="other")))
        assert service.alerts["other"] == ["trigger"]  # nobody is told that a failure is over
        with pytest.raises(Rejected, match="Invalid routing key"):
            sender("pagerduty", url=receiver.url, key="wrong").send(order(FULL))


def test_opsgenie_opens_one_alert_and_recovery_closes_it():
    service = services.Opsgenie()
    with Receiver(service) as receiver:
        one = sender("opsgenie", url=receiver.url, key="g3nie")
        sent = one.send(order(FULL))
        one.send(order(END, sent.reference))
        assert list(service.alerts.values()) == [["P3", "closed"]]


def test_a_webhook_gets_the_whole_notice_and_an_idempotency_key():
    with Receiver(services.webhook("k")) as receiver:
        one = sender("webhook", url=receiver.url, secret="k")
        one.send(order(FULL, joined=(FULL, END)))
        one.send(order(FULL, joined=(FULL, END)))
        first, second = receiver.requests
    assert first.body["notice"]["title"] == {"en": "llama: incident", "zh": "llama：故障"}
    assert len(first.body["joined"]) == 2
    assert first.headers["x-holdfast-delivery"] == second.headers["x-holdfast-delivery"] == f"{FULL.id}/1/c"


# Trouble ----------------------------------------------------------------------------------------------


def test_nobody_listens_there():
    with Receiver() as receiver:
        url = receiver.url
    with pytest.raises(TryLater, match="cannot be reached"):
        sender("webhook", url=url).send(order(FULL))


@pytest.mark.parametrize("kind", ["feishu", "dingtalk", "wecom"])
def test_a_login_page_that_answers_in_its_place_is_no_delivery(kind):
    answer, path, options = WITH_URL[kind]
    with Receiver(answer) as receiver:
        receiver.replies = [Reply(200, b"<html>please log in</html>")]
        with pytest.raises(Rejected, match="has no code"):
            sender(kind, url=receiver.url + path, **options).send(order(FULL))


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_that_is_missing_is_named(kind):
    with pytest.raises(ConfigRefused, match=f"channel c of kind {kind} needs"):
        sender(kind)


@pytest.mark.parametrize("url", ["ftp://x", "file:///etc/passwd", "x"])
def test_an_address_of_another_kind_is_refused(url):
    with pytest.raises(Rejected, match="does not begin with https"):
        sender("webhook", url=url).send(order(FULL))
