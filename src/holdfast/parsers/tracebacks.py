"""Finds the Python tracebacks in the lines of a log. Pure, and never raises for what it reads.

Ranks share a log: each line may carry a prefix that says whose it is, and lines of several ranks interleave:

    [rank1]: Traceback (most recent call last):
    [rank0]: Traceback (most recent call last):
    [rank1]:   File "/data/train.py", line 88, in step
    [rank1]:     raise RuntimeError("bad batch")
    [rank1]: RuntimeError: bad batch

What stands before "Traceback" is the prefix: torch's `[rank1]: `, torchrun's `[default1]:`, srun's `1: `, a time
stamp. Lines of one rank belong together though the times in their prefixes differ. It does not judge which
traceback is the cause.

source: CPython, Lib/traceback.py; torch, torch/distributed/distributed_c10d.py (the hook that writes `[rankN]: `)
"""

import re
from collections.abc import Iterable

from msgspec import Struct

FOUND_MAX = 1000
LINE_MAX_BYTES = 4096
MESSAGE_MAX = 2000
MESSAGE_LINES_MAX = 20
OPEN_LINES_MAX = 5000  # a writer that is silent so long has died in the midst of it
FOREIGN_MAX = 50  # lines of others, without a prefix, in the midst of a traceback
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "FATAL", "NOTE")

# A time, as logs begin with one: "2026-11-20 21:45:36,123 ", "[21:45:36] ", "2026-11-20T21:45:36.1Z stderr F ".
TIME = re.compile(
    r"\[?(?:\d{4}[-/]\d\d[-/]\d\d[T _])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?(?: std(?:out|err) [FP])?[ :|]"
)
TIME_FROM = re.compile(r"[\[\d]")
RANK = re.compile(
    r"\[[Rr]ank ?(?P<a>\d+)\]|\[(?:default|[\w.-]*trainer)(?P<b>\d+)\]:|^(?P<c>\d+): ?$|rank[ =:](?P<d>\d+)"
)
# Times taken out, the prefix ends behind the last of these; "" is a prefix too.
PREFIX = re.compile(
    r"(?:\s*(?:\[[^\]\s]{1,40}( \d+)?\]:?|\(\w[\w ]{0,40}(?:pid=\d+[^)]*)\)|\d{1,6}:(?= )|[\w.-]{1,60} \|)[ ]?)*"
)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
START = re.compile(r"Traceback \(most recent call last\):\s*$")
FRAME = re.compile(r' {1,2}File "(?P<file>[^"]*)", line (?P<line>\d+)(?:, in (?P<function>.*))?$')
END = re.compile(r"(?P<type>[^\W\d][\w.]*(?:\.<locals>\.[\w.]+)?)(?:: ?(?P<message>.*))?$")
CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d|[/\\]Lib[/\\]|^<")


class Traceback(Struct, frozen=True, kw_only=True):
    """One traceback, or a chain of them. Lines count from 0. `rank`: as the prefix says, else None.

    `type`, `message`: the last exception of the chain; `first_type`, `first_message`: the one it began with.
    Frames: "path/of/train.py:88 step"; `user_frame` is outside installed libraries, "" where there is none.
    """

    type: str
    message: str
    frame: str
    user_frame: str
    first_type: str
    first_message: str
    rank: int | None = None
    first_line: int
    last_line: int


class Line(Struct, frozen=True):
    number: int
    text: str  # without its prefix


class Whose(Struct, frozen=True):
    """Who wrote a line: its prefix without times. One traceback is made of lines of one writer."""

    prefix: str
    rank: int | None


class Open(Struct):
    """A traceback being read."""

    first_line: int
    frames: list[str]
    last_line: int = 0
    type: str = ""
    message: str = ""
    message_lines: int = 0
    foreign_lines: int = 0
    first: tuple[str, str] | None = None
    state: str = "frames"  # frames; ended: the exception is known, more of its message may come; linked
    user_frame: str = ""


def tracebacks(lines: Iterable[bytes]) -> tuple[Traceback, ...]:
    """All of them, in the order in which they end; at most 1000. One that is cut off, without a type, is left out."""
    open_by: dict[Whose, Open] = {}
    done: list[Traceback] = []
    for number, raw in enumerate(lines):
        if number % OPEN_LINES_MAX == 0:
            _close_old(open_by, done, number)
        if not open_by and b"Traceback (most" not in raw:
            continue  # nearly every line of a log: not worth decoding
        text = raw[:LINE_MAX_BYTES].decode("utf-8", "replace").rstrip("\r\n")
        text = COLOUR.sub("", text) if "\x1b" in text else text
        whose, rest = split_prefix(text)
        if START.match(rest.lstrip()):
            _begin(open_by, done, whose, Line(number, rest))
        elif (one := open_by.get(whose)) and not _goes_on(one, Line(number, rest)):
            _close(done, whose, open_by.pop(whose))
        if len(done) >= FOUND_MAX:
            break
    for whose, one in open_by.items():
        _close(done, whose, one)
    return tuple(sorted(done, key=lambda one: (one.last_line, one.first_line)))


def split_prefix(text: str) -> tuple[Whose, str]:
    """`[rank1]: 12:00:01 ValueError: x` -> rank 1, `ValueError: x`. An indent of the rest is kept."""
    kept = ""
    rest = text
    for _ in range(4):  # a collector's time, the launcher's prefix, the program's own time
        if (time := TIME.match(rest)) and TIME_FROM.match(rest):
            rest = rest[time.end() :]
        elif (prefix := PREFIX.match(rest)) and prefix.end():
            kept += prefix[0].strip()
            rest = rest[prefix.end() :]
        else:
            break
    said = RANK.search(kept)
    rank = next((int(one) for one in said.groups() if one), None) if said else None
    return Whose(kept, rank), rest


def _begin(open_by: dict[Whose, Open], done: list[Traceback], whose: Whose, line: Line) -> None:
    one = open_by.get(whose)
    if one is not None and one.state == "linked":
        one.frames, one.state, one.user_frame = [], "frames", ""
        return
    if one is not None:
        _close(done, whose, one)
    open_by[whose] = Open(first_line=line.number, frames=[], last_line=line.number)


def _goes_on(one: Open, line: Line) -> bool:
    """Takes the line in; False where it no longer belongs to the traceback."""
    if one.state == "frames":
        return _in_frames(one, line)
    text = line.text.strip()
    if text.startswith(CHAINED):
        one.first = one.first or (one.type, one.message)
        one.state = "linked"
        return True
    if one.state == "linked":
        return not text
    return _more_of_message(one, line)


def _in_frames(one: Open, line: Line) -> bool:
    text = line.text
    if frame := FRAME.match(text):
        place = f"{frame['file']}:{frame['line']} {frame['function'] or ''}".strip()
        one.frames.append(place)
        if not LIBRARY.search(frame["file"]):
            one.user_frame = place
    elif text.startswith(" ") or not text:
        pass  # source, carets, "[Previous line repeated ...]"
    elif (end := END.match(text)) and end["type"] not in LEVELS:
        one.type, one.message = end["type"], (end["message"] or "")[:MESSAGE_MAX]
        one.state, one.message_lines = "ended", 1
    else:
        one.foreign_lines += 1
        return one.foreign_lines <= FOREIGN_MAX
    one.last_line = line.number
    return True


def _more_of_message(one: Open, line: Line) -> bool:
    """A message of several lines ends with an empty one; two empty lines may part it from a chained traceback."""
    if not line.text.strip():
        one.message_lines = MESSAGE_LINES_MAX  # only a chain may follow now
        return one.last_line + 8 > line.number
    if one.message_lines >= MESSAGE_LINES_MAX or not _is_message(line.text):
        return False
    one.message = f"{one.message}\n{line.text.rstrip()}"[:MESSAGE_MAX]
    one.message_lines += 1
    one.last_line = line.number
    return True


def _is_message(text: str) -> bool:
    """Only indented lines count: what follows unindented is mostly the log going on."""
    return text.startswith((" ", "\t"))


def _close_old(open_by: dict[Whose, Open], done: list[Traceback], number: int) -> None:
    for whose, one in tuple(open_by.items()):
        if number - one.last_line > OPEN_LINES_MAX:
            _close(done, whose, open_by.pop(whose))


def _close(done: list[Traceback], whose: Whose, one: Open) -> None:
    if not one.type:
        return
    first_type, first_message = one.first or (one.type, one.message)
    done.append(
        Traceback(
            type=one.type,
            message=one.message.strip(),
            frame=one.frames[-1] if one.frames else "",
            user_frame=one.user_frame,
            first_type=first_type,
            first_message=first_message.strip(),
            rank=whose.rank,
            first_line=one.first_line,
            last_line=one.last_line,
        )
    )
