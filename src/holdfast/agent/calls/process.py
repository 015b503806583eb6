"""Runs a command that a user requested on this node, under a watcher process (agent/reaper/call.py).

The output of the command comes through a pipe or a terminal. Nothing here blocks.
"""

import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

PACKAGE = Path(__file__).absolute().parents[1]
BOOT = "import sys; sys.path.append(sys.argv.pop(1)); from reaper.call import main; main()"
FACT_BYTES_MAX = 1 << 16
ROWS_MAX = 0xFFFF


class Ending(Struct, frozen=True):
    """The watcher process's final report on a command. `left`: processes of the command that cannot be
    killed.
    """

    code: int | None
    timed_out: bool = False
    took_s: float = 0.0
    error: str = ""
    left: tuple[int, ...] = ()


class CallProcess:
    """A user's command that runs on this node. `size`: rows and columns of its terminal; None means no
    terminal.

    raises: OSError, if the command cannot be started (no memory, processes or terminals left)
    """

    def __init__(
        self,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        cwd: str,
        *,
        limit_s: float | None,
        size: tuple[int, int] | None,
    ) -> None:
        self.ending: Ending | None = None  # once it is over
        self._unread = b""
        self._out, theirs = os.pipe2(os.O_CLOEXEC) if size is None else pty.openpty()
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._has_output = True
        orders = os.memfd_create("orders", os.MFD_CLOEXEC)
        try:
            if size is not None:
                self.resize(*size)
            spec = {
                "argv": list(argv),
                "env": dict(env),
                "cwd": cwd,
                "out_fd": theirs,
                "is_terminal": size is not None,
                "limit_s": limit_s,
                "channel_fd": other.fileno(),
            }
            os.pwrite(orders, json.dumps(spec).encode(), 0)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", BOOT, str(PACKAGE), str(orders)],
                pass_fds=(orders, theirs, other.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            self._channel.close()
            os.close(self._out)
            raise
        finally:
            os.close(orders)
            os.close(theirs)
            other.close()
        os.set_blocking(self._out, False)
        self._channel.setblocking(False)

    @property
    def has_output(self) -> bool:
        """Returns whether the command may still print output."""
        return self._has_output

    def channels(self, *, output: bool) -> list[int]:
        """Returns the file descriptors to wait for; that of the command's output only if `output` is True."""
        found = [] if self.ending else [self._channel.fileno()]
        return [*found, self._out] if output and self._has_output else found

    def read(self, bytes_max: int) -> bytes:
        """Returns new output of the command, at most `bytes_max` bytes; empty if there is none now."""
        if not self._has_output or bytes_max <= 0:
            return b""
        try:
            data = os.read(self._out, bytes_max)
        except BlockingIOError:
            return b""
        except OSError:  # EIO: the last process that had the terminal open is gone
            data = b""
        self._has_output = bool(data)
        return data

    def no_more(self) -> None:
        """Stops reading the output, because a process that cannot be killed may keep it open forever."""
        self._has_output = False

    def type(self, data: bytes) -> int:
        """Writes input to the terminal; returns the number of bytes it accepted."""
        try:
            return os.write(self._out, data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # it is not read any more

    def resize(self, rows: int, columns: int) -> None:
        size = (min(max(1, rows), ROWS_MAX), min(max(1, columns), ROWS_MAX), 0, 0)
        with suppress(OSError):
            fcntl.ioctl(self._out, termios.TIOCSWINSZ, struct.pack("HHHH", *size))

    def hear(self) -> None:
        """Receives a message of the watcher process. Once the command has ended, `ending` contains the
        result.
        """
        if self.ending is not None:
            return
        try:
            data = self._channel.recv(FACT_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._unread += data
        line, is_whole, _ = self._unread.partition(b"\n")
        if is_whole or not data:
            self.ending = _ending(line)

    def end(self) -> None:
        """Sends SIGTERM (with a terminal: SIGHUP) to all processes of the command, and SIGKILL a second later."""
        with suppress(OSError):
            self._channel.send(b"end\n")

    def close(self) -> None:
        """Closes the control socket; the watcher process (agent/reaper/call) then ends the command."""
        self._channel.close()
        os.close(self._out)
        self._has_output = False

    def is_collected(self) -> bool:
        """Returns whether the watcher has ended and its exit status has been collected."""
        return self._process.poll() is not None


def _ending(line: bytes) -> Ending:
    try:
        return msgspec.json.decode(line, type=Ending)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Ending(code=None, error="the process that supervised the command was killed")
