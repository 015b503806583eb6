"""Compiles regular expressions at first use.

Hundreds of patterns exist for logs, stacks and commands. Most processes use few of them, and every start of an agent
paid for all. Every package may import this module; pure.
"""

import re
from typing import Any, AnyStr, Generic, cast

_PARTS = (
    *("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn", "scanner"),
    *("pattern", "flags", "groups", "groupindex"),
)


def late(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Like re.compile, except that an invalid pattern raises re.error at first use."""
    return cast("re.Pattern[AnyStr]", LatePattern(text, flags))


class LatePattern(Generic[AnyStr]):
    """Copies all attributes of the compiled pattern at first use, so that later uses cost nothing more."""

    __slots__ = ("_flags", "_text", *_PARTS)

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Called only for attributes that do not exist yet."""
        if name not in _PARTS:
            raise AttributeError(f"a pattern has no {name!r}")
        compiled = re.compile(self._text, self._flags)
        for part in _PARTS:
            setattr(self, part, getattr(compiled, part))
        return getattr(compiled, name)

    def __repr__(self) -> str:
        return f"late({self._text!r}, {self._flags!r})"
