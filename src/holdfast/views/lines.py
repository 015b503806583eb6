"""Provides lines of a text report, and their styles on a terminal. Prints nothing."""

import os
import sys
from collections.abc import Iterable, Iterator

from msgspec import Struct

_STYLES = {"strong": "\x1b[1m", "error": "\x1b[1;31m", "quiet": "\x1b[2m"}


class Line(Struct, frozen=True):
    """A line of a text report. `style`: "strong", "error", "quiet", or empty for normal text."""

    text: str = ""
    style: str = ""


def for_terminal(lines: Iterable[Line]) -> Iterator[str]:
    """Yields the lines as text, in colour if stdout supports it. Source: no-color.org."""
    wants_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in lines:
        yield f"{_STYLES[line.style]}{line.text}\x1b[0m" if line.style and wants_colour else line.text
