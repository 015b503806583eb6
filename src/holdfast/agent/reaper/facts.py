"""Records the reaper's messages (facts): numbered from 1, written to `reaper.jsonl`, sent to every client.
Never waits.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "reaper.jsonl"
UNWRITTEN_BYTES_MAX = 4 << 20


class Facts:
    def __init__(self, dir_fd: int) -> None:
        self.lines: list[bytes] = []
        self.tell: Callable[[bytes], None] | None = None
        self._dir_fd = dir_fd
        self._log_fd: int | None = None
        self._unwritten = b""

    def add(self, kind: str, **values: object) -> None:
        values.update(kind=kind, t=time.time(), n=len(self.lines) + 1)
        line = json.dumps(values).encode() + b"\n"
        self.lines.append(line)
        if len(self._unwritten) < UNWRITTEN_BYTES_MAX:
            self._unwritten += line
        self.write()
        if self.tell:
            self.tell(line)

    def write(self) -> None:
        """Writes one message. If the disk is full or gone, the line is lost in the file, and the training is
        not disturbed.
        """
        try:
            while self._unwritten:
                if self._log_fd is None:
                    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                    self._log_fd = os.open(NAME, flags, 0o644, dir_fd=self._dir_fd)
                written = os.write(self._log_fd, self._unwritten)
                self._unwritten = self._unwritten[written:]
        except OSError:
            return  # tried again every second
