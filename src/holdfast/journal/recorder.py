"""Writes a job's journal despite disk errors, which never stop the job.

While the journal cannot be written, entries wait in bounded memory, the user gets one message, and the
recorder retries at intervals. For a single thread.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from holdfast.core.plurals import counted
from holdfast.journal.rows import JournalDamaged, JournalUnusable, Row
from holdfast.journal.store import Store

HELD_ROWS_MAX = 100_000
HELD_BYTES_MAX = 32 << 20
BATCH_ROWS_MAX = 1_000  # record() writes when this many are held; flush() writes at most this many at once
RETRY_S = 5.0
LOST_KEY = "rows-lost"  # key in the journal's metadata: the number of rows that could not be written


class Recorder:
    """A writer of a job's journal that never raises when the journal cannot be written.

    `clock_s`: any monotonic clock, in seconds. `say`: shows a sentence to the user.
    """

    def __init__(self, path: Path, clock_s: Callable[[], float], say: Callable[[str], None]) -> None:
        self._path = path
        self._clock_s = clock_s
        self._say = say
        self._store: Store | None = None
        self._held: deque[Row] = deque()
        self._held_bytes = 0
        self._new_meta: dict[str, bytes] = {}
        self._trouble = ""  # why the journal is not written now; empty if it is
        self._retry_at_s = 0.0
        self._lost_in_trouble = 0
        self.lost_rows = 0
        self.flush()

    @property
    def store(self) -> Store | None:
        """Returns the open journal, for reading; None while it cannot be opened."""
        return self._store

    @property
    def last_seq(self) -> int:
        """Returns the number of the last entry that is in the journal; 0 while it cannot be opened."""
        return self._store.last_seq if self._store is not None else 0

    @property
    def trouble(self) -> str:
        """Returns why the journal cannot be written at the moment; empty if it can."""
        return self._trouble

    def record(self, row: Row) -> None:
        """Queues a row for writing. It is in the journal after the next flush() that returns True."""
        self._held.append(row)
        self._held_bytes += _size_bytes(row)
        if len(self._held) >= BATCH_ROWS_MAX:
            self.flush()
        while len(self._held) > HELD_ROWS_MAX or self._held_bytes > HELD_BYTES_MAX:
            self._forget(self._held[0])
            self.lost_rows += 1
            self._lost_in_trouble += 1

    def set_meta(self, key: str, value: bytes) -> None:
        """Sets a metadata value of the job, written with the next flush()."""
        self._new_meta[key] = value

    def flush(self) -> bool:
        """Writes all queued rows to the journal.

        Returns False if the journal cannot be written now; the caller then continues without it.
        """
        if self._trouble and self._clock_s() < self._retry_at_s:
            return False
        held_before = len(self._held)
        try:
            self._write_held()
        except JournalUnusable as error:
            self._note_trouble(error)
            return False
        if self._trouble:
            self._note_recovery(held_before)
        return True

    def close(self) -> None:
        """Tries once more to write the queued rows, and reports how many could not be written."""
        self._retry_at_s = self._clock_s()
        if not self.flush() and self._held:
            self._tell(
                f"{counted(len(self._held), 'entry', 'entries')} of the journal of this job {'is' if len(self._held) == 1 else 'are'} lost: {self._trouble}"
            )
        if self._store is not None:
            self._store.close()
            self._store = None

    def _write_held(self) -> None:
        store = self._store_in_place()
        for key, value in list(self._new_meta.items()):
            store.set_meta(key, value)
            del self._new_meta[key]
        while self._held:
            batch = list(islice(self._held, BATCH_ROWS_MAX))
            store.append(batch)
            for row in batch:
                self._forget(row)

    def _store_in_place(self) -> Store:
        """Returns the journal, opened if needed, and written again in full if its file was removed.

        raises: JournalUnusable
        """
        if self._store is None:
            self._store = Store.open(self._path)
            if self._store.salvaged:
                self._tell(self._store.salvaged)
        elif self._store.vanished():
            self._store.write_anew()
            self._store.close()
            self._store = None
            self._store = Store.open(self._path)
            self._tell(
                f"the journal {self._path} was removed while in use: it has been written again, "
                f"with the {counted(self._store.last_seq, 'entry', 'entries')} it had"
            )
        elif self._store.displaced():
            raise JournalUnusable(
                f"the journal {self._path} was replaced by another file; remove it if no other run uses it"
            )
        return self._store

    def _note_trouble(self, error: JournalUnusable) -> None:
        self._retry_at_s = self._clock_s() + RETRY_S
        if isinstance(error, JournalDamaged) and self._store is not None:
            self._store.close()  # opening it again repairs it
            self._store = None
        if not self._trouble:
            self._tell(
                f"the journal of this job cannot be written: {error}: training continues; "
                f"up to {HELD_ROWS_MAX} entries wait in memory, older ones are lost"
            )
        self._trouble = str(error)

    def _note_recovery(self, written: int) -> None:
        lost = self._lost_in_trouble
        waiting = counted(written, "waiting entry", "waiting entries")
        text = f"the journal of this job is being written again, with {waiting}"
        self._tell(f"{text}, {lost} are lost" if lost else text)
        if lost:
            self.set_meta(LOST_KEY, b"%d" % self.lost_rows)
        self._trouble, self._lost_in_trouble = "", 0

    def _forget(self, row: Row) -> None:
        self._held.popleft()
        self._held_bytes -= _size_bytes(row)

    def _tell(self, sentence: str) -> None:
        with suppress(OSError):  # a closed console must not stop the recorder
            self._say(sentence)


def _size_bytes(row: Row) -> int:
    return len(row.event) + len(row.orders) + len(row.why) + len(row.kind)
