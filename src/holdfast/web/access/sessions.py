"""Keeps the sessions of browsers that have logged in with a token. In memory: a new server asks anew."""

import hashlib
import secrets
from collections.abc import Callable

from msgspec import Struct

SESSIONS_MAX = 5_000
SESSION_S_MAX = 12 * 3600.0
COOKIE = "holdfast"


class Session(Struct, frozen=True):
    """`token`: the name of the token that it began with: it ends with that."""

    token: str
    token_hash: str
    csrf: str
    expires_at_s: float


class Sessions:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def begin(self, token: str, token_hash: str, expires_at_s: float) -> tuple[str, Session]:
        """The secret for the cookie, and the session."""
        now_s = self._clock()
        if len(self._sessions) >= SESSIONS_MAX:
            self._forget(now_s)
        secret = secrets.token_urlsafe(32)
        until_s = min(expires_at_s, now_s + SESSION_S_MAX)
        session = Session(token, token_hash, secrets.token_urlsafe(24), until_s)
        self._sessions[_key(secret)] = session
        return secret, session

    def session(self, secret: str) -> Session | None:
        found = self._sessions.get(_key(secret))
        if found is not None and self._clock() >= found.expires_at_s:
            self.end(secret)
            return None
        return found

    def end(self, secret: str) -> None:
        self._sessions.pop(_key(secret), None)

    def _forget(self, now_s: float) -> None:
        """Those that are over; then the oldest ones."""
        self._sessions = {key: one for key, one in self._sessions.items() if now_s < one.expires_at_s}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]


def _key(secret: str) -> str:
    """What is kept of it: a picture of the memory opens no session."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
