"""The store and its readers: what goes in comes out, and nothing goes in another way."""

import math
import os
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.journal.rows import INSERT_META, VERSION_KEY, JournalUnusable, NewerJournal, Tail, meta_crc
from holdfast.journal.salvage import Salvage
from holdfast.journal.store import Entry, Row, Store, open_reader
from journal.processes import Writer, in_child, mount

TEXT = st.text(max_size=40)
ROWS = st.lists(
    st.builds(Row, st.floats(allow_nan=False), TEXT, st.binary(max_size=9000), st.binary(max_size=40), TEXT),
    max_size=8,
)


def row(number, kind="tick", size_bytes=150):
    return Row(
        float(number), kind, (b"<event %06d>" % number).ljust(size_bytes, b"."), b"[]", f"why {number}"
    )


def test_what_is_appended_is_read_in_order(tmp_path):
    store = Store.open(tmp_path / "new" / "journal.db")
    assert (store.last_seq, store.salvaged, list(store.read())) == (0, "", [])
    assert store.append([row(1), row(2, kind="log")]) == 2
    assert store.append([]) == 2
    assert store.append([row(3)]) == 3
    assert [entry.seq for entry in store.read()] == [1, 2, 3]
    assert [entry.seq for entry in store.read(after_seq=1)] == [2, 3]
    assert list(store.read(kinds=["log"])) == [Entry(2.0, "log", row(2).event, b"[]", "why 2", 2)]
    store.close()
    again = Store.open(store.path)
    assert (again.last_seq, again.salvaged, len(list(again.read_raw()))) == (3, "", 3)
    again.close()


def test_meta_keeps_the_newest_value(tmp_path):
    store = Store.open(tmp_path / "journal.db")
    assert store.meta("policy") is None
    store.set_meta("policy", b"old")
    store.set_meta("policy", b"new \xff")
    assert store.meta("policy") == b"new \xff"
    reader = open_reader(store.path)
    assert reader.meta("policy") == b"new \xff" and reader.meta("other") is None
    reader.close()
    store.close()


@settings(max_examples=40, deadline=None)
@given(st.lists(ROWS, max_size=4))
def test_any_rows_come_back_as_they_were_through_every_way_in(tmp_path_factory, batches):
    store = Store.open(tmp_path_factory.mktemp("any") / "journal.db")
    for batch in batches:
        store.append(batch)
    rows = [one for batch in batches for one in batch]
    expected = [(one.at_s, one.kind, one.event, one.orders, one.why, seq) for seq, one in enumerate(rows, 1)]
    reader, salvage = open_reader(store.path), Salvage(store.path)
    assert list(store.read_raw()) == expected
    assert list(reader.read_raw()) == expected and reader.damage == ""
    assert list(salvage.entries(Tail())) == expected
    for one in (store, reader, salvage):
        one.close()


def test_values_that_sqlite_refuses_do_not_cost_the_row(tmp_path):
    store = Store.open(tmp_path / "journal.db")
    store.append(
        [Row(math.nan, "log", b"", b"", "not UTF-8: \udcff"), Row(-0.0, "", b"", b"", "nul \0 in it")]
    )
    store.close()
    store = Store.open(store.path)
    first, second = store.read()
    assert (store.salvaged, first.at_s, first.why) == ("", 0.0, "not UTF-8: \\udcff")
    assert second.why == "nul \0 in it"
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET why = 'x' WHERE seq = 1",
        "DELETE FROM entries WHERE seq = 1",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE seq = 1",
        "INSERT INTO entries VALUES (4, 0, '', x'', x'', '', 0)",
        "UPDATE meta SET value = x''",
        "DELETE FROM meta",
    ],
)
def test_the_file_itself_refuses_changes(tmp_path, statement):
    store = Store.open(tmp_path / "journal.db")
    store.append([row(1), row(2)])
    connection = sqlite3.connect(store.path)
    with pytest.raises(sqlite3.IntegrityError, match="journal"):
        connection.execute(statement)
    connection.close()
    store.close()


def test_a_newer_journal_is_left_alone(tmp_path):
    path = tmp_path / "journal.db"
    Store.open(path).close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(INSERT_META, (VERSION_KEY, b"99", meta_crc(VERSION_KEY, b"99")))
    connection.close()
    before = path.read_bytes()
    for opened in (Store.open, open_reader):
        with pytest.raises(NewerJournal, match=r"journal\.db has journal version 99.* up to 1"):
            opened(path)
    assert path.read_bytes() == before
    path.write_bytes(before[:8000] + b"\xff" * 100 + before[8100:])  # damaged too: it is not ours to repair
    with pytest.raises(NewerJournal):
        Store.open(path)
    assert not list(tmp_path.glob("*damaged*")) and not list(tmp_path.glob("*buil*"))


def test_a_place_without_folder_is_refused_with_the_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalUnusable, match=r"file/journal\.db cannot be opened: .*(directory|exists)"):
        Store.open(tmp_path / "file" / "journal.db")
    with pytest.raises(JournalUnusable, match="there is no journal at"):
        open_reader(tmp_path / "journal.db")


def _left_by_a_dead_writer(path):
    def work(acknowledge):
        store = Store.open(path)
        store.append([row(number) for number in range(1, 41)])
        acknowledge(40)
        os.read(os.pipe()[0], 1)  # waits to be killed

    writer = Writer(work)
    writer.wait_for_acknowledgements(1)
    writer.kill()


@pytest.mark.parametrize("left", ["closed", "dead", "dead, index gone"])
def test_a_read_only_folder_can_be_read_but_not_opened(tmp_path, left):
    path = tmp_path / "journal.db"
    _left_by_a_dead_writer(path)
    if left == "closed":
        Store.open(path).close()
    if left == "dead, index gone":
        (tmp_path / "journal.db-shm").unlink()

    def work():
        mount("--bind", tmp_path, tmp_path)
        mount("-o", "remount,bind,ro", tmp_path)
        with pytest.raises(JournalUnusable, match="cannot be opened"):
            Store.open(path)
        reader = open_reader(path)
        assert [entry.seq for entry in reader.read()] == list(range(1, 41))
        assert (reader.last_seq, reader.damage) == (40, "")
        reader.close()

    in_child(work)


def test_a_reader_works_beside_a_writer_and_after_its_death(tmp_path):
    path = tmp_path / "journal.db"

    def work(acknowledge):
        store, number = Store.open(path), 0
        while True:
            number = store.append([row(number + one) for one in range(1, 51)])
            acknowledge(number)

    writer = Writer(work)
    writer.wait_for_acknowledgements(1)
    reader, seen = open_reader(path), 0
    while seen < 5000:
        entries = list(reader.read(after_seq=seen))
        assert [entry.seq for entry in entries] == list(range(seen + 1, seen + 1 + len(entries)))
        assert all(entry.event.startswith(b"<event %06d>" % entry.seq) for entry in entries)
        seen += len(entries)
    writer.kill()
    assert reader.last_seq >= writer.acknowledged[-1] and reader.damage == ""
    after = open_reader(path)
    assert len(list(after.read())) == after.last_seq == reader.last_seq
    reader.close()
    after.close()
