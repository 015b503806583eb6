"""Suppresses warnings that an earlier attempt of the job already gave. Pure.

This applies to the console, the fault-tolerance log and `holdfast log`. The journal keeps every warning.
"""

import re

from holdfast.late_pattern import late

# Findings about how the job runs, which tend to repeat in each attempt. Findings about one attempt (a hang, a
# diverged loss, processes left behind) are always shown.
WARNINGS = frozenset(
    {
        *(
            "check",
            "checks-passed",
            "log",
            "no-socket",
            "not-seen",
            "output",
            "ranks-unknown",
            "reaper",
            "worlds",
        ),
        *("slowdown", "slowdown-over", "platform-slowdown", "straggler", "straggler-over", "throughput-drop"),
    }
)
KEPT_MAX = 1_000
QUOTED_MAX = 100
ATTEMPT = late(r"\battempt-\d+")
# A number after one of these words identifies something, anywhere else it is an amount.
NUMBER = late(
    r"(?P<who>\b(?:ranks?|workers?|nodes?|devices?|[GN]PUs?) \d+(?:(?:, | and )\d+)*)|(?<![\w-])\d+(?:[.,:]\d+)*"
)


class Repeats:
    """The warnings that a job has logged so far, each with the first attempt that logged it."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], int] = {}
        self._said_in: int | None = None

    def shown(self, finding: str, text: str, attempt: int) -> str | None:
        """Returns what to print for a warning; None if it is suppressed.

        The first repeated warning of an attempt is replaced by one line, and later ones are suppressed.
        """
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
