"""Keeps what was delivered: an append-only file of JSON lines, read again after a restart.

A line that was cut short by a crash is ignored. A disk that is full costs the memory of what was delivered, and nothing else.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.model.documents.notices import AnyDelivery

NAME = "notices.jsonl"
_decoder: msgspec.json.Decoder[AnyDelivery] = msgspec.json.Decoder(AnyDelivery)


class DeliveryLog:
    """raises: OSError, where the file cannot be opened"""

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
        """False where it could not be written, or not whole. After a line that was cut the next one begins on its own."""
        line = (b"\n" if self._is_cut else b"") + msgspec.json.encode(row) + b"\n"
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            return False
        self._is_cut = written < len(line)
        return not self._is_cut

    def close(self) -> None:
        os.close(self._descriptor)
