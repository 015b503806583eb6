"""Records deliveries in an append-only file of JSON lines, which is read after a restart.

A line cut short by a crash is ignored. If the disk is full, only this record is lost.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.model.documents.notices import AnyDelivery

NAME = "notices.jsonl"
_decoder: msgspec.json.Decoder[AnyDelivery] = msgspec.json.Decoder(AnyDelivery)


class DeliveryLog:
    """File that records deliveries. Raises OSError if it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        size_bytes = os.fstat(self._descriptor).st_size
        self._is_cut = bool(size_bytes) and os.pread(self._descriptor, 1, size_bytes - 1) != b"\n"

    def read(self) -> Iterator[AnyDelivery]:
        with self.path.open("rb") as file:
            for line in file:
                try:
                    yield _decoder.decode(line)
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    continue

    def write(self, row: AnyDelivery) -> bool:
        """Appends a row.

        Returns False if it was not written completely; the next row then begins on a new line.
        """
        line = (b"\n" if self._is_cut else b"") + msgspec.json.encode(row) + b"\n"
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            return False
        self._is_cut = written < len(line)
        return not self._is_cut

    def close(self) -> None:
        os.close(self._descriptor)
