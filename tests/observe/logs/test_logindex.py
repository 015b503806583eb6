"""Logs read back by time: written by a real follower, or by nobody that kept an index."""

import os
import re

import pytest

from holdfast.observe.logs import index as logindex
from holdfast.observe.logs.follow import Follower
from holdfast.observe.logs.index import RECORD, Index, IndexWriter, index_path, rank_of_source, read_lines
from holdfast.parsers.log_lines.text import CUT_MARK


def add(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


def record(folder, *events):
    """Plays (at_s, source, bytes) into a folder that is being followed."""
    folder.mkdir(parents=True, exist_ok=True)
    with Follower(folder, write_index=True) as follower:
        for at_s, source, data in events:
            add(folder / source, data)
            follower.poll(at_s)
        assert not follower.notes


def read(*folders, **wanted):
    return list(read_lines([(1, number, folder) for number, folder in enumerate(folders)], **wanted))


def texts(found):
    return [line.text for line in found]


@pytest.fixture
def folder(tmp_path):
    record(
        tmp_path / "w0",
        (100.0, "stdout", b"one\ntwo\n"),
        (102.0, "stderr", b"oops\n"),
        (103.0, "stdout", b"three\nfo"),
        (105.0, "stdout", b"ur\n"),
        (106.0, "rank-3.log", b"ranked\n"),
    )
    return tmp_path / "w0"


def test_lines_of_several_files_come_in_order_of_time(folder):
    found = read(folder)
    assert [(line.at_s, line.source, line.rank, line.text) for line in found] == [
        (100.0, "stdout", None, b"one"),
        (100.0, "stdout", None, b"two"),
        (102.0, "stderr", None, b"oops"),
        (103.0, "stdout", None, b"three"),
        (105.0, "stdout", None, b"four"),
        (106.0, "rank-3.log", 3, b"ranked"),
    ]
    assert all(line.exact and (line.attempt, line.worker) == (1, 0) for line in found)


def test_times_bound_what_is_given(folder):
    assert texts(read(folder, since_s=102)) == [b"oops", b"three", b"four", b"ranked"]
    assert texts(read(folder, since_s=104)) == [b"four", b"ranked"]
    assert texts(read(folder, until_s=103)) == [b"one", b"two", b"oops", b"three"]
    assert texts(read(folder, since_s=101, until_s=104)) == [b"oops", b"three"]
    assert read(folder, since_s=107) == []
    assert read(folder, until_s=99) == []


def test_lines_are_chosen_by_source_pattern_and_rank(folder):
    add(folder / "stdout", b"[rank3]: from three\n[default2]:from two\n[rank3] no prefix\n")
    assert texts(read(folder, sources={"stderr"})) == [b"oops"]
    assert texts(read(folder, grep=re.compile(rb"^t"))) == [b"two", b"three"]
    assert sorted(texts(read(folder, rank=3))) == [b"[rank3]: from three", b"ranked"]
    assert texts(read(folder, rank=2)) == [b"[default2]:from two"]


def test_workers_and_attempts_are_merged_and_ties_keep_their_order(tmp_path):
    for worker in range(3):
        record(
            tmp_path / f"w{worker}",
            *[(float(at), "stdout", b"%d at %d\n" % (worker, at)) for at in (5, 6, 7)],
        )
    dirs = [(2, 0, tmp_path / "w2"), (1, 1, tmp_path / "w1"), (1, 0, tmp_path / "w0")]
    found = list(read_lines(dirs))
    assert texts(found) == [b"%d at %d" % (worker, at) for at in (5, 6, 7) for worker in (0, 1, 2)]
    assert [line.attempt for line in found[:3]] == [1, 1, 2]


def test_without_an_index_the_time_is_a_guess(tmp_path):
    add(tmp_path / "stdout", b"one\ntwo")
    os.utime(tmp_path / "stdout", (200, 200))
    found = read(tmp_path)
    assert [(line.at_s, line.exact, line.text) for line in found] == [
        (200, False, b"one"),
        (200, False, b"two"),
    ]
    assert read(tmp_path, since_s=201) == []
    assert texts(read(tmp_path, since_s=199, until_s=199.5)) == [
        b"one",
        b"two",
    ]  # they may have been written then


def test_what_came_after_the_index_is_a_guess_too(folder):
    add(folder / "stdout", b"alone\n")
    os.utime(folder / "stdout", (300, 300))
    last = read(folder)[-1]
    assert (last.at_s, last.exact, last.text) == (300, False, b"alone")
    assert b"alone" not in texts(read(folder, until_s=104))
    assert texts(read(folder, since_s=299)) == [b"alone"]


def test_a_torn_record_does_not_count_and_is_written_over(folder):
    index = index_path(folder / "stdout")
    whole = index.read_bytes()
    index.write_bytes(whole[:-5])
    os.utime(folder / "stdout", (300, 300))
    assert [(line.at_s, line.exact) for line in read(folder) if line.text == b"four"] == [(300, False)]
    record(folder, (400.0, "stdout", b"five\n"))
    assert index.stat().st_size == len(whole)
    assert Index(folder / "stdout").record(2)[0] == 400.0


def test_a_damaged_index_loses_times_not_lines(folder):
    index_path(folder / "stdout").write_bytes(RECORD.pack(9000, 4) + bytes(32) + RECORD.pack(5, 2**63))
    assert sorted(texts(read(folder, sources={"stdout"}))) == [b"four", b"one", b"three", b"two"]


def test_an_index_goes_on_after_a_restart_and_never_back(tmp_path):
    record(tmp_path, (100.0, "stdout", b"one\n"))
    record(tmp_path, (90.0, "stdout", b"two\n"), (91.0, "stdout", b""))
    assert [(line.at_s, line.text) for line in read(tmp_path)] == [(100.0, b"one"), (100.0, b"two")]
    assert index_path(tmp_path / "stdout").stat().st_size == 2 * RECORD.size


def test_a_file_begun_anew_has_a_new_index(tmp_path):
    path = tmp_path / "stdout"
    with Follower(tmp_path, write_index=True) as follower:
        add(path, b"a long first line\n")
        follower.poll(100.0)
        os.truncate(path, 0)
        add(path, b"new\n")
        follower.poll(101.0)
    assert [(line.at_s, line.text) for line in read(tmp_path)] == [(101.0, b"new")]


def test_since_on_a_large_file_reads_little_of_it(tmp_path):
    path = tmp_path / "stdout"
    size_bytes = 1 << 40
    with path.open("wb") as file:
        file.truncate(size_bytes)  # a hole of 1 TiB: reading it would take for ever
        file.seek(size_bytes)
        file.write(b"\nlast\n")
    with index_path(path).open("wb") as index:
        for number in range(1, 1000):
            index.write(RECORD.pack(number * 1000, size_bytes // 1000 * number))
        index.write(RECORD.pack(1_000_000, size_bytes))
        index.write(RECORD.pack(1_001_000, size_bytes + 6))
    assert [(line.at_s, line.text) for line in read(tmp_path, since_s=1001)] == [(1001.0, b"last")]


def test_since_gives_a_line_that_began_before_as_a_whole(tmp_path):
    record(
        tmp_path,
        (100.0, "stdout", b"x\nbegun "),
        (101.0, "stdout", b"and "),
        (102.0, "stdout", b"ended\ny\n"),
    )
    assert texts(read(tmp_path, since_s=100.5)) == [b"begun and ended", b"y"]
    assert texts(read(tmp_path, until_s=101.5)) == [b"x"]


def test_long_lines_are_cut_when_read_back(tmp_path):
    record(tmp_path, (100.0, "stdout", b"b" * 200_000 + b"\nshort\n"))
    found = texts(read(tmp_path))
    assert found[0].endswith(CUT_MARK)
    assert found[1:] == [b"short"]


def test_many_small_steps_give_the_same_lines(tmp_path):
    text = b"".join(b"line %d\n" % number for number in range(30_000))
    steps = [(float(at), "stdout", text[at * 997 : (at + 1) * 997]) for at in range(len(text) // 997 + 1)]
    record(tmp_path, *steps)
    found = read(tmp_path)
    assert texts(found) == text.splitlines()
    half = [line.text for line in found if line.at_s >= 150]
    assert texts(read(tmp_path, since_s=150)) == half


def test_an_index_that_cannot_be_written_is_said_once_and_harms_nothing(tmp_path):
    index_path(tmp_path / "stdout").mkdir()
    add(tmp_path / "stdout", b"one\n")
    with Follower(tmp_path, write_index=True) as follower:
        assert [chunk.lines for chunk in follower.poll(100.0)] == [[b"one"]]
        add(tmp_path / "stdout", b"two\n")
        assert [chunk.lines for chunk in follower.poll(101.0)] == [[b"two"]]
        assert len(follower.notes) == 1
    assert texts(read(tmp_path)) == [b"one", b"two"]


def test_a_full_disk_leaves_no_half_record_behind(tmp_path):
    said = []
    writer = IndexWriter(tmp_path / "stdout", said.append)
    writer.append(1.0, 10)
    add(
        index_path(tmp_path / "stdout"), b"half"
    )  # as a disk that filled up in the middle of a record leaves it
    writer.append(2.0, 20)
    writer.close()
    assert Index(tmp_path / "stdout").count == 2
    assert Index(tmp_path / "stdout").record(1) == (2.0, 20)
    assert said == []


def test_a_missing_folder_has_no_lines(tmp_path):
    assert read(tmp_path / "nowhere") == []


def test_a_log_names_its_rank():
    assert rank_of_source("rank-12.log") == 12
    assert rank_of_source("stdout") is None
    assert logindex.SOURCE.fullmatch("stdout.idx") is None
