"""Stores in memory the sessions of browsers that have logged in with a token; they are lost when the server
restarts.
"""

import hashlib
import secrets
from collections.abc import Callable

from msgspec import Struct

SESSIONS_MAX = 5_000
SESSION_S_MAX = 12 * 3600.0
COOKIE = "holdfast"


class Session(Struct, frozen=True):
    """A browser session. `token`: name of the token used to log in; the session ends when the token does."""

    token: str
    token_hash: str
    csrf: str
    expires_at_s: float


class Sessions:
    """All sessions of a server."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def begin(self, token: str, token_hash: str, expires_at_s: float) -> tuple[str, Session]:
        """Starts a session. Returns the secret for the cookie, and the session."""
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
        """Drops expired sessions, then the oldest ones."""
        self._sessions = {key: one for key, one in self._sessions.items() if now_s < one.expires_at_s}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]


def _key(secret: str) -> str:
    """Returns the hash under which a session is stored, so that a memory dump reveals no cookie."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
