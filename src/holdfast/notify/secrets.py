"""Masks secrets of channels, in error messages of libraries (which may contain URLs) and in lists for
users.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

MASK = "***"
SECRET_KEYS = frozenset({"secret", "token", "password", "key", "app_secret"})
ADDRESS_KEYS = frozenset({"url"})  # most receivers put a secret into the path or the query
SHORT = 4  # a shorter secret would mask parts of words


def secret_words(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the texts in a channel's options that must never be shown, not even in an error; the longest
    first.
    """
    found: set[str] = set()
    for key in (SECRET_KEYS | ADDRESS_KEYS) & options.keys():
        values = options[key] if isinstance(options[key], list) else [options[key]]
        for value in map(str, values):
            found.add(value)
            if key in ADDRESS_KEYS:
                found.update(_parts(value))
    return tuple(sorted((one for one in found if len(one) >= SHORT), key=len, reverse=True))


def without_secrets(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def shown(key: str, value: Any) -> Any:
    """Returns the value of an option for display: secrets are masked, and of a URL only the host is shown."""
    if key in SECRET_KEYS:
        return MASK
    if key in ADDRESS_KEYS:
        return [_place(one) for one in value] if isinstance(value, list) else _place(str(value))
    return value


def _place(url: str) -> str:
    """Returns scheme and host of an address; in addresses of Apprise, the host may be a token and is
    masked too.
    """
    scheme, found, _ = url.partition("://")
    if not found:
        return MASK
    if scheme not in ("http", "https"):
        return f"{scheme}://{MASK}"
    try:
        split = urlsplit(url)
        port = f":{split.port}" if split.port else ""
    except ValueError:
        return f"{scheme}://{MASK}"
    is_bare = not (split.path.strip("/") or split.query or split.username)
    return url if is_bare else f"{scheme}://{split.hostname or ''}{port}/{MASK}"


def _parts(url: str) -> list[str]:
    try:
        split = urlsplit(url)
    except ValueError:
        return []
    return [part for part in (split.password or "", split.query, split.path.rsplit("/", 1)[-1]) if part]
