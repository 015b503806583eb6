"""Opens the copy of the job's journal on an agent's node when the controller requires it or an earlier agent
left one.

Until then SQLite is not imported: every agent takes memory for its imports beside the training, and few keep
a copy.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from holdfast.agent.nodes.home import JOURNAL_COPY
from holdfast.model.nodes.workers import KeepRows, RowsKept, RowsSent


class _Copy(Protocol):
    @property
    def state(self) -> tuple[str, int]: ...

    def keep(self, given: KeepRows) -> RowsKept: ...

    def pieces(self) -> Iterator[RowsSent]: ...


class CopyOnDemand:
    """The copy of the job's journal on one node, opened at its first use. Has the methods of
    `JournalCopy`.
    """

    def __init__(self, node_folder: Path) -> None:
        self._node_folder = node_folder
        self._copy: _Copy | None = None

    @property
    def state(self) -> tuple[str, int]:
        """Returns the lineage of the copied journal and the number of its last row; ("", 0) if there is no
        copy.
        """
        return self._opened().state if self._exists() else ("", 0)

    def keep(self, given: KeepRows) -> RowsKept:
        """Appends rows to the copy of the journal. Returns the acknowledgement for the controller."""
        return self._opened().keep(given)

    def pieces(self) -> Iterator[RowsSent]:
        """Yields the whole copy of the journal in pieces; nothing if there is no copy."""
        if self._exists():
            yield from self._opened().pieces()

    def _exists(self) -> bool:
        return self._copy is not None or (self._node_folder / JOURNAL_COPY).exists()

    def _opened(self) -> _Copy:
        if self._copy is None:
            module = importlib.import_module("holdfast.agent.nodes.journal_copy")
            copy: _Copy = module.JournalCopy(self._node_folder)
            self._copy = copy
        return self._copy
