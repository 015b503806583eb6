"""Receivers on loopback: they check what comes against the documented form, and answer as they are told to."""

import base64
import hashlib
import hmac
import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import msgspec

from notify import documented

GOOD = object()
WAIT_S = 100.0  # only a hung test waits so long


class Request(NamedTuple):
    method: str
    path: str
    query: dict
    headers: dict
    raw: bytes
    at_s: float

    @property
    def body(self):
        return json.loads(self.raw)


class Reply(NamedTuple):
    """`drops_s`: pause between the bytes of the answer. `is_mute`: no answer until the receiver is closed."""

    status: int = 200
    body: object = None
    headers: dict = {}
    drops_s: float = 0.0
    is_mute: bool = False


class Receiver:
    """`answer`: what a request is answered with; GOOD from it means that `replies` decide, the last one again and again."""

    def __init__(self, answer=lambda request: Reply()):
        self.answer = answer
        self.requests = []
        self.replies = []
        self.problems = []
        self._came = threading.Condition()
        self._closing = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self):
                split = urlsplit(self.path)
                size = int(self.headers.get("Content-Length", 0))
                raw = self.rfile.read(size)
                if len(raw) < size:  # the sender was killed in the middle of it
                    self.close_connection = True
                    return
                query = {key: values[0] for key, values in parse_qs(split.query).items()}
                headers = {key.lower(): value for key, value in self.headers.items()}
                request = Request(self.command, split.path, query, headers, raw, time.time())
                receiver._reply(self, request)

            do_POST = do_PATCH = do_PUT = do_GET = _do

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _reply(self, handler, request):
        try:
            reply = self.answer(request)
        except (AssertionError, msgspec.ValidationError, KeyError) as error:
            self.problems.append(f"{request.path}: {error!r}")
            reply = Reply(400, {"error": str(error)})
        if self.replies and reply.status < 300:
            scripted = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            reply = reply if scripted is GOOD else scripted
        with self._came:
            self.requests.append(request)
            self._came.notify_all()
        if reply.is_mute:
            self._closing.wait(WAIT_S)
            handler.close_connection = True
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body or {}).encode()
        with suppress(OSError):
            handler.send_response(reply.status)
            for name, value in reply.headers.items():
                handler.send_header(name, value)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            if not reply.drops_s:
                handler.wfile.write(body)
            for byte in body if reply.drops_s else ():
                handler.wfile.write(bytes([byte]))
                if self._closing.wait(reply.drops_s):
                    break

    def wait(self, enough, within_s=WAIT_S):
        """Until `enough` says so of the requests."""
        with self._came:
            assert self._came.wait_for(lambda: enough(self.requests), within_s), (
                f"only {len(self.requests)} requests within {within_s:g} s; problems: {self.problems}"
            )
        return self.requests

    def close(self):
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        assert not self.problems, self.problems


# What each service answers ----------------------------------------------------------------------------


def feishu_bot(secret=""):
    """source: https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot"""

    def answer(request):
        assert request.method == "POST" and request.path == "/open-apis/bot/v2/hook/token"
        body = msgspec.json.decode(request.raw, type=documented.FeishuBot)
        if secret:
            key = f"{body.timestamp}\n{secret}".encode()
            good = base64.b64encode(hmac.new(key, digestmod=hashlib.sha256).digest()).decode()
            if body.sign != good or abs(time.time() - int(body.timestamp)) > 3_600:
                why = "sign match fail or timestamp is not within one hour from current time"
                return Reply(200, {"code": 19021, "data": {}, "msg": why})
        return Reply(200, {"code": 0, "data": {}, "msg": "success"})

    return answer


class FeishuApp:
    """source: https://open.feishu.cn/document/server-docs/im-v1/message/create, …/im-v1/message-card/patch"""

    def __init__(self):
        self.cards = {}
        self.by_uuid = {}
        self.tokens = 0

    def __call__(self, request):
        if request.path.endswith("/auth/v3/tenant_access_token/internal"):
            if request.body != {"app_id": "cli_1", "app_secret": "s3cret"}:
                return Reply(200, {"code": 10014, "msg": "app secret invalid"})
            self.tokens += 1
            return Reply(
                200, {"code": 0, "msg": "ok", "tenant_access_token": f"t-{self.tokens}", "expire": 7_200}
            )
        if request.headers["authorization"] != f"Bearer t-{self.tokens}":
            return Reply(400, {"code": 99991663, "msg": "Invalid access token for authorization"})
        if request.method == "PATCH":
            card = msgspec.json.decode(request.body["content"], type=documented.FeishuCard)
            name = request.path.rpartition("/")[2]
            if name not in self.cards:
                return Reply(400, {"code": 230011, "msg": "The message is recalled."})
            self.cards[name].append(card)
            return Reply(200, {"code": 0, "msg": "success", "data": {}})
        body = msgspec.json.decode(request.raw, type=documented.FeishuMessage)
        assert request.query == {"receive_id_type": "chat_id"} and len(body.uuid) <= 50
        name = self.by_uuid.setdefault(body.uuid, f"om_{len(self.cards) + 1}")
        self.cards.setdefault(name, [msgspec.json.decode(body.content, type=documented.FeishuCard)])
        return Reply(200, {"code": 0, "msg": "success", "data": {"message_id": name}})


def dingtalk_robot(secret=""):
    """source: https://open.dingtalk.com/document/orgapp/customize-robot-security-settings"""

    def answer(request):
        assert request.path == "/robot/send" and request.query["access_token"] == "tok"
        msgspec.json.decode(request.raw, type=documented.DINGTALK)
        if secret:
            text = f"{request.query['timestamp']}\n{secret}".encode()
            good = base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()
            if request.query["sign"] != good:
                return Reply(200, {"errcode": 310000, "errmsg": "sign not match"})
        return Reply(200, {"errcode": 0, "errmsg": "ok"})

    return answer


def wecom_robot(request):
    """source: https://developer.work.weixin.qq.com/document/path/91770"""
    body = msgspec.json.decode(request.raw, type=documented.WeCom)
    assert request.query["key"] and len(body.markdown.content.encode()) <= 4_096
    return Reply(200, {"errcode": 0, "errmsg": "ok"})


def slack_hook(request):
    """source: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks"""
    msgspec.json.decode(request.raw, type=documented.SlackMessage)
    return Reply(200, b"ok")


class SlackApp:
    """source: https://docs.slack.dev/reference/methods/chat.postMessage, …/chat.update"""

    def __init__(self):
        self.messages, self.threads = {}, {}

    def __call__(self, request):
        if request.headers["authorization"] != "Bearer xoxb-1":
            return Reply(200, {"ok": False, "error": "invalid_auth"})
        body = msgspec.json.decode(request.raw, type=documented.SlackMessage)
        if body.channel != "C1":
            return Reply(200, {"ok": False, "error": "channel_not_found"})
        if request.path == "/api/chat.update":
            if body.ts not in self.messages:
                return Reply(200, {"ok": False, "error": "message_not_found"})
            self.messages[body.ts].append(body)
            return Reply(200, {"ok": True, "channel": "C1", "ts": body.ts})
        assert request.path == "/api/chat.postMessage"
        if body.thread_ts:
            self.threads.setdefault(body.thread_ts, []).append(body.text)
            return Reply(200, {"ok": True, "channel": "C1", "ts": "9.9"})
        stamp = f"1700000000.{len(self.messages):06}"
        self.messages[stamp] = [body]
        return Reply(200, {"ok": True, "channel": "C1", "ts": stamp})


def teams_workflow(request):
    """source: https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using"""
    msgspec.json.decode(request.raw, type=documented.TeamsMessage)
    assert len(request.raw) <= 28 << 10
    return Reply(202, b"")


class DiscordHook:
    """source: https://discord.com/developers/docs/resources/webhook"""

    def __init__(self):
        self.messages = {}

    def __call__(self, request):
        body = msgspec.json.decode(request.raw, type=documented.DiscordMessage)
        assert body.allowed_mentions == {"parse": []}
        embed = body.embeds[0]
        assert len(embed.title) <= 256 and len(embed.description) <= 4_096 and len(embed.fields) <= 25
        if request.method == "PATCH":
            name = request.path.rpartition("/")[2]
            if name not in self.messages:
                return Reply(404, {"message": "Unknown Message", "code": 10008})
            self.messages[name].append(embed)
            return Reply(200, {"id": name})
        assert request.query == {"wait": "true"}
        name = str(100 + len(self.messages))
        self.messages[name] = [embed]
        return Reply(200, {"id": name})


class PagerDuty:
    """source: https://developer.pagerduty.com/docs/send-alert-event"""

    def __init__(self):
        self.alerts = {}

    def __call__(self, request):
        body = msgspec.json.decode(request.raw, type=documented.PagerDuty)
        if body.routing_key != "r0ut1ng":
            return Reply(400, {"status": "invalid event", "message": "Invalid routing key", "errors": []})
        assert len(body.dedup_key) <= 255
        if body.event_action == "trigger":
            assert body.payload and len(body.payload.summary) <= 1_024
        self.alerts.setdefault(body.dedup_key, []).append(body.event_action)
        return Reply(202, {"status": "success", "message": "Event processed", "dedup_key": body.dedup_key})


class Opsgenie:
    """source: https://docs.opsgenie.com/docs/alert-api"""

    def __init__(self):
        self.alerts = {}

    def __call__(self, request):
        if request.headers["authorization"] != "GenieKey g3nie":
            return Reply(401, {"message": "Key format is not valid!"})
        if request.path.endswith("/close"):
            assert request.query == {"identifierType": "alias"}
            self.alerts[request.path.split("/")[3]].append("closed")
        else:
            assert request.path == "/v2/alerts"
            body = msgspec.json.decode(request.raw, type=documented.OpsgenieAlert)
            assert len(body.message) <= 130 and len(body.alias) <= 512
            self.alerts.setdefault(body.alias.replace("/", "%2F"), []).append(body.priority)
        return Reply(202, {"result": "Request will be processed", "requestId": "1"})


def webhook(secret=""):
    """docs/notify.md"""

    def answer(request):
        body = msgspec.json.decode(request.raw, type=documented.Webhook)
        assert request.headers["x-holdfast-event"] == body.notice.event
        if secret:
            text = request.headers["x-holdfast-timestamp"].encode() + b"." + request.raw
            good = "sha256=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()
            if request.headers.get("x-holdfast-signature") != good:
                return Reply(401, {"error": "wrong signature"})
        return Reply(204, b"")

    return answer
