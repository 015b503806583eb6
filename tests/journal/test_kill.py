"""A writer is killed at any moment: what it was told to be written is there, and no kill looks like damage."""

import random

import pytest

from holdfast.journal.store import Row, Store
from journal.processes import Writer

ROUNDS = 20
# Rows in a batch and bytes in a row. The last makes SQLite write to its log before the commit.
SHAPES = [(1, 150), (10, 20), (100, 150), (10, 9000), (100, 150), (300, 9000)]


def row(seq, size_bytes):
    return Row(float(seq), "tick", (b"<event %06d>" % seq).ljust(size_bytes, b"."), b"[]", "")


@pytest.mark.parametrize("seed", range(3))
def test_what_append_returned_survives_kills(tmp_path, seed):
    dice, path, safe_seq = random.Random(seed), tmp_path / "journal.db", 0
    for _ in range(ROUNDS):
        batch_rows, size_bytes = dice.choice(SHAPES)

        def work(acknowledge, batch_rows=batch_rows, size_bytes=size_bytes):
            store = Store.open(path)
            acknowledge(store.last_seq)
            while True:
                first = store.last_seq + 1
                acknowledge(store.append([row(first + n, size_bytes) for n in range(batch_rows)]))

        writer = Writer(work)
        writer.wait_for_acknowledgements(dice.randrange(0, 9))
        writer.kill()
        safe_seq = max([safe_seq, *writer.acknowledged])
        safe_seq = _checked(path, safe_seq)


def _checked(path, safe_seq):
    store = Store.open(path)
    assert store.salvaged == ""
    seen = 0
    for seen, entry in enumerate(store.read(), 1):
        assert entry.seq == seen
        assert entry.event.startswith(b"<event %06d>" % seen)
    assert seen == store.last_seq >= safe_seq
    store.close()
    return seen
