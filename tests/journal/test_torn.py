"""A kill can stop SQLite at any write, and inside a write: what is left is a journal, not a damaged one.

The files are those a kill leaves, made by joining the log's bytes before and after a transaction.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.journal.store import Row, Store, open_reader

PAGE, WAL_HEAD, FRAME_HEAD = 4096, 32, 24
FRAME = FRAME_HEAD + PAGE
# Rows in a batch and bytes in a row: within one page, over many, and rows that need pages of their own.
SHAPES = [(1, 150), (40, 150), (4, 9000)]


def rows(count, size_bytes, after):
    return [
        Row(float(seq), "tick", (b"<event %06d>" % seq).ljust(size_bytes, b"."), b"[]", "")
        for seq in range(after + 1, after + count + 1)
    ]


class Transaction:
    """The files of a journal before and after one append, whose log is new or begun again over an older one."""

    def __init__(self, path, shape, log):
        store = Store.open(path)
        for count, size_bytes in [(1, 150), (3, 9000), (30, 150), (2, 9000), (1, 150)]:
            store.append(rows(count, size_bytes, store.last_seq))
        if log == "begun again":
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(RESTART)")
        self.main, self.before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
        self.seq_before = store.last_seq
        self.seq_after = store.append(rows(*shape, store.last_seq))
        self.after = Path(f"{path}-wal").read_bytes()
        assert path.read_bytes() == self.main
        store.close()
        self.start = 0 if log == "begun again" else len(self.before)
        assert (self.after[:WAL_HEAD] != self.before[:WAL_HEAD]) == (self.start == 0)
        assert self.after[: self.start] == self.before[: self.start]
        end = max(at + 1 for at, byte in enumerate(self.after) if self.before[at : at + 1] != bytes([byte]))
        self.end = WAL_HEAD + -(-(end - WAL_HEAD) // FRAME) * FRAME

    def cuts(self):
        """After how many bytes of the log a kill can stop: after a write, and where the kernel's pages end."""
        for at in range(self.start, self.end):
            if at % PAGE == 0 or (at - WAL_HEAD) % FRAME in (0, FRAME_HEAD):
                yield at


def opened(folder, main, log):
    """The last seq of the journal with these files, in which nothing may be found wrong."""
    folder.mkdir()
    path = folder / "journal.db"
    path.write_bytes(main)
    Path(f"{path}-wal").write_bytes(log)
    store = Store.open(path)
    assert store.salvaged == ""
    seqs = [entry.seq for entry in store.read()]
    assert seqs == list(range(1, store.last_seq + 1))
    assert store.append(rows(1, 150, store.last_seq)) == len(seqs) + 1
    store.close()
    return len(seqs)


@pytest.mark.parametrize("log", ["new", "begun again"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_transaction_cut_anywhere_is_no_damage(tmp_path, shape, log):
    one = Transaction(tmp_path / "journal.db", shape, log)
    cuts = list(one.cuts())
    assert len(cuts) >= 3 * (one.end - one.start) // FRAME
    for cut in cuts:
        left = one.after[:cut] + one.before[cut:]
        assert opened(tmp_path / str(cut), one.main, left) == one.seq_before, cut
    assert opened(tmp_path / "whole", one.main, one.after) == one.seq_after


@pytest.mark.parametrize("summed_up", range(4))
def test_frames_that_sqlite_has_still_to_sum_up_are_no_damage(tmp_path, summed_up):
    """Of a transaction larger than its cache SQLite writes frames twice, then their salts and checksums."""
    one = Transaction(tmp_path / "journal.db", (40, 150), "new")
    log = bytearray(one.after)
    for at in range(len(one.before) + summed_up * FRAME, len(log), FRAME):
        log[at + 8 : at + FRAME_HEAD] = bytes(FRAME_HEAD - 8)
    assert opened(tmp_path / "left", one.main, log) == one.seq_before


def test_a_commit_that_the_index_of_a_living_reader_does_not_know_is_no_damage(tmp_path):
    """A writer killed between its last write to the log and the one to the index, which a reader holds."""
    one = Transaction(tmp_path / "before" / "journal.db", (40, 150), "new")
    path = tmp_path / "journal.db"
    path.write_bytes(one.main)
    Path(f"{path}-wal").write_bytes(one.before)
    with closing(open_reader(path)) as reader:
        assert reader.last_seq == one.seq_before
        Path(f"{path}-wal").write_bytes(one.after)
        store = Store.open(path)
        assert (store.salvaged, store.last_seq) == ("", one.seq_before)
        assert store.append(rows(1, 500, store.last_seq)) == one.seq_before + 1
        store.close()
        assert reader.last_seq == one.seq_before + 1
