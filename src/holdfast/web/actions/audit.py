"""Writes the audit log: who did what, when, from where, and with which result. Append-only.

STATE_FOLDER/server/audit.log      one JSON document a line, mode 0600; older ones are audit.log.1, ...
"""

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.model.documents.actions import AuditLine
from holdfast.web.access.tokens import without_tokens

LOG = logging.getLogger("holdfast.web")
NAME = "audit.log"
FILE_BYTES_MAX = 32 << 20
FILES_MAX = 8
TEXT_CHARACTERS_MAX = 500
TAIL_BYTES_MAX = 1 << 20
_DECODER = msgspec.json.Decoder(AuditLine)


class AuditUnwritable(OSError):
    """Raised when the audit log cannot be written; actions that must be audited are then not carried out."""


class Audit:
    """The audit log of a server."""

    def __init__(self, folder: Path, clock: Callable[[], float]) -> None:
        self.path = folder / NAME
        self._clock = clock

    def write(self, line: AuditLine) -> None:
        """Appends a line. Raises AuditUnwritable."""
        line = msgspec.structs.replace(
            line, at_s=self._clock(), text=without_tokens(line.text)[:TEXT_CHARACTERS_MAX]
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._rotate()
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.path, flags, 0o600)
            try:
                os.write(descriptor, msgspec.json.encode(line) + b"\n")
            finally:
                os.close(descriptor)
        except OSError as error:
            raise AuditUnwritable(f"the audit log {self.path} cannot be written: {error}") from error

    def newest(self, limit: int) -> list[AuditLine]:
        """Returns the last lines, newest first."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - TAIL_BYTES_MAX))
                raw = file.read()
        except OSError:
            return []
        found = []
        for one in raw.splitlines()[-limit:]:
            with suppress(msgspec.MsgspecError):  # torn by a crash
                found.append(_DECODER.decode(one))
        return found[::-1]

    def _rotate(self) -> None:
        """Renames the log files once the current one is large.

        Two servers that do so at once lose at most the oldest file.
        """
        with suppress(FileNotFoundError):
            if self.path.stat().st_size < FILE_BYTES_MAX:
                return
            for number in range(FILES_MAX - 1, 0, -1):
                older = self.path.with_name(f"{NAME}.{number}")
                newer = self.path.with_name(f"{NAME}.{number - 1}" if number > 1 else NAME)
                with suppress(FileNotFoundError):
                    newer.replace(older)
            LOG.info("the audit log was rotated: %s", self.path)
