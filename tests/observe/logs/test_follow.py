"""Growing files, followed: real files in a folder, and times that the tests choose."""

import os
import re
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.logs import follow
from holdfast.observe.logs.follow import Follower
from holdfast.parsers.log_lines.text import CUT_MARK, LINE_BYTES_MAX, LineCutter


@pytest.fixture
def follower(tmp_path):
    with Follower(tmp_path) as follower:
        yield follower


def add(path, data):
    with path.open("ab") as file:
        file.write(data)


def lines(chunks, source="stdout"):
    return [line for chunk in chunks if chunk.source == source for line in chunk.lines]


def test_complete_lines_come_once_with_their_place(tmp_path, follower):
    add(tmp_path / "stdout", b"one\ntwo\nthr")
    first = follower.poll(1.0)
    assert [(c.source, c.at_s, c.offset, c.lines) for c in first] == [("stdout", 1.0, 0, [b"one", b"two"])]
    add(tmp_path / "stdout", b"ee\n\nfour\n")
    second = follower.poll(1.1)
    assert [(c.offset, c.lines) for c in second] == [(8, [b"three", b"", b"four"])]
    assert follower.poll(1.2) == []
    assert follower.sizes() == {"stdout": 20}


def test_an_unfinished_line_comes_when_it_has_stood_still(tmp_path, follower):
    add(tmp_path / "stderr", b"Password: ")
    assert follower.poll(1.0) == []
    assert follower.poll(1.4) == []
    assert lines(follower.poll(1.6), "stderr") == [b"Password: "]
    assert follower.poll(3.0) == []
    add(tmp_path / "stderr", b"\nnext\n")
    assert lines(follower.poll(3.1), "stderr") == [b"next"]


def test_finish_gives_the_unfinished_line_and_files_not_seen_before(tmp_path, follower):
    follower.poll(1.0)
    add(tmp_path / "stdout", b"no end")
    add(tmp_path / "rank-12.log", b"x\ny")
    chunks = follower.finish(1.01)
    assert lines(chunks) == [b"no end"]
    assert lines(chunks, "rank-12.log") == [b"x", b"y"]


def test_only_the_files_of_a_worker_are_followed(tmp_path, follower):
    for name in ("stdout.idx", "rank-1.log.1", "rank-x.log", "notes", "rank-1.log"):
        add(tmp_path / name, b"line\n")
    os.mkfifo(tmp_path / "stderr")
    (tmp_path / "rank-2.log").mkdir()
    assert [chunk.source for chunk in follower.poll(1.0)] == ["rank-1.log"]


def test_a_file_that_appears_later_is_found(tmp_path, follower):
    assert follower.poll(1.0) == []
    add(tmp_path / "rank-0.log", b"late\n")
    found = follower.poll(1.1) or follower.poll(
        1.0 + follow.LIST_S
    )  # the second, where mtime has not moved on
    assert lines(found, "rank-0.log") == [b"late"]


def test_progress_bars_are_lines(tmp_path, follower):
    add(tmp_path / "stderr", b"start\n\r 10%| 1/10\r 20%| 2/10\r")
    assert lines(follower.poll(1.0), "stderr") == [b"start", b" 10%| 1/10", b" 20%| 2/10"]
    add(tmp_path / "stderr", b"\r 30%| 3/10\r\ndone\r\n")
    assert lines(follower.poll(1.1), "stderr") == [b" 30%| 3/10", b"done"]


def test_bytes_pass_as_they_are(tmp_path, follower):
    add(tmp_path / "stdout", b"\xff\xfe\x00\x80 x\n\xe8\xae")
    assert lines(follower.finish(1.0)) == [b"\xff\xfe\x00\x80 x", b"\xe8\xae"]


def test_a_long_line_is_cut_and_its_rest_skipped(tmp_path, follower):
    add(tmp_path / "stdout", b"a" * 1_000_000)
    assert lines(follower.poll(1.0)) == [b"a" * LINE_BYTES_MAX + CUT_MARK]
    add(tmp_path / "stdout", b"a" * 500_000)
    assert follower.poll(5.0) == []
    add(tmp_path / "stdout", b"aaa\nnext\n")
    assert lines(follower.poll(5.1)) == [b"next"]


def test_endless_lines_need_no_memory(tmp_path, follower):
    with (tmp_path / "stdout").open("wb") as file:
        file.truncate(60 << 20)  # a hole: 60 MiB of zeros, no newline
    follower.poll(1.0)
    tracemalloc.start()
    given = [line for at in range(40) for line in lines(follower.poll(2.0 + at))]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert given == []
    assert peak_bytes < 2 << 20


def test_one_poll_reads_so_much_and_the_next_goes_on(tmp_path, follower):
    text = b"".join(b"line %d\n" % number for number in range(400_000))
    add(tmp_path / "stdout", text)
    first = follower.poll(1.0)
    assert 0 < sum(len(line) + 1 for line in lines(first)) <= follow.POLL_BYTES_MAX
    got = lines(first)
    for at in range(10):
        got += lines(follower.poll(1.1 + at))
    assert got == text.splitlines()


def test_who_falls_far_behind_skips_ahead_and_says_so(tmp_path, follower):
    path = tmp_path / "stdout"
    add(path, b"begin\n")
    follower.poll(1.0)
    os.truncate(path, follow.BEHIND_BYTES_MAX + 1000)
    add(path, b"rest of a line\nlast\n")
    assert lines(follower.poll(2.0)) == [b"last"]
    assert len(follower.notes) == 1
    assert "were skipped in the search" in follower.notes[0]


def test_a_file_cut_short_is_read_from_its_start(tmp_path, follower):
    path = tmp_path / "stdout"
    add(path, b"old line\nold")
    follower.poll(1.0)
    os.truncate(path, 0)
    add(path, b"new\n")
    assert lines(follower.poll(2.0)) == [b"new"]
    assert "truncated to 4 bytes" in follower.notes[0]


@pytest.mark.parametrize("more", [b"", b"and more\n"])
def test_a_file_emptied_and_as_long_again_is_read_from_its_start(tmp_path, follower, more):
    path = tmp_path / "stdout"
    add(path, b"line one\nline two\n")
    follower.poll(1.0)
    os.truncate(path, 0)
    add(path, b"line six\nline ten\n" + more)
    os.utime(path, ns=(1, 1))  # a clock may not have ticked since
    assert lines(follower.poll(2.0)) == [b"line six", b"line ten", *more.splitlines()]
    assert "rewritten" in follower.notes[0]


def test_a_writer_that_goes_on_behind_the_hole_of_an_emptied_file_is_read_on(tmp_path, follower):
    path = tmp_path / "stdout"
    with path.open("wb", buffering=0) as file:
        file.write(b"line one\n")
        follower.poll(1.0)
        os.truncate(path, 0)
        file.write(b"line two\n")
        assert lines(follower.poll(2.0)) == [b"line two"]
    assert not follower.notes


def test_a_replaced_file_is_read_to_its_end_before_the_new_one(tmp_path, follower):
    path = tmp_path / "stdout"
    add(path, b"one\n")
    follower.poll(1.0)
    add(path, b"two\nhalf")
    path.rename(tmp_path / "stdout.old")
    add(path, b"three\n")
    got = lines(follower.poll(2.1)) + lines(follower.poll(2.2)) + lines(follower.poll(2.3))
    assert got == [b"two", b"half", b"three"]


def test_a_file_that_was_renamed_is_read_on_until_another_has_its_name(tmp_path, follower):
    add(tmp_path / "stdout", b"one\n")
    assert lines(follower.poll(1.0)) == [b"one"]
    (tmp_path / "stdout").rename(tmp_path / "stdout.1")
    assert lines(follower.poll(3.0)) == []
    add(tmp_path / "stdout.1", b"two\n")
    assert lines(follower.poll(5.0)) == [b"two"]
    add(tmp_path / "stdout.1", b"three\n")
    add(tmp_path / "stdout", b"new\n")
    assert lines(follower.poll(7.0)) + lines(follower.poll(9.0)) == [b"three", b"new"]


def test_a_file_that_vanishes_is_forgotten(tmp_path, follower):
    add(tmp_path / "stdout", b"one\n")
    follower.poll(1.0)
    (tmp_path / "stdout").unlink()
    follower.poll(3.0)
    follower.poll(3.1)
    assert follower.sizes() == {}


def test_a_missing_folder_is_no_trouble(tmp_path):
    with Follower(tmp_path / "later") as follower:
        assert follower.poll(1.0) == []
        (tmp_path / "later").mkdir()
        add(tmp_path / "later" / "stdout", b"here\n")
        assert lines(follower.poll(1.1)) == [b"here"]


def test_a_follower_from_the_end_passes_over_what_is_there(tmp_path):
    add(tmp_path / "stdout", b"before\n")
    with Follower(tmp_path, from_end=True) as follower:
        assert follower.poll(1.0) == []
        add(tmp_path / "stdout", b"after\n")
        add(tmp_path / "rank-0.log", b"all of it\n")
        chunks = follower.poll(2.1)
    assert lines(chunks) == [b"after"]
    assert lines(chunks, "rank-0.log") == [b"all of it"]


def test_no_file_stays_open(tmp_path):
    add(tmp_path / "stdout", b"one\n")
    open_before = len(os.listdir("/proc/self/fd"))
    with Follower(tmp_path, write_index=True) as follower:
        follower.poll(1.0)
        assert len(os.listdir("/proc/self/fd")) == open_before + 2
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_an_idle_poll_asks_the_system_little(tmp_path, follower):
    for rank in range(10):
        add(tmp_path / f"rank-{rank}.log", b"line\n")
    follower.poll(1.0)
    before_s = time.thread_time()
    for number in range(1000):
        assert follower.poll(1.0 + number / 1e6) == []
    assert time.thread_time() - before_s < 1.0  # measured: 0.03 s


PIECES = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xff", b"x" * 9]), max_size=30)


@given(PIECES)
def test_however_the_bytes_arrive_the_same_words_come_out(pieces):
    cutter = LineCutter()
    got = [line for piece in pieces for line in cutter.feed(piece)]
    got += [cutter.flush() or b""]
    words = [word for word in re.split(rb"[\r\n]+", b"".join(pieces)) if word]
    assert [line for line in got if line] == words


@given(PIECES, st.integers(1, 8))
def test_a_line_cutter_never_holds_more_than_its_limit(pieces, limit):
    cutter = LineCutter(limit)
    for piece in pieces:
        for line in cutter.feed(piece):
            assert len(line) <= limit + len(CUT_MARK)
        assert cutter.held_bytes <= limit
