"""Reads what the shim writes about uncaught exceptions of ranks: rank-N.error.json in the worker's folder."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct


class ErrorFile(Struct, frozen=True):
    """One uncaught exception of a rank, as the shim writes it to rank-N.error.json."""

    rank: int
    pid: int
    type: str
    message: str
    frame: str = ""
    traceback: str = ""
    time: float = 0.0


class ErrorFiles:
    """The files with uncaught exceptions that the ranks of one attempt wrote to one worker's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changed_ns = 0
        self._known: set[tuple[int, int]] = set()  # rank and pid

    def fresh(self, pids: Mapping[int, int]) -> Iterator[tuple[int, ErrorFile]]:
        """Yields each rank's exception file once, after the file appears. `pids`: process id by rank; files
        of other processes belong to an earlier attempt and are skipped.
        """
        try:
            changed_ns = os.stat(self._folder).st_mtime_ns
        except OSError:
            return
        if changed_ns == self._changed_ns:
            return
        self._changed_ns = changed_ns
        for rank, pid in pids.items():
            if (
                (rank, pid) not in self._known
                and (error := self._read(rank)) is not None
                and error.pid == pid
            ):
                self._known.add((rank, pid))
                yield rank, error

    def _read(self, rank: int) -> ErrorFile | None:
        try:
            return msgspec.json.decode(
                (self._folder / f"rank-{rank}.error.json").read_bytes(), type=ErrorFile
            )
        except (OSError, msgspec.MsgspecError):
            return None
