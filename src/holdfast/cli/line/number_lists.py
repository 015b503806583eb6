"""Parses lists of numbers such as `0,4-6`."""

import re

from holdfast.cli.line.flags import BadParameter

NUMBER_MAX = 1 << 20
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def numbers(text: str | None, flag: str, of: str) -> set[int] | None:
    """Parses a list of numbers: {0, 4, 5, 6} for `0,4-6`; None for None. Raises BadParameter.

    `of`: what the numbers are, for messages, such as "ranks".
    """
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < NUMBER_MAX:
            raise BadParameter(f"{text!r} is not a list of {of} such as 0,4-6", param_hint=flag)
        found.update(range(first, last + 1))
    return found
