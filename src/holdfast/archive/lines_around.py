"""Finds a line of evidence in its log, and returns it with the lines around it.

Reads a limited part of the file.

Paths outside the job's folder are rejected, whatever the journal contains.
"""

from pathlib import Path
from typing import BinaryIO

from holdfast.observe.logs.blocks import COLOUR
from holdfast.views.jobs.seen import Surroundings

LINES = 3  # per side
AROUND_BYTES = 16 << 10  # per side
SEARCHED_BYTES_MAX = 32 << 20  # the end of a log without a known offset
COMPARED_BYTES = 200
LINE_CHARACTERS_MAX = 2_000


def surroundings(root: Path, file: str, text: str, offset: int | None = None) -> Surroundings | None:
    """Returns the lines around a line of evidence; None if the file no longer contains the line.

    `text`: text of the line. `offset`: its last known offset in bytes.
    """
    path = inside(root, file)
    want = text.strip().encode("utf-8", "replace")[:COMPARED_BYTES]
    if path is None or not want:
        return None
    try:
        with path.open("rb") as log:
            size_bytes = log.seek(0, 2)
            if offset is not None and 0 <= offset < size_bytes:
                begin = max(0, offset - AROUND_BYTES)
                window = _read(log, begin, 2 * AROUND_BYTES + len(want))
                at = window.find(want, max(0, offset - begin - COMPARED_BYTES))
                if at >= 0:
                    return _cut(window, at, begin)
            begin = max(0, size_bytes - SEARCHED_BYTES_MAX)
            at = _read(log, begin, SEARCHED_BYTES_MAX).find(want)
            if at < 0:
                return None
            start = max(0, begin + at - AROUND_BYTES)
            window = _read(log, start, 2 * AROUND_BYTES + len(want))
            return _cut(window, begin + at - start, start)
    except (OSError, ValueError):
        return None


def inside(root: Path, file: str) -> Path | None:
    """Returns the path of a file in this folder; None if the name leads outside it."""
    try:
        path = (root / file).resolve()
        return path if path.is_relative_to(root.resolve()) and path.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None


def _read(log: BinaryIO, begin: int, size: int) -> bytes:
    log.seek(begin)
    return log.read(size)


def _cut(window: bytes, at: int, begin: int) -> Surroundings:
    """Cuts a window of bytes to whole lines.

    It starts in the middle of a line unless it starts with the file.
    """
    start = window.rfind(b"\n", 0, at) + 1
    end = window.find(b"\n", at)
    before = window[:start].split(b"\n")[:-1]
    if begin > 0:
        before = before[1:]
    after = window[end + 1 :].split(b"\n")[:-1] if end >= 0 else []
    return Surroundings(
        offset=begin + start,
        before=tuple(map(_text, before[-LINES:])),
        after=tuple(map(_text, after[:LINES])),
    )


def _text(line: bytes) -> str:
    return COLOUR.sub(b"", line).decode("utf-8", "replace").rstrip()[:LINE_CHARACTERS_MAX]
