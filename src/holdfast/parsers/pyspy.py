"""Parses the output of `py-spy dump`, as text and as JSON. Pure; never raises on its input.

The text, as `py-spy dump --pid 4711` prints it, with `--native` and `--locals`; names of threads are not escaped:

    Process 4711: /usr/bin/python3 train.py
    Python v3.11.7 (/usr/bin/python3.11)

    Thread 4711 (active+gil): "MainThread"
        clock_nanosleep (libc.so.6)
        load.<locals>.Reader.next (train.py:88)
            Arguments:
                self: <Reader at 0x7f6af7d65c10>
        <module> (train.py:120)
    Thread 0x7F6AF7D65C10 (idle)
        ...

An id in decimal is the kernel's, one in hex pthread's. The oldest thread comes first: the main one. The text has
short names of files, "torch/autograd/graph.py"; only JSON (and --full-filenames) has whole ones. With --subprocesses
several processes follow each other, parted by a line of hyphens. Where nothing could be read there is only the
error, on stderr or after the head:

    Error: Failed to get process executable name. Check that the process is running.

    Caused by:
        0: No such file or directory (os error 2)

source: py-spy, src/dump.rs and src/stack_trace.rs; seen from 0.3.11 to 0.4.3
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.late_pattern import late
from holdfast.model.flight.thread_stacks import NATIVE, RankStacks, ThreadStack

PROCESS = late(r"Process (\d{1,10}): ?(.*)$")
VERSION = late(r"Python v(\S{1,40})")
THREAD = late(r'Thread (\d{1,20}|0x[0-9A-Fa-f]{1,16}) \((idle|active\+gil|active)\)(?:: "(.*))?$')
# The name of a Python function has neither blanks nor brackets; a native one may, and then its file has none.
FRAME = late(r"    ([^\s()]+) \((.+)\)$")
NATIVE_FRAME = late(r"    (\S.*) \(([^()]*)\)$")
LINE = late(r"(.+):(\d{1,10})$")
SOURCE_OF_C = late(r"\.(c|cc|cpp|cxx|cu|cuh|h|hh|hpp|rs|S|s)$")
ERROR = late(r"Error: (.+)$")
CAUSE = late(r"    (?:\d+: )?(\S.*)$")
COLOUR = late(r"\x1b\[[0-9;]*m")
MAIN_NAME = "MainThread"
DUMPS_MAX, THREADS_MAX, FRAMES_MAX = (
    1000,
    4096,
    4096,
)  # py-spy itself gives up beyond so many threads or frames
TEXT_CHARACTERS_MAX = 64 << 20


class Dump(Struct, frozen=True, kw_only=True):
    """py-spy's dump of one process. `error`: py-spy's error message if it failed."""

    pid: int | None = None
    command: str = ""
    python: str = ""
    threads: tuple[ThreadStack, ...] = ()
    error: str = ""


def parse_text(text: str) -> tuple[ThreadStack, ...]:
    """Returns the threads of the requested process, main thread first, from its last dump that has any."""
    dumps = parse_dumps(text)
    found = [dump.threads for dump in dumps if dump.pid == dumps[0].pid and dump.threads]
    return found[-1] if found else ()


def parse_dumps(text: str) -> tuple[Dump, ...]:
    """Returns every dump in the text, in order; a text with only an error is one dump without a pid."""
    return tuple(one.dump() for one in _readings(text[:TEXT_CHARACTERS_MAX]))


def parse_json(data: bytes | str) -> tuple[ThreadStack, ...]:
    """Returns the threads of the requested process, main thread first; empty if this is no such JSON.

    The JSON lists the newest thread first, and with --subprocesses those of all processes, one after the
    other.
    """
    try:
        traces = msgspec.json.decode(data, type=list[Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ()
    known = [trace for trace in map(_trace, traces[:THREADS_MAX]) if trace is not None]
    asked = [trace for trace in known if trace.pid == known[0].pid]
    threads = [_thread(trace) for trace in reversed(asked)]
    return main_first(threads, asked[0].pid if asked else None)


def error_in(text: str) -> str:
    """Returns py-spy's error message as one line, its innermost cause last; empty if there is none."""
    return next((dump.error for dump in parse_dumps(text) if dump.error), "")


def main_first(threads: list[ThreadStack], pid: int | None) -> tuple[ThreadStack, ...]:
    """Returns the threads with the main thread first, then in their order.

    The main thread is the one with the process's own id, else the one named MainThread, else the oldest,
    which comes last.
    """
    tests = (
        lambda one: pid is not None and one.thread_id == pid,
        lambda one: one.name == MAIN_NAME,
        lambda one: True,
    )
    for is_it in tests:
        for at, one in enumerate(threads):
            if is_it(one):
                return (replace(one, is_main=True), *threads[:at], *threads[at + 1 :])
    return ()


# Text -----------------------------------------------------------------------------------------------------


class _Reading:
    """A dump while its lines are parsed."""

    def __init__(self, pid: int | None, command: str) -> None:
        self.pid, self.command, self.python = pid, command, ""
        self.errors: list[str] = []
        self.threads: list[tuple[ThreadStack, list[str]]] = []

    def hear(self, line: str) -> None:
        if header := THREAD.match(line):
            if len(self.threads) < THREADS_MAX:
                self.threads.append((_headed(header), []))
        elif error := ERROR.match(line):
            self.errors = [error[1].rstrip(".")]
        elif self.errors:
            cause = CAUSE.match(line)
            if cause and cause[1] not in self.errors:
                self.errors.append(cause[1])
        elif self.threads:
            frames = self.threads[-1][1]
            frame = _frame_in(line)
            if frame and len(frames) < FRAMES_MAX:
                frames.append(frame)
        elif version := VERSION.match(line):
            self.python = version[1]

    def dump(self) -> Dump:
        threads = [replace(thread, frames=tuple(frames)) for thread, frames in self.threads]
        return Dump(
            pid=self.pid,
            command=self.command,
            python=self.python,
            threads=main_first(threads, self.pid),
            error=": ".join(self.errors),
        )


def _readings(text: str) -> list[_Reading]:
    readings: list[_Reading] = []
    in_backtrace = False  # of py-spy itself
    for line in _lines(text):
        if process := PROCESS.match(line):
            if len(readings) >= DUMPS_MAX:
                break
            readings.append(_Reading(int(process[1]), process[2]))
            in_backtrace = False
        elif line.startswith("Stack backtrace:"):
            in_backtrace = True
        elif ERROR.match(line) and (not readings or readings[-1].errors):
            readings.append(_Reading(None, ""))
            readings[-1].hear(line)
            in_backtrace = False
        elif not in_backtrace:
            if not readings and THREAD.match(line):  # the head of the dump is missing
                readings.append(_Reading(None, ""))
            if readings:
                readings[-1].hear(line)
    return readings


def _lines(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        yield COLOUR.sub("", line).rstrip("\r")


def _headed(header: re.Match[str]) -> ThreadStack:
    number, status, name = header.groups()
    return ThreadStack(
        thread_id=int(number, 16 if number.startswith("0x") else 10),
        name=(name or "").removesuffix('"'),
        is_active=status != "idle",
        holds_gil=status == "active+gil",
    )


def _frame_in(line: str) -> str:
    """Parses a frame: "train.py:88 load" for `    load (train.py:88)`; empty for other lines, such as local
    variables.
    """
    found = FRAME.match(line) or NATIVE_FRAME.match(line)
    if found is None:
        return ""
    name, file = found.groups()
    numbered = LINE.match(file)
    if numbered is None:
        return _written(name, file, 0, is_native=not (file.endswith(".py") or file.startswith("<")))
    is_native = bool(SOURCE_OF_C.search(numbered[1]))
    return _written(name, numbered[1], int(numbered[2]), is_native=is_native)


def _written(name: str, file: str, line: int, *, is_native: bool) -> str:
    if is_native:
        return f"{file}{NATIVE}{name}"
    return f"{file}:{line or '???'} {name}"


# JSON -----------------------------------------------------------------------------------------------------


class _Frame(Struct):
    name: str | None = None
    filename: str | None = None
    short_filename: str | None = None
    module: str | None = None  # of a native frame: its library
    line: int | None = None


class _Trace(Struct):
    pid: int | None = None
    thread_id: int | None = None
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    frames: list[_Frame] | None = None


def _trace(value: Any) -> _Trace | None:
    try:
        return msgspec.convert(value, _Trace)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _thread(trace: _Trace) -> ThreadStack:
    return ThreadStack(
        thread_id=trace.os_thread_id or trace.thread_id or 0,
        name=trace.thread_name or "",
        is_active=bool(trace.active),
        holds_gil=bool(trace.active and trace.owns_gil),
        frames=tuple(_frame(frame) for frame in (trace.frames or [])[:FRAMES_MAX]),
    )


def _frame(frame: _Frame) -> str:
    file = frame.filename or frame.short_filename or "???"
    is_native = bool(frame.module) and not file.endswith(
        (".py", ".pyx")
    )  # Cython keeps the lines of its source
    return _written(
        frame.name or "???",
        (frame.module or file) if is_native else file,
        frame.line or 0,
        is_native=is_native,
    )


# Back to text ---------------------------------------------------------------------------------------------


def as_text(stacks: RankStacks) -> str:
    """Returns the stacks as `py-spy dump` prints them, so that `parse_text` can parse them; with full file
    names.
    """
    lines = [f"Process {stacks.pid}: rank {stacks.rank}", "Python v?", ""]
    for thread in stacks.threads:
        doing = "active+gil" if thread.holds_gil else "active" if thread.is_active else "idle"
        lines.append(f'Thread {thread.thread_id} ({doing}): "{thread.name}"')
        lines += [f"    {_framed(frame)}" for frame in thread.frames]
    return "\n".join(lines) + "\n"


def _framed(frame: str) -> str:
    where, _, function = frame.rpartition(" ")
    library, native, _ = frame.partition(NATIVE)
    return f"{frame.partition(NATIVE)[2]} ({library})" if native else f"{function} ({where})"
