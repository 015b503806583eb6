"""Regular expressions that are compiled when they are first used.

Hundreds of them lie ready for what a log, a stack or a command may hold. Most processes meet few of these, and every
start of an agent paid for all. For any room; pure.
"""

import re
from typing import Any, AnyStr, Generic, cast

_PARTS = (
    *("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn", "scanner"),
    *("pattern", "flags", "groups", "groupindex"),
)


def late(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What re.compile gives for these, save that a fault in them is found at the first use. raises then: re.error"""
    return cast("re.Pattern[AnyStr]", LatePattern(text, flags))


class LatePattern(Generic[AnyStr]):
    """Has all parts of a compiled pattern from the first use on, so that later ones cost nothing more."""

    __slots__ = ("_flags", "_text", *_PARTS)

    def __init__(self, text: AnyStr, flags: int) -> None:
        self._text: AnyStr = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there yet."""
        if name not in _PARTS:
            raise AttributeError(f"a pattern has no {name!r}")
        compiled = re.compile(self._text, self._flags)
        for part in _PARTS:
            setattr(self, part, getattr(compiled, part))
        return getattr(compiled, name)

    def __repr__(self) -> str:
        return f"late({self._text!r}, {self._flags!r})"
