"""Implements the main loop of a Holdfast process: signals, descriptors and timers in one thread.

No wait is longer than `LOOK_S`. An internal error in one part is reported, and affects neither the other
parts nor the training.
"""

import os
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import FrameType

LOOK_S = 0.1
FAULTS_SHOWN_MAX = 20
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Wheel:
    """A main loop. `tell`: receives messages about internal errors."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.signals: list[int] = []  # received and not handled yet
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._watched: set[int] = set()
        self._woken = -1
        self._faults = 0

    @property
    def faults(self) -> int:
        """Returns the number of internal errors so far."""
        return self._faults

    def turn(
        self,
        begin: Callable[[], None],
        once: Callable[[], None],
        is_over: Callable[[], bool],
        finish: Callable[[], int],
    ) -> int:
        """Calls `once` repeatedly until `is_over`, then `finish`, whose exit code it returns; `once` calls
        `wait`.

        Signals are handled until `finish` returns.
        """
        self._woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {number: signal.signal(number, self._on_signal) for number in signals_to_heed()}
        old_wake = signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        try:
            begin()
            while not is_over():
                once()
            return finish()
        finally:
            signal.set_wakeup_fd(old_wake)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            os.close(self._woken)
            os.close(wake)

    def wait(self, channels: Iterable[int]) -> None:
        """Waits until a descriptor is readable, a signal arrives, or `LOOK_S` passes."""
        wanted = set(channels)
        for fd in self._watched - wanted:
            self._selector.unregister(fd)
        for fd in wanted - self._watched:
            self._selector.register(fd, selectors.EVENT_READ)
        self._watched = wanted
        self._selector.select(LOOK_S)
        with suppress(BlockingIOError):
            while os.read(self._woken, 512):
                pass

    def fenced(self, part: Callable[[], None]) -> None:
        try:
            part()
        except Exception as error:  # noqa: BLE001 - a fault of ours must not cost the training its life
            self._faults += 1
            if self._faults <= FAULTS_SHOWN_MAX:
                where = traceback.extract_tb(error.__traceback__)[-1]
                place = f"{Path(where.filename).name}, line {where.lineno}"
                self._tell(
                    f"an internal error of Holdfast, which continues: {error!r} ({place}); please report it"
                )
            time.sleep(LOOK_S)  # not a loop that turns on the spot

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)


def signals_to_heed() -> tuple[signal.Signals, ...]:
    """Returns the signals that end a job or are passed on; without SIGHUP if it is ignored from the start,
    as under nohup.
    """
    heeded = (*STOP_SIGNALS, *PASSED_ON)
    return tuple(one for one in heeded if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN)


def collect_orphans() -> None:
    """Reaps orphan processes, which Holdfast inherits if it is process 1 of a container."""
    if os.getpid() != 1:
        return
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
