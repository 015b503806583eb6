"""Recognises lines of source code that a traceback shows: they are no messages, whatever they contain.

File "/job/loop.py", line 12, in get
  raise RuntimeError("CUDA error: out of memory")
"""

from typing import Protocol

LINES_MAX = 4  # of one statement, below its frame
FRAME, INDENT = b'  File "', b"    "
LINE_BYTES_MAX = 2048


class Text(Protocol):
    """The bytes of a block."""

    def rfind(self, sub: bytes, start: int, end: int, /) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes | bytearray: ...


def is_shown_code(text: Text, start: int, raw: bytes) -> bool:
    """Returns whether a line stands below a traceback's frame, and is indented further than the frame.

    `start`: offset of the line in the text; `raw`: the line. Lines of one writer have prefixes of the same length.
    """
    if INDENT not in raw:
        return False
    stop = start - 1
    for _ in range(LINES_MAX):
        if stop <= 0:
            return False
        begin = text.rfind(b"\n", max(0, stop - LINE_BYTES_MAX), stop) + 1
        line = bytes(text[begin:stop])
        at = line.find(FRAME)
        if at >= 0:
            return raw[at : at + len(INDENT)] == INDENT
        if INDENT not in line:
            return False
        stop = begin - 1
    return False
