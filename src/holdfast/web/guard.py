"""Checks every request before its handler: size, host and user; adds the security headers to every response.

An exception in a handler ends that request with an error document, and has no other effect.
"""

import asyncio
import logging
import urllib.parse
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.web.access.access import Access
from holdfast.web.access.forwarded import Hosts, Proxies, asked, check_origin
from holdfast.web.access.headers import HSTS, NOT_KEPT, SECURITY
from holdfast.web.access.tokens import has_token, without_tokens
from holdfast.web.api import answers
from holdfast.web.api.requests import too_large
from holdfast.web.refusals import Refusal, bad_request
from holdfast.web.settings import ServerSettings

LOG = logging.getLogger("holdfast.web")
_SECRET_NAMES = {"token", "access_token", "auth", "authorization", "api_key", "apikey", "password", "secret"}
_POLICY_VIOLATION = 1008
HEADER_BYTES_MAX = 32 << 10
_HTTP_VERSIONS = ("1.0", "1.1")
_CODES = {404: "not-there", 405: "bad-request"}


class Guard:
    """ASGI middleware that checks every request.

    `app`: the application that receives accepted requests, with `seen` and `who` in their state. `failed`: called
    after each request whose handler raises an exception.
    """

    def __init__(
        self, app: ASGIApp, settings: ServerSettings, access: Access, failed: Callable[[], None]
    ) -> None:
        self._app, self._settings, self._access, self._failed = app, settings, access, failed
        self._proxies = Proxies(settings.trusted_proxies)
        self._hosts = Hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, is_tls=self._settings.is_tls)
        try:
            scope = self._checked(scope)
            limited = _Limited(receive, self._settings.limits.body_bytes, self._settings.limits.still_s)
            await self._app(scope, limited if scope["type"] == "http" else receive, answer)
        except Refusal as error:
            await answer.refuse(scope, receive, error)
        except HTTPException as error:
            code = _CODES.get(error.status_code, "bad-request")
            text = f"this page does not exist: {error.detail}"
            await answer.refuse(
                scope, receive, Refusal(error.status_code, code, text, headers=error.headers or {})
            )
        except ClientDisconnect:
            return  # the client waits for no answer
        except Exception as error:  # the fence: one request's fault is not another's
            self._failed()
            LOG.exception(
                "a request failed: %s %s", scope.get("method"), without_tokens(str(scope.get("path")))
            )
            text = f"the server failed to handle this request ({type(error).__name__}); see its log"
            await answer.refuse(scope, receive, Refusal(500, "failed", text))

    def _checked(self, scope: Scope) -> Scope:
        """Checks a request and returns its scope with user and origin. Raises Refusal."""
        headers = Headers(scope=scope)
        _check_head(scope)
        _check_url(scope, self._settings.limits.url_bytes)
        seen = asked(scope, headers, self._settings, self._proxies)
        self._hosts.check(seen.host)
        who = self._access.identity(scope, seen, headers)
        method = str(scope.get("method", "GET"))
        # A browser always sends the page that opens a WebSocket; a client without it is no browser.
        if scope["type"] == "websocket" or seen.path.startswith("/api/") or method not in ("GET", "HEAD"):
            check_origin(seen, headers)
        return {**scope, "app": self, "path": seen.path, "root_path": "", "state": {"seen": seen, "who": who}}


def _check_head(scope: Scope) -> None:
    """Checks the HTTP version and the size of the headers. Raises Refusal.

    h11 accepts every version of the form digit.digit, and limits only headers that do not arrive in one piece.
    """
    if scope["http_version"] not in _HTTP_VERSIONS:
        versions = " or ".join(_HTTP_VERSIONS)
        raise Refusal(505, "bad-request", f"HTTP {scope['http_version']} is not supported; use {versions}")
    if sum(len(name) + len(value) for name, value in scope["headers"]) > HEADER_BYTES_MAX:
        raise Refusal(431, "bad-request", f"the headers are longer than {HEADER_BYTES_MAX} bytes")


def _check_url(scope: Scope, bytes_max: int) -> None:
    """Checks the length of a URL.

    Raises Refusal; also for a token in a URL, which histories and logs would store.
    """
    raw = bytes(scope.get("raw_path") or b"") + b"?" + bytes(scope["query_string"])
    if len(raw) > bytes_max:
        raise bad_request(f"the URL is longer than {bytes_max} bytes")
    text = urllib.parse.unquote_plus(raw.decode("latin-1"))
    names = {name.lower() for name, _ in urllib.parse.parse_qsl(scope["query_string"].decode("latin-1"))}
    if has_token(text) or names & _SECRET_NAMES:
        raise bad_request(
            "a token must not be part of a URL, because histories and logs store URLs: send it as "
            "Authorization: Bearer TOKEN, and revoke this one"
        )


class _Limited:
    """The body of a request, with limits on its size and on pauses of the sender."""

    def __init__(self, receive: Receive, bytes_max: int, still_s: float) -> None:
        self._receive, self._bytes_max, self._still_s = receive, bytes_max, still_s
        self._got = 0
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout(self._still_s):
                message = await self._receive()
        except TimeoutError:
            raise Refusal(408, "too-slow", f"the client sent no data for {self._still_s:g} s") from None
        self._got += len(message.get("body", b""))
        if self._got > self._bytes_max:
            raise too_large(self._bytes_max)
        self._is_whole = not message.get("more_body", False)
        return message


class _Answer:
    """The response of a request. `refuse` does nothing once a response has begun."""

    def __init__(self, send: Send, *, is_tls: bool) -> None:
        self._send, self._is_tls = send, is_tls
        self._has_begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            message = {**message, "headers": self._with_security(message.get("headers", ()))}
        self._has_begun = True
        await self._send(message)

    async def refuse(self, scope: Scope, receive: Receive, error: Refusal) -> None:
        if self._has_begun:
            LOG.warning("a response was interrupted by an error: %s", error.text)
            return
        if scope["type"] == "http":
            await answers.refusal(error)(scope, receive, self)
        elif "websocket.http.response" in scope.get("extensions", {}):
            await answers.refusal(error)({**scope, "type": "websocket"}, receive, self)
        else:
            await self._send(
                {"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.text[:100]}
            )

    def _with_security(self, headers: Any) -> list[tuple[bytes, bytes]]:
        given = [(bytes(name).lower(), bytes(value)) for name, value in headers]
        names = {name for name, _ in given}
        more = [*SECURITY, NOT_KEPT, *([HSTS] if self._is_tls else [])]
        return given + [one for one in more if one[0] not in names]
