"""Keeps warnings that were given in an earlier attempt from being printed again in each later one. Pure.

For what people read: the console, the fault-tolerance log and `holdfast log`. The journal has every one of them.
"""

import re

from holdfast.late_pattern import late

# Findings that describe how the job runs, and so tend to come again with each attempt. What happened in an attempt (a hang, a
# diverged loss, processes left behind) is news each time.
WARNINGS = frozenset(
    {
        *("check", "checks-passed", "log", "no-socket", "not-seen", "output", "reaper"),
        *("slowdown", "slowdown-over", "platform-slowdown", "straggler", "straggler-over", "throughput-drop"),
    }
)
KEPT_MAX = 1_000
QUOTED_MAX = 100
ATTEMPT = late(r"\battempt-\d+")
# A number tells who it is behind one of these words, and how much anywhere else.
NUMBER = late(
    r"(?P<who>\b(?:ranks?|workers?|nodes?|devices?|[GN]PUs?) \d+(?:(?:, | and )\d+)*)|(?<![\w-])\d+(?:[.,:]\d+)*"
)


class Repeats:
    """Which warnings were given, each with the first attempt in which it was."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], int] = {}
        self._said_in: int | None = None

    def shown(self, finding: str, text: str, attempt: int) -> str | None:
        """What to print: the text; one line in its place, for the first of an attempt that comes again; else None."""
        if finding not in WARNINGS:
            return text
        key = finding, _without_amounts(text)
        if key not in self._first and len(self._first) >= KEPT_MAX:
            del self._first[next(iter(self._first))]
        first = self._first.setdefault(key, attempt)
        if first >= attempt:
            return text
        if self._said_in == attempt:
            return None
        self._said_in = attempt
        return f"as before: {_quoted(text)} (warnings of earlier attempts are not repeated)"


def _without_amounts(text: str) -> str:
    return NUMBER.sub(lambda found: found["who"] or "#", ATTEMPT.sub("attempt", text))


def _quoted(text: str) -> str:
    line = " ".join(re.split(r"\s+", text.strip()))
    return line if len(line) <= QUOTED_MAX else f"{line[: QUOTED_MAX - 3].rstrip()}..."
