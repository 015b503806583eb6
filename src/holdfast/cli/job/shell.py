"""Implements `holdfast shell`: opens an interactive terminal on the node of one worker."""

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

from holdfast.cli.job.exec import RunningJob
from holdfast.cli.job.named import FAILED, REFUSED, StateFolder
from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.output import say
from holdfast.core.answer_groups import Answer, shell_code
from holdfast.jobs.call import CallNotMade, made_up, places
from holdfast.jobs.line import JobLine, NoLine, open_line, who
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.model.calls import (
    WINDOW_BYTES_MAX,
    AnyCallWord,
    AskCall,
    CallEnded,
    CallPlace,
    CallRefused,
    CancelCall,
    Output,
    OutputTaken,
    Terminal,
    Typed,
    TypedTaken,
    WindowSize,
)
from holdfast.views.wrapping import shown

READ_BYTES_MAX = 1 << 14
WAIT_S = 1.0
SIZE = (24, 80)

app = App()


@app.command()
def shell(
    job: RunningJob,
    command: Annotated[list[str] | None, Argument("[-- COMMAND...]")] = None,
    worker: Annotated[
        int | None, Option("--worker", help="Number of the worker; required if there are several.", min=0)
    ] = None,
    node: Annotated[str | None, Option("--node", help="A node instead of a worker, such as a spare.")] = None,
    state_dir: StateFolder = None,
) -> None:
    """Opens a terminal beside the training of one worker, in its folder and environment; ~. on a new line
    leaves it.
    """
    if worker is not None and node is not None:
        raise BadParameter("a terminal needs one node: give --worker or --node", param_hint="--node")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        say(f"a shell needs a terminal; to run a command use holdfast exec {job} -- COMMAND")
        raise Exit(REFUSED)
    try:
        line = open_line(named_job(job, state_dir))
    except (RecordUnreadable, NoLine) as error:
        say(str(error))
        raise Exit(FAILED) from error
    try:
        found = places(line, None if worker is None else {worker}, None if node is None else (node,))
        if len(found.places) > 1:
            raise CallNotMade(f"job {found.job} has {len(found.places)} workers: select one with --worker")
        raise Exit(Session(line, found.places[0], tuple(command or ())).run())
    except (CallNotMade, NoLine) as error:
        say(str(error))
        raise Exit(FAILED) from error
    finally:
        line.close()


class Escape:
    """Detector of the escape sequence `~.` at the start of a line, as in ssh. It ends a session with a node that does
    not respond.
    """

    def __init__(self) -> None:
        self._at_start, self._held = True, False
        self.is_found = False

    def passed_on(self, data: bytes) -> bytes:
        """Returns the part of the input to send to the node.

        A `~` at the start of a line is held back until the next character is typed.
        """
        out = bytearray()
        for byte in data:
            if self._held:
                self._held = False
                if byte == ord("."):
                    self.is_found = True
                    return bytes(out)
                if byte != ord("~"):
                    out += b"~"
            elif self._at_start and byte == ord("~"):
                self._held, self._at_start = True, False
                continue
            out.append(byte)
            self._at_start = byte in b"\r\n"
        return bytes(out)


class Session:
    """The local terminal while it is connected to a shell on the node."""

    def __init__(self, line: JobLine, place: CallPlace, command: tuple[str, ...]) -> None:
        self._line, self._place = line, place
        self._call = made_up()
        self._escape = Escape()
        self._shown_bytes = self._typed_bytes = self._typed_taken = 0
        self._is_resized = False
        self._ended: CallEnded | None = None
        rows, columns = _size()
        what = Terminal(command=command, term=os.environ.get("TERM", ""), rows=rows, columns=columns)
        workers = () if place.worker is None else (place.worker,)
        nodes = (place.node,) if place.worker is None else ()
        line.say(AskCall(call=self._call, what=what, by=who(), workers=workers, nodes=nodes))

    def run(self) -> int:
        """Connects the terminal to the shell until one of them ends, and returns the shell's exit code. Raises
        CallNotMade and NoLine.
        """
        where = f"worker {self._place.worker} on " if self._place.worker is not None else ""
        say(shown(f"{where}{self._place.node}; ~. on a new line leaves it"))
        with _raw(), _watched_size(self._resized):
            while self._ended is None and not self._escape.is_found:
                self._turn()
        if self._ended is None:
            self._line.say(CancelCall(call=self._call))
            return FAILED
        return self._code(self._ended)

    def _turn(self) -> None:
        if self._is_resized:
            self._is_resized = False
            rows, columns = _size()
            self._line.say(WindowSize(call=self._call, rows=rows, columns=columns))
        has_room = self._typed_bytes - self._typed_taken < WINDOW_BYTES_MAX
        stdin = sys.stdin.fileno()
        for word in self._line.words(WAIT_S, *([stdin] if has_room else [])):
            if word.call == self._call:
                self._hear(word)
        if has_room and _is_readable(stdin):
            self._type(os.read(stdin, READ_BYTES_MAX))

    def _hear(self, word: AnyCallWord) -> None:
        match word:
            case Output():
                _write(word.data)
                self._shown_bytes += len(word.data)
                taken = OutputTaken(call=self._call, node=word.node, total_bytes=self._shown_bytes)
                self._line.say(taken)
            case TypedTaken():
                self._typed_taken = word.total_bytes
            case CallEnded():
                self._ended = word
            case CallRefused():
                raise CallNotMade(word.why)

    def _type(self, data: bytes) -> None:
        if not data:  # this terminal is gone
            self._escape.is_found = True
            return
        data = self._escape.passed_on(data)
        if data:
            self._typed_bytes += len(data)
            self._line.say(Typed(call=self._call, data=data))

    def _resized(self) -> None:
        self._is_resized = True

    def _code(self, ended: CallEnded) -> int:
        answer = Answer(node=ended.node, worker=ended.worker, outcome=ended.outcome, code=ended.code)
        if ended.outcome != "exited" or ended.why:
            say(shown(f"the shell on {ended.node} ended ({ended.outcome}) {ended.why}"))
        return shell_code(answer)


@contextmanager
def _raw() -> Iterator[None]:
    """Puts the terminal into raw mode, so that every key goes to the remote shell, also Ctrl-C."""
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    ends = {number: signal.signal(number, _leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setraw(stdin, termios.TCSADRAIN)  # what was typed ahead is not thrown away
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)
        for number, handler in ends.items():
            signal.signal(number, handler)


@contextmanager
def _watched_size(resized: Callable[[], None]) -> Iterator[None]:
    before = signal.signal(signal.SIGWINCH, lambda number, frame: resized())
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _leave(number: int, frame: FrameType | None) -> None:
    """Exits at a signal so that the terminal is restored first. Raises SystemExit."""
    sys.exit(128 + number)


def _size() -> tuple[int, int]:
    """Returns rows and columns of the terminal."""
    try:
        size = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return SIZE
    return (size.lines or SIZE[0], size.columns or SIZE[1])


def _is_readable(fd: int) -> bool:
    return bool(select.select((fd,), (), (), 0)[0])


def _write(data: bytes) -> None:
    """Writes all data; a slow terminal blocks, and the remote side waits."""
    sys.stdout.flush()
    while data:
        data = data[os.write(sys.stdout.fileno(), data) :]
