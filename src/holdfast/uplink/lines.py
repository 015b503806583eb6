"""Opens connections to the job's controller on behalf of the server, one thread each: stop, restart, exec,
shell.
"""

import threading
from collections import deque
from collections.abc import Callable

from holdfast.jobs.line import NoLine, open_line
from holdfast.journal.jobdir import JobDir
from holdfast.parsers.call_words import decode, encode

LINES_MAX = 32
WAIT_S = 0.1
QUEUE_MAX = 1_000


class Line:
    """One connection to the controller.

    `said`: called with the bytes of each message; `ended`: with the reason at its end.
    """

    def __init__(self, job: JobDir, said: Callable[[bytes], None], ended: Callable[[str], None]) -> None:
        self._job, self._said, self._ended = job, said, ended
        self._queue: deque[bytes] = deque(maxlen=QUEUE_MAX)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="line", daemon=True)
        self._thread.start()

    def say(self, body: bytes) -> None:
        self._queue.append(body)

    def close(self) -> None:
        self._is_closed.set()

    def _run(self) -> None:
        try:
            line = open_line(self._job)
        except NoLine as error:
            self._ended(str(error))
            return
        try:
            while not self._is_closed.is_set():
                while self._queue:
                    if word := decode(self._queue.popleft()):
                        line.say(word)
                for word in line.words(WAIT_S):
                    self._said(encode(word))
            self._ended("")
        except NoLine as error:
            self._ended(str(error))
        finally:
            line.close()


class Lines:
    """All connections to the job's controller in one session, by the numbers that the server assigned."""

    def __init__(
        self, job: JobDir, said: Callable[[int, bytes], None], ended: Callable[[int, str], None]
    ) -> None:
        self._job, self._said, self._ended = job, said, ended
        self._lines: dict[int, Line] = {}

    def open(self, number: int) -> None:
        if len(self._lines) >= LINES_MAX:
            self._ended(number, f"only {LINES_MAX} connections to one controller can be open at once")
            return
        self._lines[number] = Line(
            self._job, lambda body: self._said(number, body), lambda why: self._ended(number, why)
        )

    def say(self, number: int, body: bytes) -> None:
        if (line := self._lines.get(number)) is not None:
            line.say(body)

    def close(self, number: int) -> None:
        if (line := self._lines.pop(number, None)) is not None:
            line.close()

    def close_all(self) -> None:
        for number in list(self._lines):
            self.close(number)
