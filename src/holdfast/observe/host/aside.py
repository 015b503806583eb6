"""Runs queries that may never return (a driver, a device, a service) in their own thread; keeps the last answer."""

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
    """Runs `read` in a thread, once for each `ask`, and never twice at the same time.

    The thread starts with the first `ask`. A `read` that hangs costs this thread only; OSError, RuntimeError and
    ValueError are kept as `why_not`.
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
        """Starts a query and returns at once. False if the previous query has not returned yet."""
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
        """The newest answer; None if there is none yet."""
        last = self._last
        return Answer(last[0], max(0.0, self._clock() - last[1])) if last is not None else None

    def stuck_s(self) -> float:
        """Seconds without an answer to the current query; 0 if none runs."""
        return 0.0 if self._idle.is_set() else self._clock() - self._asked_s

    def wait(self, timeout_s: float) -> bool:
        """Waits for the answer to the current query."""
        return self._idle.wait(timeout_s)

    def close(self, timeout_s: float = CLOSE_WAIT_S) -> None:
        """Ends the thread, or abandons it if it hangs."""
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
