"""Parses the stack dumps that Python's faulthandler appends to a file. Pure; never raises on its input.

A dump lists the newest thread first, so the main thread comes last; "Current thread" is the one that received the
signal, mostly but not always the main one (seen on Python 3.11 with the signal blocked in the main thread). An empty
line separates threads of one dump, but not dumps:

    Thread 0x00007fe9affff6c0 (most recent call first):
      File "/usr/lib/python3.11/threading.py", line 327 in wait
      ...

    Current thread 0x00007fe9b5686b80 (most recent call first):
      File "/data/\\u8bad\\u7ec3.py", line 2 in tr\\xe4ume

Beyond 100 threads a line `...` ends the dump and the main thread is missing; beyond 100 frames a line `  ...` ends
the stack, its innermost frames kept. Later versions add thread names, C stacks and `<truncated rest of calls>`.

source: CPython, Python/traceback.c
"""

import re

from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.samples import Stack

HEADER = late(r"(?P<who>Current thread|Thread) 0x[0-9a-fA-F]+ (\[.*\] )?\(most recent call first\):$")
FRAME = late(r'  File (?:"(?P<file>.*)"|\?\?\?), line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')
PREFACE = late(r"Fatal Python error|Timeout \(")  # begins a new dump, before an empty line
CUT = "..."  # alone on its line: there are more threads than listed
ESCAPE = late(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")


class Thread(Struct):
    """The stack of one thread in a dump of faulthandler, innermost frame first."""

    is_current: bool
    frames: list[str]


class Dump(Struct):
    """One stack dump of a process by faulthandler, with its threads in order."""

    threads: list[Thread]
    is_cut: bool = False


def last_stack(text: bytes, rank: int) -> Stack | None:
    """Returns the main thread's stack in the last complete dump; None if there is none, or without the main
    thread.

    An incomplete dump counts only if it is the only one and contains the main thread.
    """
    decoded = text.decode("utf-8", "replace")
    lines, _, broken = decoded.rpartition("\n")
    # A broken line that is neither a frame nor, after an empty line, another thread begins a new dump.
    whole = not broken or not (broken.startswith(" ") or lines.endswith("\n"))
    dumps = _dumps(lines)
    if not whole and len(dumps) > 1:
        dumps = dumps[:-1]
        whole = True
    if not dumps:
        return None
    frames = _main_frames(dumps[-1], whole=whole)
    return Stack(rank=rank, frames=frames) if frames else None


def _main_frames(dump: Dump, *, whole: bool) -> tuple[str, ...]:
    last = dump.threads[-1]
    if dump.is_cut or not whole:
        last = next((thread for thread in dump.threads if thread.is_current), Thread(False, []))
    return tuple(last.frames)


def _dumps(text: str) -> list[Dump]:
    dumps: list[Dump] = []
    goes_on = False  # the line before was the empty one between two threads of a dump
    prefaced = False
    for line in text.splitlines():
        if header := HEADER.match(line):
            if not dumps or prefaced or not goes_on:
                dumps.append(Dump([]))
            dumps[-1].threads.append(Thread(header["who"] != "Thread", []))
            prefaced = False
        elif PREFACE.match(line):
            prefaced = True
        elif dumps and line == CUT:
            dumps[-1].is_cut = True
        elif dumps and (frame := FRAME.match(line)):
            dumps[-1].threads[-1].frames.append(_frame(frame))
        goes_on = not line
    return dumps


def _frame(match: re.Match[str]) -> str:
    """Returns a frame as "/data/train.py:88 load", with names unescaped, which faulthandler
    writes in ASCII.
    """
    file = _unescape(match["file"] or "???")
    return f"{file}:{match['line']} {_unescape(match['function'])}"


def _unescape(name: str) -> str:
    return ESCAPE.sub(_character, name)


def _character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2] or match[3], 16)
    return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else match[0]
