"""Follows the kernel log from now on: /dev/kmsg, else the file that syslog writes, else journalctl.

Never blocks and never raises. If no kernel log is readable, it reports that once, and a diagnosis lists it as
missing.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from holdfast.observe.host.kernel import KMSG, RECORD_MAX_BYTES, read_lines
from holdfast.parsers.log_lines.text import LineCutter

SYSLOGS = (Path("/var/log/kern.log"), Path("/var/log/messages"))
JOURNAL = ("journalctl", "--dmesg", "--follow", "--lines=0", "--output=short-iso", "--quiet")
RECORDS_MAX = 2000  # in one poll: a storm of lines is read over several
READ_BYTES = 64 << 10


class KernelFollower:
    """Follower of the kernel log that returns only new lines.

    `source`: "kmsg", a file or "journalctl"; empty if no log can be read, for the reason `why_not`.
    """

    def __init__(
        self,
        kmsg: Path = KMSG,
        syslogs: Sequence[Path] = SYSLOGS,
        journal: Sequence[str] = JOURNAL,
    ) -> None:
        self.source = ""
        self.why_not = ""
        self._fd = -1
        self._reader: subprocess.Popen[bytes] | None = None
        self._cutter = LineCutter()
        if not (self._open(kmsg) or any(self._open(path) for path in syslogs) or self._start(journal)):
            self.why_not = f"the kernel log cannot be read: {self.why_not}"
        else:
            self.why_not = ""

    def poll(self) -> list[bytes]:
        """Returns the lines written since the last poll, without the prefix of /dev/kmsg records."""
        if self._fd < 0:
            return []
        if self.source == "kmsg":
            return self._records()
        lines: list[bytes] = []
        for _ in range(RECORDS_MAX):
            try:
                block = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(error.strerror or str(error))
                break
            if not block:
                if self._reader is not None and self._reader.poll() is not None:
                    self._lose("the journalctl process ended")
                break
            lines += self._cutter.feed(block)
        return lines

    def close(self) -> None:
        if self._reader is not None:
            self._reader.kill()
            self._reader.wait()
            if self._reader.stdout is not None:
                self._reader.stdout.close()
            self._reader = None
        elif self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _open(self, path: Path) -> bool:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._note(path, error)
            return False
        try:
            os.lseek(fd, 0, os.SEEK_END)
            if path.name == KMSG.name:
                self._try(fd)
        except OSError as error:
            os.close(fd)
            self._note(path, error)
            return False
        self._fd, self.source = fd, path.name
        return True

    def _try(self, fd: int) -> None:
        """Reads once, to find out whether this log may be read. Raises OSError.

        In some containers /dev/kmsg can be opened, but not read.
        """
        try:
            os.read(fd, RECORD_MAX_BYTES)
        except (BlockingIOError, BrokenPipeError):
            pass

    def _start(self, command: Sequence[str]) -> bool:
        if shutil.which(command[0]) is None:
            self.why_not += f"; no {command[0]}"
            return False
        try:
            self._reader = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._note(Path(command[0]), error)
            return False
        assert self._reader.stdout is not None
        self._fd, self.source = self._reader.stdout.fileno(), command[0]
        os.set_blocking(self._fd, False)
        return True

    def _records(self) -> list[bytes]:
        lines, why = read_lines(self._fd, RECORDS_MAX)
        if why:
            self._lose(why)
        return lines

    def _lose(self, why: str) -> None:
        self.why_not = f"the kernel log ({self.source}) can no longer be read: {why}"
        self.close()

    def _note(self, path: Path, error: OSError) -> None:
        self.why_not += f"{'; ' if self.why_not else ''}{path}: {error.strerror or error}"
