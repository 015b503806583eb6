"""A pseudo-terminal with a command on it, as a person has one: keys go in, what is drawn comes out."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios

from run.place import WAIT_S, wait_for

SCREEN_ON, SCREEN_OFF = "\x1b[?1049h", "\x1b[?1049l"
CURSOR_OFF, CURSOR_ON = "\x1b[?25l", "\x1b[?25h"


class Terminal:
    """The command leads a session on a terminal of its own, so that Ctrl-C and Ctrl-Z reach it as signals."""

    def __init__(self, words, env, columns=100, lines=30):
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.modes_before = termios.tcgetattr(slave)
        self._slave = slave
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *map(str, words)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )
        self._bytes = b""

    @property
    def text(self):
        """Everything that was written so far."""
        while select.select([self._master], [], [], 0)[0]:
            try:
                self._bytes += os.read(self._master, 65536)
            except OSError:
                break
        return self._bytes.decode(errors="replace")

    @property
    def modes(self):
        return termios.tcgetattr(self._slave)

    def press(self, keys):
        os.write(self._master, keys.encode())

    def shows(self, words, times=1, wait_s=WAIT_S):
        wait_for(
            lambda: f"{words!r} {times} times on:\n{self.text!r}",
            lambda: self.text.count(words) >= times,
            wait_s,
        )

    def code(self, wait_s=WAIT_S):
        """The exit code, once it is over; what it writes is read meanwhile, so that it need not wait."""
        return wait_for(
            lambda: f"the end of:\n{self.text!r}",
            lambda: (self.text, (self.process.poll(),))[1] if self.process.poll() is not None else None,
            wait_s,
        )[0]

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)
        os.close(self._slave)
        os.close(self._master)
