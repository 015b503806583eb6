"""Connects a browser's terminal to a shell on one worker: bytes over a WebSocket, through the job's
controller.

Each shell has one thread; data in both directions waits in bounded queues, so a slow browser delays only its
own shell.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from holdfast.jobs.call import CallNotMade, made_up, places
from holdfast.jobs.line import AnyLine, NoLine
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
from holdfast.model.documents.actions import ShellEnded
from holdfast.web.api.queries import ShellQuery

WAIT_S = 0.03  # how long what is typed may wait
SEND_S = 30.0
TYPED_MAX = 256  # pieces that wait
TYPED_BYTES_MAX = 1 << 14
TERM = "xterm-256color"

Typing = bytes | tuple[int, int]  # what was typed, or a new size: columns, rows


class Shell:
    """A shell session on a worker, for a browser. `open_line`: connects to the job's controller; called in the
    shell's thread.

    `send`: sends bytes to the browser and waits until it has received them.
    """

    def __init__(
        self,
        open_line: Callable[[], AnyLine],
        query: ShellQuery,
        by: str,
        send: Callable[[bytes], None],
        ended: Callable[[ShellEnded], None],
    ) -> None:
        self._open_line, self._query, self._by = open_line, query, by
        self._send, self._ended = send, ended
        self._typed: queue.Queue[Typing] = queue.Queue(TYPED_MAX)
        self._is_left = threading.Event()
        self._shown_bytes = self._typed_bytes = self._typed_taken = 0
        self._end: ShellEnded | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-shell", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def type(self, what: Typing) -> bool:
        """Queues input for the shell. Returns False if the queue is full."""
        try:
            self._typed.put_nowait(what)
        except queue.Full:
            return False
        return True

    def leave(self) -> None:
        """Ends the session, because the browser has disconnected or its access has ended."""
        self._is_left.set()

    def _run(self) -> None:
        try:
            line = self._open_line()
            try:
                self._ended(self._session(line))
            finally:
                line.close()
        except (CallNotMade, NoLine, ConnectionError) as error:
            self._ended(ShellEnded(ended=None, text=str(error)))

    def _session(self, line: AnyLine) -> ShellEnded:
        worker = self._query.worker
        found = places(line, None if worker is None else {worker}, None)
        if len(found.places) != 1:
            raise CallNotMade(f"job {found.job} has {len(found.places)} workers: select one with worker=")
        place, call = found.places[0], made_up()
        what = Terminal(term=TERM, rows=self._query.rows, columns=self._query.columns)
        line.say(_ask(call, what, self._by, place))
        while self._end is None and not self._is_left.is_set():
            for word in line.words(WAIT_S):
                if word.call == call:
                    self._hear(line, word)
            self._pass_on(line, call)
        if self._end is None:
            with suppress(NoLine):
                line.say(CancelCall(call=call))
        return self._end or ShellEnded(ended=None, text="the browser closed the shell")

    def _hear(self, line: AnyLine, word: AnyCallWord) -> None:
        match word:
            case Output():
                self._send(word.data)
                self._shown_bytes += len(word.data)
                line.say(OutputTaken(call=word.call, node=word.node, total_bytes=self._shown_bytes))
            case TypedTaken():
                self._typed_taken = word.total_bytes
            case CallEnded():
                text = word.why or (
                    f"the shell ended with {word.code}" if word.code is not None else word.outcome
                )
                self._end = ShellEnded(ended=word.code, text=text)
            case CallRefused():
                raise CallNotMade(word.why)

    def _pass_on(self, line: AnyLine, call: str) -> None:
        """Sends queued input, as far as the shell's side has room for it."""
        while self._typed_bytes - self._typed_taken < WINDOW_BYTES_MAX:
            try:
                one = self._typed.get_nowait()
            except queue.Empty:
                return
            if isinstance(one, bytes):
                self._typed_bytes += len(one)
                line.say(Typed(call=call, data=one))
            else:
                line.say(WindowSize(call=call, rows=one[1], columns=one[0]))


def sender(loop: asyncio.AbstractEventLoop, send: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """Returns a function for the shell's thread: it sends bytes through the event loop and waits until they are sent.

    The function raises ConnectionError.
    """

    def give(data: bytes) -> None:
        try:
            asyncio.run_coroutine_threadsafe(send(data), loop).result(SEND_S)  # type: ignore[arg-type]
        except TimeoutError as error:
            raise ConnectionError("the browser has not read the shell's output for too long") from error
        except Exception as error:
            raise ConnectionError(f"the connection to the browser was lost: {error}") from error

    return give


def _ask(call: str, what: Terminal, by: str, place: CallPlace) -> AskCall:
    workers = () if place.worker is None else (place.worker,)
    nodes = (place.node,) if place.worker is None else ()
    return AskCall(call=call, what=what, by=by, workers=workers, nodes=nodes)
