"""Stores access tokens in a file with their hashes, names and roles, which only its owner can read.

The secret of a token is shown once, when it is created.
"""

import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.model.documents.actions import Role

PREFIX = "holdfast_"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
TOKENS_MAX = 1_000
FILE_BYTES_MAX = 1 << 20
_LOOKS_LIKE = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{16,}}")


class Token(Struct, frozen=True, kw_only=True):
    """An access token.

    `hash`: SHA-256 of the token, whose 256 random bits need neither salt nor a slow hash.
    """

    name: str
    role: Role
    hash: str
    created_at_s: float
    expires_at_s: float


class TokensUnusable(Exception):
    """Raised when the file of tokens cannot be read or written. The message is one line: why, and what to do."""


class TokenRefused(Exception):
    """Raised when the name of a token is invalid, exists already, or does not exist."""


class TokenFile:
    """The file of tokens.

    It is read again whenever it has changed, so a revoked token is rejected at once.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokens.json"
        self._read_as: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    def tokens(self) -> tuple[Token, ...]:
        """Returns all tokens, including expired ones. Raises TokensUnusable."""
        try:
            seen = self.path.stat()
        except FileNotFoundError:
            self._read_as, self._tokens = None, ()
            return ()
        except OSError as error:
            raise TokensUnusable(f"{self.path} cannot be read: {error}") from error
        read_as = (seen.st_ino, seen.st_mtime_ns, seen.st_size)
        if read_as != self._read_as:
            self._tokens = self._read()
            self._read_as = read_as
        return self._tokens

    def token(self, secret: str, now_s: float) -> Token | None:
        """Returns the token with this secret; None if it is unknown, revoked or expired.

        Raises TokensUnusable.
        """
        wanted = hashed(secret)
        found = None
        for one in self.tokens():  # all of them, so that the duration reveals nothing
            if hmac.compare_digest(one.hash, wanted):
                found = one
        return found if found is not None and now_s < found.expires_at_s else None

    def named(self, name: str, now_s: float) -> Token | None:
        """Returns the valid token of this name; None if there is none. Raises TokensUnusable."""
        return next((one for one in self.tokens() if one.name == name and now_s < one.expires_at_s), None)

    def create(self, name: str, role: Role, now_s: float, expires_s: float) -> str:
        """Creates a token and returns its secret, which is not stored.

        Raises TokenRefused and TokensUnusable.
        """
        if not NAME.fullmatch(name):
            raise TokenRefused(
                f"{name!r} cannot be the name of a token: letters, digits, dot, @, underscore and hyphen, at most 64"
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        made = Token(
            name=name, role=role, hash=hashed(secret), created_at_s=now_s, expires_at_s=now_s + expires_s
        )

        def add(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            if any(one.name == name and now_s < one.expires_at_s for one in tokens):
                raise TokenRefused(
                    f"the token {name} exists already: revoke it first, or choose another name"
                )
            kept = tuple(one for one in tokens if one.name != name)
            if len(kept) >= TOKENS_MAX:
                raise TokenRefused(f"there are {TOKENS_MAX} tokens: revoke unused ones")
            return (*kept, made)

        self._change(add)
        return secret

    def revoke(self, name: str) -> None:
        """Deletes a token. Raises TokenRefused and TokensUnusable."""

        def remove(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
            kept = tuple(one for one in tokens if one.name != name)
            if len(kept) == len(tokens):
                known = ", ".join(one.name for one in tokens[:8]) or "none"
                raise TokenRefused(f"there is no token {name}; tokens are {known}")
            return kept

        self._change(remove)

    def _read(self) -> tuple[Token, ...]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "rb") as file:
                mode = os.fstat(descriptor).st_mode
                raw = file.read(FILE_BYTES_MAX)
            if mode & 0o077:
                raise TokensUnusable(
                    f"{self.path} is readable by other users (mode {mode & 0o777:o}): chmod 600 {self.path}, "
                    "and revoke its tokens if another user may have changed it"
                )
            return msgspec.json.decode(raw, type=tuple[Token, ...])
        except OSError as error:
            raise TokensUnusable(f"{self.path} cannot be read: {error}") from error
        except msgspec.MsgspecError as error:
            raise TokensUnusable(
                f"{self.path} is damaged ({error}): delete it and create new tokens"
            ) from error

    def _change(self, change: Callable[[tuple[Token, ...]], tuple[Token, ...]]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _locked(self.path.with_suffix(".lock")):
                tokens = change(self._read() if self.path.exists() else ())
                _write(self.path, msgspec.json.encode(tokens))
        except OSError as error:
            raise TokensUnusable(f"{self.path} cannot be written: {error}") from error


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def has_token(text: str) -> bool:
    """Returns True if a text contains something that looks like an access token."""
    return _LOOKS_LIKE.search(text) is not None


def without_tokens(text: str) -> str:
    return _LOOKS_LIKE.sub(f"{PREFIX}***", text)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    """Writes the file atomically. Raises OSError."""
    part = path.with_suffix(f".{os.getpid()}.part")
    with suppress(FileNotFoundError):
        part.unlink()
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    part.rename(path)
