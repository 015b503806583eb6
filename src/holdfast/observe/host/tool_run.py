"""Runs a small program until it ends or its deadline passes, without blocking the caller.

Its output goes to memory, so no reader is needed. It runs in its own session, because Ctrl-C must not kill it
while it has paused another process.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

OUTPUT_BYTES_MAX = 16 << 20
REAP_S = 0.05  # after SIGKILL; a program that does not die of it is itself blocked in the kernel


class ToolRun:
    """A running program. `env`: its whole environment; None means a minimal one.

    Raises OSError if it cannot be started.
    """

    def __init__(self, words: Sequence[str], until_s: float, env: Mapping[str, str] | None = None) -> None:
        self.killed = False
        self._until_s = until_s
        self._out = os.memfd_create("out", os.MFD_CLOEXEC)
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        self._texts: tuple[bytes, bytes] | None = None
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._errors,
                start_new_session=True,
                cwd="/",
                env={"PATH": os.defpath} if env is None else dict(env),
            )
        except OSError:
            self._close()
            raise

    def poll(self, now_s: float) -> bool:
        """Returns True if the program has ended; at its deadline it is killed."""
        if self._process.poll() is None and now_s >= self._until_s:
            self.kill()
            return True
        if self._process.returncode is None:
            return False
        self._keep()
        return True

    def kill(self) -> None:
        """Kills the program and waits a moment, because processes that it traces are released at its end."""
        if self._process.poll() is None:
            self.killed = True
            self._process.send_signal(signal.SIGKILL)
            give_up_s = time.monotonic() + REAP_S
            while self._process.poll() is None and time.monotonic() < give_up_s:
                time.sleep(0.001)
        if self._process.returncode is None:
            self._process.returncode = -signal.SIGKILL  # it is left to die: Popen would complain of it
        self._keep()

    def output(self) -> bytes:
        return self._texts[0] if self._texts else b""

    def errors(self) -> str:
        return self._texts[1].decode(errors="replace") if self._texts else ""

    def _keep(self) -> None:
        if self._texts is None:
            self._texts = (_content(self._out), _content(self._errors))
            self._close()

    def _close(self) -> None:
        os.close(self._out)
        os.close(self._errors)


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, OUTPUT_BYTES_MAX, 0)
