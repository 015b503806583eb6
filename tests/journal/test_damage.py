"""Files cut off or overwritten anywhere: the journal opens, keeps what can be proven, and goes on."""

import os
import random
import re
import shutil
import sqlite3
import struct
from pathlib import Path

import pytest

from holdfast.journal import repair
from holdfast.journal.store import Row, Store, open_reader

PAGE, FRAME, WAL_HEAD = 4096, 4096 + 24, 32
ROWS = 500


def row(seq):
    size_bytes = 150 if seq % 50 else 6000 if seq % 100 else 13_000
    return Row(float(seq), "tick", (b"<event %06d>" % seq).ljust(size_bytes, b"."), b"[]", f"why {seq}")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """The files of a writer that died: 300 entries in the main file, 200 in the log, in batches of 10."""
    path = tmp_path_factory.mktemp("dead") / "journal.db"
    store = Store.open(path)
    store.set_meta("policy", b"strict")
    for first in range(1, ROWS, 10):
        if first == 301:
            connection = sqlite3.connect(path)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        store.append([row(seq) for seq in range(first, first + 10)])
    files = {"": path.read_bytes(), "-wal": Path(f"{path}-wal").read_bytes()}
    store.close()
    return files


def test_the_damaged_file_is_as_made(damaged, tmp_path):
    assert len(damaged["-wal"]) > 50 * FRAME
    assert b"<event 000300>" in damaged[""] and b"<event 000301>" not in damaged[""]
    assert _opened(tmp_path, damaged) == (ROWS, "")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("how", ["cut", "byte", "garbage", "zeros"])
@pytest.mark.parametrize("which", ["", "-wal"])
def test_no_more_is_lost_than_must_be(damaged, tmp_path, which, how, seed):
    dice = random.Random(f"{which} {how} {seed}")
    for number in range(6):
        content, start = bytearray(damaged[which]), dice.randrange(len(damaged[which]))
        end = min(len(content), start + (1 if how == "byte" else dice.randrange(1, 9000)))
        if how == "cut":
            end = len(content)
            del content[start:]
        elif how == "byte":
            content[start] ^= dice.randrange(1, 256)
        else:
            content[start:end] = bytes(end - start) if how == "zeros" else dice.randbytes(end - start)
        folder = tmp_path / str(number)
        folder.mkdir()
        kept, _ = _opened(folder, {**damaged, which: bytes(content)})
        assert kept >= _must_be_kept(damaged, which, start, end), (which, how, start, end)


def test_rows_that_fill_many_pages_are_saved(tmp_path):
    path = tmp_path / "journal.db"
    store = Store.open(path)
    rows = [Row(1.0, "log", bytes([seq]) * (seq * 1500), b"[]", "") for seq in range(20)]
    store.append(rows)
    store.close()
    content = bytearray(path.read_bytes())
    assert content[PAGE] == 0x05  # the page that leads to those of the rows
    content[PAGE : 2 * PAGE] = bytes(PAGE)
    path.write_bytes(content)
    store = Store.open(path)
    assert "20 entries were saved" in store.salvaged
    assert [entry.event for entry in store.read()] == [one.event for one in rows]
    store.close()


def test_no_less_is_saved_than_sqlite_can_read(damaged, tmp_path):
    """A page in the log that claims the number of one which an early row needs hides that one from us."""
    overflow = damaged[""].index(b"." * 3000) // PAGE + 1
    log, at = bytearray(damaged["-wal"]), WAL_HEAD + 20 * FRAME
    assert struct.unpack_from(">I", log, at)[0] != overflow
    struct.pack_into(">I", log, at, overflow)
    kept, told = _opened(tmp_path, {**damaged, "-wal": bytes(log)})
    assert kept > 300 and "write-ahead log is damaged" in told


def _opened(folder, files):
    """Writes the files, opens the journal on them, and checks all that must hold. Rows kept, what was said."""
    path = folder / "journal.db"
    for suffix, content in files.items():
        Path(f"{path}{suffix}").write_bytes(content)
    store = Store.open(path)
    told, kept = store.salvaged, store.last_seq
    for seq, entry in enumerate(store.read(), 1):
        assert (entry.seq, entry.event, entry.why) == (seq, row(seq).event, row(seq).why)
    assert store.append([row(kept + 1)]) == kept + 1
    store.close()
    if told:
        assert f"{kept} entries were saved" in told
        damaged = Path(f"{path}.damaged-1")
        assert str(damaged) in told
        for suffix, content in files.items():
            assert Path(f"{damaged}{suffix}").read_bytes() == content
    again = Store.open(path)
    assert (again.salvaged, again.last_seq, len(list(again.read_raw()))) == ("", kept + 1, kept + 1)
    again.close()
    return kept, told


def _must_be_kept(files, which, start, end):
    """Rows before the first one of which no copy lies outside the damaged pages.

    In the log a frame counts as lost too when no commit comes after it that is whole and can be told from one
    that a kill tore: by the checksum in the frame before, or by a frame after it.
    """
    places = _copies(files)
    wal_frames = (len(files["-wal"]) - WAL_HEAD) // FRAME
    if which == "":
        lost = {("", page) for page in range(start // PAGE, (end - 1) // PAGE + 1)}
    else:
        hit = range(max(0, start - WAL_HEAD) // FRAME, max(0, end - 1 - WAL_HEAD) // FRAME + 1)
        commits = [
            frame
            for frame in range(wal_frames)
            if frame not in hit
            and (frame - 1 not in hit or frame + 1 in range(wal_frames))
            and struct.unpack_from(">I", files["-wal"], WAL_HEAD + frame * FRAME + 4)[0]
        ]
        lost = {("-wal", frame) for frame in [*hit, *range(max(commits, default=-1) + 1, wal_frames)]}
    for seq in range(1, ROWS + 1):
        if places[seq] <= lost or (seq % 50 == 0 and places[seq] & lost):
            return seq - 1
    return ROWS


def _copies(files):
    """Where each row lies: (file, page or frame). Large rows go over to pages of their own, filled with dots."""
    places = {seq: set() for seq in range(1, ROWS + 1)}
    for suffix, size_bytes, head_bytes in (("", PAGE, 0), ("-wal", FRAME, WAL_HEAD)):
        for found in re.finditer(rb"<event (\d{6})>", files[suffix]):
            places[int(found[1])].add((suffix, (found.start() - head_bytes) // size_bytes))
    for suffix, size_bytes, head_bytes in (("", PAGE, 0), ("-wal", FRAME, WAL_HEAD)):
        for index in range((len(files[suffix]) - head_bytes) // size_bytes):
            start = head_bytes + index * size_bytes + (24 if suffix else 0)
            if files[suffix][start + 4 : start + 1000] == b"." * 996:
                for seq in range(50, ROWS + 1, 50):
                    places[seq].add((suffix, index))
    return places


@pytest.mark.parametrize(
    "content", [b"", b"not a journal at all", b"\0" * 9000, b"SQLite format 3\0", os.urandom(20_000)]
)
def test_a_file_that_is_no_journal_is_kept_and_a_journal_begun(tmp_path, content):
    kept, told = _opened(tmp_path, {"": content})
    assert kept == 0 and "not that of a journal" in told


def test_a_database_of_something_else_is_kept(tmp_path):
    connection = sqlite3.connect(tmp_path / "other.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY)")
    connection.close()
    kept, told = _opened(tmp_path, {"": (tmp_path / "other.db").read_bytes()})
    assert kept == 0 and told


def test_meta_is_saved_too(damaged, tmp_path):
    path = tmp_path / "journal.db"
    path.write_bytes(damaged[""][:100] + bytes(4000) + damaged[""][4100:])
    store = Store.open(path)
    assert (store.meta("policy"), store.last_seq) == (b"strict", 300)
    store.close()


def test_each_damaged_file_is_kept_under_its_own_number(tmp_path):
    path = tmp_path / "journal.db"
    for _ in range(3):
        path.write_bytes(b"nonsense")
        Store.open(path).close()
    assert sorted(tmp_path.glob("*.damaged-*")) == [Path(f"{path}.damaged-{number}") for number in (1, 2, 3)]


@pytest.mark.parametrize("killed_after", range(4))
def test_a_killed_repair_is_finished(damaged, tmp_path, killed_after):
    path, kept = tmp_path / "journal.db", tmp_path / "journal.db.damaged-1"
    path.write_bytes(damaged[""][:-9000])
    Path(f"{path}-wal").write_bytes(damaged["-wal"])
    if killed_after == 0:
        Path(f"{path}.building").write_bytes(b"half a fi")
    else:
        repair.build(path, [row_as_entry(seq) for seq in (1, 2, 3)], {})
    for step, suffix in ((2, ""), (3, "-wal")):
        if killed_after >= step:
            os.replace(f"{path}{suffix}", f"{kept}{suffix}")
    store = Store.open(path)
    assert store.last_seq >= 3
    store.close()
    assert sorted(os.listdir(tmp_path)) == ["journal.db", kept.name, f"{kept.name}-wal"]
    assert Path(f"{kept}-wal").read_bytes() == damaged["-wal"]


def row_as_entry(seq):
    one = row(seq)
    return one.at_s, one.kind, one.event, one.orders, one.why, seq


@pytest.mark.parametrize("at", [50, 5000, 40_000])
def test_a_reader_shows_what_it_can_and_says_where_it_stops(damaged, tmp_path, at):
    path = tmp_path / "journal.db"
    content = bytearray(damaged[""])
    content[at : at + 200] = b"\xaa" * 200
    path.write_bytes(content)
    shutil.copy(path, tmp_path / "before")
    reader = open_reader(path)
    entries = list(reader.read())
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert len(entries) == 300 or reader.damage
    reader.close()
    assert path.read_bytes() == (tmp_path / "before").read_bytes()
