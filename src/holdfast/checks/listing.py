"""Lists all checks in a separate process, so that a process beside the training need not import them (14
MiB, 0.4 s).
"""

import gc
import os
import subprocess
import sys

import msgspec

from holdfast.checks.forked import waited_s
from holdfast.checks.parting import part_with
from holdfast.checks.registry import all_checks
from holdfast.model.checks import Spec

COMMAND = (sys.executable, "-P", "-m", "holdfast.checks.listing")
READ_BYTES = 1 << 16


class ListUnreadable(RuntimeError):
    """Raised when the process that lists the checks ended without a list."""


class SpecList:
    """The list of all checks, which a separate process computes.

    Call `read` when the descriptor `channel` is readable.

    raises: OSError if the process cannot be started
    """

    def __init__(self) -> None:
        self._text = b""
        self._process = subprocess.Popen(
            COMMAND, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/"
        )
        assert self._process.stdout is not None, "it is a pipe"
        self.channel = self._process.stdout.fileno()
        os.set_blocking(self.channel, False)

    def read(self) -> tuple[Spec, ...] | None:
        """Returns all check specifications; None while the list is incomplete. Raises ListUnreadable."""
        try:
            while piece := os.read(self.channel, READ_BYTES):
                self._text += piece
        except BlockingIOError:
            return None
        text = self._text
        self.close()
        try:
            return msgspec.json.decode(text, type=tuple[Spec, ...])
        except msgspec.MsgspecError as error:
            raise ListUnreadable(f"the list of checks cannot be read: {error}") from error

    def waited_s(self) -> float:
        """Returns how many seconds the listing process was runnable and had no CPU."""
        return waited_s(self._process.pid)

    def close(self) -> None:
        self._process.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        part_with(self._process)


def main() -> None:
    gc.disable()  # it imports all checks, prints one line, and ends
    sys.stdout.buffer.write(msgspec.json.encode([check.spec for check in all_checks()]))


if __name__ == "__main__":
    main()
