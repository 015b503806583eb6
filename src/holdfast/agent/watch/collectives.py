"""Collects once a second how far one worker's ranks are in their collectives. Never waits for a rank."""

import time
from collections.abc import Iterable
from pathlib import Path

from holdfast.model.flight.records import GroupStatus
from holdfast.observe.processes.worker_server import GroupStatusReader


class Collectives:
    """Queries ranks for their progress in collectives. Call `ask`, and a little later `read`: a rank replies
    in less than a millisecond.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._readers: dict[int, GroupStatusReader] = {}

    def ask(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            reader = self._readers.get(rank)
            if reader is None:
                path = self._folder / f"rank-{rank}.sock"
                reader = self._readers[rank] = GroupStatusReader(path, time.monotonic)
            reader.ask()

    def read(self, rank: int) -> tuple[GroupStatus, ...] | None:
        """Returns the progress of a rank in its collectives; None if it has not responded or cannot be
        queried.
        """
        reader = self._readers.get(rank)
        return None if reader is None else reader.read()

    def thread(self, rank: int) -> int:
        """Returns the thread that runs the rank's script, by its last response; 0 means the main thread or
        unknown.
        """
        reader = self._readers.get(rank)
        return 0 if reader is None else reader.thread

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()
