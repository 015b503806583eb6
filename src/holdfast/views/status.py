"""Draws `holdfast status --watch`: a live screen of one job, until the job ends or the user presses q.

It only reads: the growing journal, and the step file of each worker. It restores the terminal at the end.
"""

import os
import select
import signal
import sys
import termios
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, Self

from msgspec import Struct
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from holdfast.core.hang.stack_groups import ranges
from holdfast.core.job.story import Line
from holdfast.core.job.story_parts import RankKnown
from holdfast.core.plurals import counted
from holdfast.jobs.record import Record
from holdfast.journal.rows import RawEntry
from holdfast.observe.logs.step_file import StepFile
from holdfast.settings.times import stamp
from holdfast.views.log import printed
from holdfast.views.steps.rows import bars, part_done, span
from holdfast.views.wrapping import cut, shown, wrapped

LOOK_S = 1.0
LINES_KEPT = 200
LINES_MIN = 3
STAMP_COLUMNS = 20  # of a line of the log: what is broken off stands below its text
HEADING_AND_FOOTER = 2
NAME_COLUMNS = 11
BAR_COLUMNS = 40
WORKERS_MIN = 3
LEAVE = ("q", "Q", "\x03", "\x1b")
SUSPEND = "\x1a"
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
STRONG, QUIET, BAD, WARN, GOOD = "bold", "dim", "bold red", "yellow", "green"
STYLES = {"verdict": BAD, "finding": BAD, "rung": WARN, "recovered": GOOD, "end": STRONG}
# Rows whose text is bad news, unless it is one of these.
ALARMS = {"slowdown": WARN, "straggler": WARN, "stands": BAD, "incident": WARN}
NO_ALARM = ("none found", "none so far", "none open")


class Seen(Struct, frozen=True, kw_only=True):
    """Contents of the live screen at one moment.

    `rows`: name and text of each row; `lines`: last lines of the log; `notes`: warnings.
    """

    title: str
    rows: tuple[tuple[str, str], ...]
    ranks: tuple[RankKnown, ...]
    steps: StepFile | None
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    at_s: float = 0.0  # seconds since the epoch


class NoTerminal(Exception):
    """Raised when stdout is not a terminal. The message says what to do instead."""


def watch(record: Record, look: Callable[[Record, Sequence[Line]], Seen]) -> bool:
    """Shows the live screen until the job ends or the user leaves. Returns whether the job has ended.

    `look`: returns the contents for the updated journal. Raises NoTerminal, and errors of `look` and of the journal;
    the terminal is restored first.
    """
    refuse_without_terminal()
    lines: deque[Line] = deque(maxlen=LINES_KEPT)
    with _Screen() as screen:

        def goes_on() -> bool:
            screen.show(look(record, lines))
            return not record.story.ended and screen.wait(LOOK_S)

        for line in record.lines(_rows(record, goes_on)):
            lines.append(line)
    return record.story.ended


def refuse_without_terminal() -> None:
    """Raises NoTerminal if stdout is no terminal."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        raise NoTerminal(
            "--watch needs a terminal, and stdout is not one: use holdfast status without --watch, or "
            "holdfast log --follow"
        )


def _rows(record: Record, goes_on: Callable[[], bool]) -> Iterator[RawEntry]:
    """Yields all journal entries, and new ones as they come, while `goes_on` returns True."""
    seq = 0
    while True:
        for row in record.reader.read_raw(seq):
            seq = row[5]
            yield row
        if not goes_on():
            return


# The terminal --------------------------------------------------------------------------------------------


class _Screen:
    """The terminal's alternate screen and its keyboard. The terminal is restored however the block ends."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._modes: list[Any] | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in ENDING_SIGNALS:
            self._handlers[number] = signal.signal(number, _leave)
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        return kind is KeyboardInterrupt

    def show(self, seen: Seen) -> None:
        if self._live is not None:
            width, height = self._console.size
            self._live.update(picture(seen, width, height), refresh=True)

    def wait(self, wait_s: float) -> bool:
        """Waits until `wait_s` seconds have passed or a key was pressed.

        Returns False for a key that leaves.
        """
        if self._modes is None:  # stdin is no terminal: Ctrl-C remains
            time.sleep(wait_s)
            return True
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if not select.select([0], [], [], left_s)[0]:
                break
            keys = os.read(0, 64).decode(errors="replace")
            if not keys:  # the terminal is gone
                return False
            if keys in LEAVE or keys[0] in "qQ":
                return False
            if SUSPEND in keys:
                self._suspend()
                return True
        return True

    def _open(self) -> None:
        with suppress(termios.error, OSError, ValueError):
            self._modes = _keys_at_once()
        self._live = Live(console=self._console, screen=True, auto_refresh=False, transient=True)
        self._live.start()

    def _close(self) -> None:
        try:
            if self._live is not None:
                self._live.stop()
        finally:
            self._live = None
            if self._modes is not None:
                with suppress(termios.error, OSError):
                    termios.tcsetattr(0, termios.TCSADRAIN, self._modes)
                self._modes = None

    def _suspend(self) -> None:
        """Suspends this process at Ctrl-Z: restores the terminal for the shell, and takes it again when
        continued.
        """
        self._close()
        os.kill(0, signal.SIGTSTP)
        self._open()


def _keys_at_once() -> list[Any]:
    """Delivers keys without Enter and without echo, and returns the former terminal modes.

    Ctrl-C stays a signal; Ctrl-Z becomes a key.
    """
    before = termios.tcgetattr(0)
    now = termios.tcgetattr(0)
    now[3] &= ~(termios.ICANON | termios.ECHO)
    now[6][termios.VMIN], now[6][termios.VTIME] = 1, 0
    now[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(0, termios.TCSADRAIN, now)
    return before


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


# The picture ---------------------------------------------------------------------------------------------


def picture(seen: Seen, width: int, height: int) -> RenderableType:
    """Returns the screen of a given size: the status rows, then as many log lines as fit."""
    parts: list[RenderableType] = [_title(seen, width)]
    rows = [row for row in seen.rows if row[0] not in ("job", "ranks")]
    for name, text in rows:
        parts.append(_row(name, text, width, ALARMS.get(name, "")))
        if name == "step":
            parts += _progress(seen, width)
        elif name == "step time":
            parts += _recent(seen, width)
    room = height - len(parts) - len(seen.notes) - LINES_MIN - HEADING_AND_FOOTER
    parts += _workers(seen.ranks, width, max(room, WORKERS_MIN))
    parts += [_plain(note, width, BAD) for note in seen.notes]
    room = max(height - len(parts) - 1, 0)
    if room > 1:
        parts.append(_plain(" the log ".center(width, "─"), width, QUIET))
        parts += _log(seen.lines, width, room - 1)
    parts += [Text("")] * (height - len(parts) - 1)
    return Group(*parts[: height - 1], _plain(f"q: quit. Updated {stamp(seen.at_s)}", width, QUIET))


def _title(seen: Seen, width: int) -> Text:
    return _plain(seen.title, width, STRONG)


def _plain(text: str, width: int, style: str) -> Text:
    """Returns one line of text, with control characters escaped."""
    return Text(cut(shown(text), width), style=style, no_wrap=True, end="\n")


def _row(name: str, text: str, width: int, alarm: str = "") -> Text:
    style = "" if text.startswith(NO_ALARM) else alarm
    line = Text(f"{name:<{NAME_COLUMNS}}", style=QUIET, no_wrap=True)
    return line.append(cut(shown(text), width - NAME_COLUMNS), style=style or "not dim")


def _progress(seen: Seen, width: int) -> list[RenderableType]:
    part = None if seen.steps is None else part_done(seen.steps.now)
    if part is None:
        return []
    grid = Table.grid()
    grid.add_column(width=NAME_COLUMNS)
    grid.add_column(width=max(1, min(BAR_COLUMNS, width - NAME_COLUMNS)))
    grid.add_row("", ProgressBar(total=1.0, completed=part))
    return [grid]


def _recent(seen: Seen, width: int) -> list[RenderableType]:
    """Returns the times of the last steps as bars, most recent on the right."""
    values = () if seen.steps is None else seen.steps.recent
    words = span(values)
    drawn = bars(values, width - NAME_COLUMNS - len(words) - 2)
    return [_row("recent", f"{drawn}  {words}", width)] if drawn else []


def _workers(ranks: Sequence[RankKnown], width: int, rows_max: int) -> list[RenderableType]:
    """Returns one row for each worker; if there are too many, those with ended ranks first."""
    workers: dict[int, list[RankKnown]] = {}
    for rank in ranks:
        workers.setdefault(rank.worker, []).append(rank)
    order = sorted(workers, key=lambda number: (not any(rank.ended for rank in workers[number]), number))
    rest = order[rows_max - 1 :] if len(order) > rows_max else []
    shown_ = sorted(order[: len(order) - len(rest)])
    found: list[RenderableType] = [
        _row(
            f"worker {number}",
            worker_words(workers[number]),
            width,
            BAD if any(rank.code for rank in workers[number]) else "",
        )
        for number in shown_
    ]
    if rest:
        count = sum(len(workers[number]) for number in rest)
        found.append(
            _row("", f"and {counted(len(rest), 'more worker')} with {counted(count, 'rank')}", width)
        )
    return found


def worker_words(ranks: Sequence[RankKnown]) -> str:
    """Returns the state of a worker's ranks in words: `ranks 0-7: 7 run; rank 2 ended with -9`."""
    running = [rank.rank for rank in ranks if not rank.ended]
    parts = (
        [f"ranks {ranges(running)} run"]
        if len(running) > 1
        else [f"rank {running[0]} runs"]
        if running
        else []
    )
    codes: dict[int | None, list[int]] = {}
    for rank in ranks:
        if rank.ended:
            codes.setdefault(rank.code, []).append(rank.rank)
    for code, ended in codes.items():
        how = "ended" if code is None else f"ended with {code}"
        parts.append(f"rank{'s' if len(ended) > 1 else ''} {ranges(ended)} {how}")
    return "; ".join(parts)


def _log(lines: Sequence[Line], width: int, room: int) -> list[RenderableType]:
    """Returns the last log lines that fit, wrapped to the width of the screen."""
    found: list[RenderableType] = []
    for line in reversed(lines):
        text = shown(printed(line))
        first, *rest = wrapped(text, width) or [""]
        pieces = [first]
        if rest and width >= 2 * STAMP_COLUMNS:
            pieces += wrapped(text[len(first) :].lstrip(), width - STAMP_COLUMNS)
        style = STYLES.get(line.kind, "")
        shown_ = [
            _plain(" " * STAMP_COLUMNS * bool(number) + piece, width, style)
            for number, piece in enumerate(pieces)
        ]
        found[:0] = shown_[-max(room - len(found), 0) :] if len(found) < room else []
        if len(found) >= room:
            break
    return found
