"""Keeps a copy of the job's journal on an agent's node, for a controller that has lost its own.

    jobs/<job>/nodes/<node>/journal-copy/journal.db

The copy is itself a journal, so its checksums distinguish a complete copy from a damaged one. Small files of the
job's folder are stored in its metadata. `lineage`: identifies the copied journal; a copy of another journal
is replaced.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.agent.nodes.home import JOURNAL_COPY
from holdfast.journal.rows import JournalUnusable, Row
from holdfast.journal.store import Store
from holdfast.model.nodes.workers import LINEAGE, CopiedRow, KeepRows, RowsKept, RowsSent

NAME = "journal.db"
PIECE_BYTES = 1 << 19


class JournalCopy:
    """The copy of the job's journal on one node. Its methods do not raise if the copy cannot be written or
    read.

    A copy that cannot be written is not acknowledged, and the controller chooses another node.
    """

    def __init__(self, node_folder: Path) -> None:
        self._folder = node_folder / JOURNAL_COPY
        self._store: Store | None = None

    @property
    def state(self) -> tuple[str, int]:
        """Returns the lineage of the copied journal and the number of its last row; ("", 0) if there is no
        copy.
        """
        store = self._opened()
        if store is None:
            return "", 0
        with suppress(JournalUnusable):
            return (store.meta(LINEAGE) or b"").decode("ascii", "replace"), store.last_seq
        return "", 0

    def keep(self, given: KeepRows) -> RowsKept:
        """Appends rows to the copy of the journal. Returns the acknowledgement for the controller."""
        try:
            return self._keep(given)
        except (JournalUnusable, OSError):
            self._close()
            return RowsKept(lineage=given.lineage, seq=0, is_broken=True)

    def pieces(self) -> Iterator[RowsSent]:
        """Yields the whole copy of the journal in pieces of about `PIECE_BYTES` bytes."""
        store = self._opened()
        if store is None:
            return
        lineage, _ = self.state
        meta = store.all_meta()
        rows: list[CopiedRow] = []
        size = 0
        for raw in store.read_raw():
            rows.append(raw[:5])
            size += len(raw[2]) + len(raw[3])
            if size >= PIECE_BYTES:
                yield RowsSent(lineage=lineage, rows=tuple(rows), meta=meta)
                rows, size, meta = [], 0, {}
        yield RowsSent(lineage=lineage, rows=tuple(rows), meta=meta, is_last=True)

    def _keep(self, given: KeepRows) -> RowsKept:
        """Appends rows. Raises JournalUnusable and OSError."""
        if self.state[0] != given.lineage:
            self._close()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._store = Store.open(self._folder / NAME)
            self._store.set_meta(LINEAGE, given.lineage.encode())
        store = self._store
        assert store is not None, "a copy of this lineage is open"
        have = store.last_seq
        if given.after <= have:
            store.append([Row(*row) for row in given.rows[have - given.after :]])
            known = store.all_meta()
            for key, value in given.meta.items():
                if known.get(key) != value:
                    store.set_meta(key, value)
        return RowsKept(lineage=given.lineage, seq=store.last_seq)

    def _opened(self) -> Store | None:
        if self._store is None and (self._folder / NAME).exists():
            with suppress(JournalUnusable):
                self._store = Store.open(self._folder / NAME)
        return self._store

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
        self._store = None
