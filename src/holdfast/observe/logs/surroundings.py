"""Reads the lines around the first error of a diagnosis again, for display.

Skips what cannot be read twice.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from holdfast.model.diagnoses import FirstError
from holdfast.model.matches import Skipped
from holdfast.observe.logs.blocks import COLOUR
from holdfast.observe.logs.streams import Unreadable
from holdfast.observe.logs.tree import Log, find, opened
from holdfast.parsers.log_lines.wrapped_json import unwrapped
from holdfast.parsers.log_lines.wrapped_lines import WIDTH_MIN

LINES = 3  # on each side
AROUND_BYTES = 32 << 10  # on each side: three lines longer than that are not for people
UNPACKED_BYTES_MAX = 256 << 20  # of what must be read from its start to get there
COMPARED_CHARS = 400
READ_BYTES = 1 << 20
_END = re.compile(rb"\r\n|\n|\r")


def with_surroundings(first: FirstError, paths: Sequence[Path]) -> FirstError:
    """Returns the first error with the three lines before and after it, if the log still contains it at that
    position.

    Never raises.
    """
    if first.line is None or first.before:
        return first
    for file in find(paths, _nothing):
        if file.name == first.file or first.file.startswith(f"{file.name}/"):
            for log in opened(file, _nothing):
                if log.name == first.file:
                    return _of_log(first, log, file.path)
    return first


def _nothing(_: Skipped) -> None:
    """Ignores a skipped file, because the search has reported it."""


def _of_log(first: FirstError, log: Log, path: Path) -> FirstError:
    begin, size = (
        max(0, first.offset - AROUND_BYTES),
        2 * AROUND_BYTES + len(first.text.encode("utf-8", "replace")),
    )
    try:
        if log.file is not None:
            with path.open("rb") as plain:
                plain.seek(begin)
                return _around(first, plain.read(size))
        if begin > UNPACKED_BYTES_MAX:
            return first
        while begin > 0:
            passed = log.stream.read(min(begin, READ_BYTES))
            if not passed:
                return first
            begin -= len(passed)
        window = b""
        while len(window) < size and (more := log.stream.read(size - len(window))):
            window += more
    except (OSError, Unreadable):
        return first
    return _around(first, window)


def _around(first: FirstError, window: bytes) -> FirstError:
    """Returns the first error with the lines around that line of the window which has its text, nearest to
    its offset.
    """
    lines = _END.split(window)
    texts = [COLOUR.sub(b"", unwrapped(line)).decode("utf-8", "replace").rstrip() for line in lines]
    want = first.text.strip()[:COMPARED_CHARS]
    middle = min(first.offset, AROUND_BYTES)
    best, distance, at = -1, len(window) + 1, 0
    for number, line in enumerate(lines):
        text = texts[number].lstrip()
        is_it = text.startswith(want) or (
            len(text) >= WIDTH_MIN and want.startswith(text)
        )  # a terminal cut it
        if is_it and abs(at - middle) < distance:
            best, distance = number, abs(at - middle)
        at += len(line) + 1
    if best < 0:
        return first
    # The window begins and ends in the middle of a line.
    low = 0 if first.offset <= AROUND_BYTES else 1
    is_whole = len(window) < 2 * AROUND_BYTES and texts[-1]
    high = len(texts) if is_whole else len(texts) - 1
    raw = lines[best].decode("utf-8", "replace").rstrip()
    return replace(
        first,
        verbatim=raw if raw != texts[best] else "",
        before=tuple(texts[max(low, best - LINES) : best]),
        after=tuple(texts[best + 1 : min(high, best + 1 + LINES)]),
    )
