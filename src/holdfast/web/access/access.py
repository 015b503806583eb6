"""Identifies the user of a request and checks the user's role: by token, session cookie, header of a trusted proxy,
or as the local user who runs the server.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from msgspec.structs import replace

from holdfast.model.documents.actions import Role, allows
from holdfast.web.access.forwarded import Asked, check_origin
from holdfast.web.access.identity import Identity
from holdfast.web.access.loopback import is_loopback, peer_uid
from holdfast.web.access.rates import Rates
from holdfast.web.access.sessions import COOKIE, Session, Sessions
from holdfast.web.access.tokens import NAME, Token, TokenFile, TokensUnusable
from holdfast.web.refusals import bad_request, not_allowed, not_logged_in, too_many, unavailable
from holdfast.web.settings import ServerSettings

CSRF_HEADER, CONFIRM_HEADER = "x-holdfast-csrf", "x-holdfast-confirm"
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
MAKE_ONE = "create one with holdfast serve token create NAME --role viewer"


class Access:
    """Authentication and authorisation of requests. `clock`: seconds since the epoch."""

    def __init__(self, settings: ServerSettings, tokens: TokenFile, clock: Callable[[], float]) -> None:
        self._settings, self._tokens, self._clock = settings, tokens, clock
        self._key = secrets.token_bytes(32)  # of CSRF tokens that belong to no session
        self.sessions = Sessions(clock)
        limits = settings.limits
        self._rates = Rates(limits.rate_per_s, limits.burst, clock)
        self._failures = Rates(limits.failures_per_min / 60.0, limits.failures_per_min, clock)

    def identity(self, scope: Mapping[str, Any], seen: Asked, headers: Mapping[str, str]) -> Identity | None:
        """Returns the user of a request; None if the request names no known user. Raises Refusal, also beyond the
        rate limit.
        """
        found = self._found(scope, seen, headers)
        key = f"user {found.name}" if found else f"address {seen.address}"
        wait_s = self._rates.wait_s(key)
        if wait_s:
            raise too_many("too many requests: wait before the next one", wait_s)
        return found

    def check(self, who: Identity | None, needed: Role) -> Identity:
        """Returns the user if the user's role permits what needs the role `needed`. Raises Refusal otherwise."""
        if who is None:
            raise not_logged_in(f"authentication is required: {self._why_token()}")
        if not allows(who.role, needed):
            raise not_allowed(f"this needs the role {needed}, and {who.name} is {who.role}")
        return who

    def check_page(self, who: Identity, seen: Asked, method: str, headers: Mapping[str, str]) -> None:
        """Checks that an action comes from our own page if the browser authenticates by itself (CSRF).

        Raises Refusal.
        """
        if method in SAFE:
            return
        check_origin(seen, headers)
        if who.csrf and not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), who.csrf.encode()):
            raise not_allowed(
                f"the header {CSRF_HEADER} is missing or outdated: send the value `csrf` from GET /api/v1/me"
            )

    def log_in(self, secret: str, seen: Asked) -> tuple[str, Session, Token]:
        """Starts a browser session for the owner of the token `secret`. Returns the cookie, the session and the
        token. Raises Refusal.
        """
        token = self._token(secret, seen)
        cookie, session = self.sessions.begin(token.name, token.hash, token.expires_at_s)
        return cookie, session, token

    def stands(self, who: Identity) -> bool:
        """Returns whether a user's access is still valid: the token may have been revoked, or the session may have
        ended.

        raises: Refusal
        """
        if who.expires_at_s is not None and self._clock() >= who.expires_at_s:
            return False
        try:
            if who.by in ("token", "cookie"):
                return self._tokens.named(who.name, self._clock()) is not None
        except TokensUnusable:
            return False
        return who.by == "proxy" or not self.has_tokens()

    # Inside ----------------------------------------------------------------------------------------------------

    def _found(self, scope: Mapping[str, Any], seen: Asked, headers: Mapping[str, str]) -> Identity | None:
        if "authorization" in headers:
            return self._by_token(headers["authorization"], seen)
        if (cookie := _cookie(headers, seen.host)) and (found := self._by_cookie(cookie, seen)):
            return found
        return self._by_proxy(seen, headers) or self._by_loopback(scope, seen)

    def _by_token(self, header: str, seen: Asked) -> Identity:
        kind, _, secret = header.partition(" ")
        if kind.lower() != "bearer" or not secret.strip():
            raise bad_request("the header Authorization must have the form: Bearer TOKEN")
        token = self._token(secret.strip(), seen)
        return Identity(
            name=token.name,
            role=token.role,
            by="token",
            address=seen.address,
            expires_at_s=token.expires_at_s,
        )

    def _token(self, secret: str, seen: Asked) -> Token:
        """Returns the token with this secret.

        Raises Refusal; after too many wrong ones, an address has to wait.
        """
        if self._failures.is_empty(seen.address):
            again_s = self._failures.full_s(seen.address)
            raise too_many("too many wrong tokens from this address: wait before the next try", again_s)
        try:
            token = self._tokens.token(secret, self._clock())
        except TokensUnusable as error:
            raise unavailable(str(error)) from error
        if token is None:
            self._failures.wait_s(seen.address)
            raise not_logged_in(f"the token is unknown, revoked or expired: {MAKE_ONE}")
        return token

    def _by_cookie(self, secret: str, seen: Asked) -> Identity | None:
        session = self.sessions.session(secret)
        if session is None:
            return None
        try:
            token = self._tokens.named(session.token, self._clock())
        except TokensUnusable as error:
            raise unavailable(str(error)) from error
        if token is None or token.hash != session.token_hash:  # revoked meanwhile
            self.sessions.end(secret)
            return None
        return Identity(
            name=token.name,
            role=token.role,
            by="cookie",
            address=seen.address,
            csrf=session.csrf,
            expires_at_s=session.expires_at_s,
        )

    def _by_proxy(self, seen: Asked, headers: Mapping[str, str]) -> Identity | None:
        """Returns the user that a trusted proxy has authenticated; the header is ignored from other
        senders.
        """
        name = headers.get(self._settings.user_header.lower(), "") if self._settings.user_header else ""
        if not name or not seen.is_trusted or not NAME.fullmatch(name):
            return None
        role = _role(self._settings.user_role)
        try:
            if token := self._tokens.named(
                name, self._clock()
            ):  # a token of the same name may have another role
                role = token.role
        except TokensUnusable as error:
            raise unavailable(str(error)) from error
        return self._with_csrf(Identity(name=name, role=role, by="proxy", address=seen.address))

    def _by_loopback(self, scope: Mapping[str, Any], seen: Asked) -> Identity | None:
        """Returns the local administrator for a connection of the same user on this machine, as long as
        there are no tokens.
        """
        client, server = scope.get("client"), scope.get("server")
        if not (client and server and server[1] is not None):  # a Unix socket has no such ends
            return None
        if not (seen.is_direct and is_loopback(str(client[0]))):
            return None
        if self.has_tokens():
            return None
        uid = peer_uid((str(client[0]), int(client[1])), (str(server[0]), int(server[1])))
        if uid not in (os.getuid(), 0):
            return None
        return self._with_csrf(Identity(name="local", role="admin", by="loopback", address=seen.address))

    def has_tokens(self) -> bool:
        """Returns whether the server has access tokens. Raises Refusal."""
        try:
            return bool(self._tokens.tokens())
        except TokensUnusable as error:
            raise unavailable(str(error)) from error

    def _with_csrf(self, who: Identity) -> Identity:
        csrf = hmac.new(self._key, f"{who.by} {who.name}".encode(), hashlib.sha256).hexdigest()[:32]
        return replace(who, csrf=csrf)

    def _why_token(self) -> str:
        if self.has_tokens():
            return f"send it as Authorization: Bearer TOKEN, or log in; {MAKE_ONE}"
        return (
            f"without tokens, only the user who runs the server can use it, from the same machine; {MAKE_ONE}"
        )


def _role(text: str) -> Role:
    return "operator" if text == "operator" else "admin" if text == "admin" else "viewer"


def cookie_name(host: str) -> str:
    """Returns the name of the session cookie, which contains the port, because cookies are shared between
    ports.
    """
    port = host.rpartition(":")[2]
    return f"{COOKIE}-{port}" if port.isdigit() and ":" in host else COOKIE


def _cookie(headers: Mapping[str, str], host: str) -> str:
    name = cookie_name(host)
    try:
        cookies = SimpleCookie(headers.get("cookie", "")[:8_192])
    except CookieError:
        return ""
    return cookies[name].value if name in cookies else ""
