"""Runs queries that may never return (to a driver, device or service) in a thread, and keeps the last
result.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

Value = TypeVar("Value")

CLOSE_WAIT_S = 0.5


class Answer(NamedTuple, Generic[Value]):
    """The result of one query. `age_s`: seconds since the query returned it."""

    value: Value
    age_s: float


class Aside(Generic[Value]):
    """A thread that runs the query `read` once for each `ask`, never twice at the same time.

    The thread starts at the first `ask`. A query that hangs blocks this thread only. OSError, RuntimeError
    and ValueError of the query are stored as `why_not`.
    """

    def __init__(
        self, read: Callable[[], Value], name: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.why_not = ""
        self._read = read
        self._name = name
        self._clock = clock
        self._asked = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._over = False
        self._thread: threading.Thread | None = None
        self._last: tuple[Value, float] | None = None
        self._asked_s = 0.0

    def ask(self) -> bool:
        """Starts a query and returns at once. Returns False if the previous query has not returned yet."""
        if not self._idle.is_set() or self._over:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._answer, name=self._name, daemon=True)
            self._thread.start()
        self._asked_s = self._clock()
        self._idle.clear()
        self._asked.set()
        return True

    def last(self) -> Answer[Value] | None:
        """Returns the newest result with its age; None if no query has returned yet."""
        last = self._last
        return Answer(last[0], max(0.0, self._clock() - last[1])) if last is not None else None

    def stuck_s(self) -> float:
        """Returns how many seconds the current query has been running; 0 if none runs."""
        return 0.0 if self._idle.is_set() else self._clock() - self._asked_s

    def wait(self, timeout_s: float) -> bool:
        """Waits until the current query returns, at most `timeout_s` seconds.

        Returns False at the timeout.
        """
        return self._idle.wait(timeout_s)

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Ends the thread, or abandons it if it does not end within `timeout_s` seconds."""
        self._over = True
        self._asked.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _answer(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._over:
                return
            try:
                value = self._read()
                self._last, self.why_not = (value, self._clock()), ""
            except (OSError, RuntimeError, ValueError) as error:
                self.why_not = str(error) or type(error).__name__
            finally:
                self._idle.set()
