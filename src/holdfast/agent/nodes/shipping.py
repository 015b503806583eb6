"""Sends files of a worker's folder to the controller, if the two share no file system.

No data is read before the link can take it: while the controller is away nothing is sent, and afterwards
sending continues at the same place. A file that grows faster than the allowed rate is sent with a gap. Never
waits.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from holdfast.model.nodes.workers import Shipped

TURN_S = 0.2
PIECE_BYTES = 64 << 10
BYTES_PER_S = 1 << 20
BEHIND_BYTES_MAX = 32 << 20  # more is skipped: what matters of a log in a failure is its end
FILES_MAX = 512
NAMES_S = 1.0  # how often new files are looked for
# Output, the ends of ranks, stacks, flight records, facts: all are appended to, or written once.
WANTED = re.compile(
    r"stdout|stderr|kernel\.log|reaper\.jsonl|hang-stacks\.json|nccl\.[\w.-]+\.log|flight_\w+"
    r"|rank-\d+\.(?:log|stacks|py-spy\.txt|error\.json|status\.json|groups\.json|flight(?:-\w+)?\.pickle)"
)


class _File(Struct):
    path: Path
    sent: int = 0
    size: int = 0


class Shipping:
    """Transfer of the files of one worker and one attempt to the controller.

    `send`: sends a message to the controller. `is_connected`: returns True if the controller is connected.
    """

    def __init__(
        self,
        folder: Path,
        attempt: int,
        worker: int,
        send: Callable[[Shipped], None],
        is_connected: Callable[[], bool],
    ) -> None:
        self.attempt = attempt
        self._folder = folder
        self._worker = worker
        self._send = send
        self._is_connected = is_connected
        self._files: dict[str, _File] = {}
        self._named_s = self._turned_s = float("-inf")
        self._last_look = False  # is still to be had
        self._finished = False

    def turn(self, at_s: float) -> None:
        if at_s - self._turned_s < TURN_S or not self._is_connected():
            return
        room = int(BYTES_PER_S * min(1.0, at_s - self._turned_s))
        self._turned_s = at_s
        self._look(at_s)
        for file in sorted(
            self._files.values(), key=lambda one: one.size - one.sent
        ):  # small ones are soon done
            room -= self._one(file, room)
            if room <= 0:
                return

    @property
    def is_drained(self) -> bool:
        """Returns whether everything found by the last scan is sent."""
        return not self._last_look and all(one.sent >= one.size for one in self._files.values())

    def finish(self) -> None:
        """Declares that the files will not grow any more; they are scanned once more, and the rest is
        sent.
        """
        if not self._finished:
            self._finished = self._last_look = True
            self._named_s = float("-inf")

    def _look(self, at_s: float) -> None:
        if at_s - self._named_s >= NAMES_S:
            self._named_s = at_s
            try:
                names = [name for name in sorted(os.listdir(self._folder)) if WANTED.fullmatch(name)]
            except OSError:
                names = []
            for name in names[:FILES_MAX]:
                self._files.setdefault(name, _File(self._folder / name))
        for file in self._files.values():
            try:
                file.size = max(file.size, os.stat(file.path).st_size)
            except OSError:
                file.size = file.sent
        self._last_look = False

    def _one(self, file: _File, room: int) -> int:
        """Sends data of one file, up to `room` bytes. Returns how many bytes were sent."""
        if file.size - file.sent > BEHIND_BYTES_MAX:
            file.sent = file.size - BEHIND_BYTES_MAX
        length = min(PIECE_BYTES, room, file.size - file.sent)
        if length <= 0:
            return 0
        try:
            with file.path.open("rb") as source:
                data = os.pread(source.fileno(), length, file.sent)
        except OSError:
            data = b""
        if not data:
            file.size = file.sent
            return 0
        self._send(
            Shipped(
                attempt=self.attempt, worker=self._worker, name=file.path.name, offset=file.sent, data=data
            )
        )
        file.sent += len(data)
        return len(data)
