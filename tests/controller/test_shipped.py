"""Pieces of the workers' files: each byte once, gaps said, and the folder made again where somebody removed it."""

import os
import shutil
from pathlib import Path

from holdfast.controller.shipped import ShippedFiles
from holdfast.model.nodes.workers import Shipped
from holdfast.observe.logs.index import Index


def piece(offset, data, name="stdout", worker=3):
    return Shipped(attempt=1, worker=worker, name=name, offset=offset, data=data)


def test_pieces_become_the_file_and_each_byte_comes_once(tmp_path):
    files = ShippedFiles(tmp_path, lambda: 1000.0)
    for one in (piece(0, b"one\n"), piece(0, b"one\ntwo\n"), piece(4, b"two\n"), piece(8, b"three\n")):
        assert files.take(one) == ""
    log = tmp_path / "attempt-001" / "worker-3" / "stdout"
    assert log.read_bytes() == b"one\ntwo\nthree\n"
    assert Index(log).count == 3
    assert files.workers == {(1, 3)}


def test_another_controller_goes_on_where_the_file_ends(tmp_path):
    ShippedFiles(tmp_path, lambda: 1000.0).take(piece(0, b"one\n"))
    ShippedFiles(tmp_path, lambda: 1001.0).take(piece(0, b"one\ntwo\n"))
    assert (tmp_path / "attempt-001" / "worker-3" / "stdout").read_bytes() == b"one\ntwo\n"


def test_what_was_dropped_on_the_way_is_said(tmp_path):
    files = ShippedFiles(tmp_path, lambda: 1000.0)
    files.take(piece(0, b"one\n"))
    files.take(piece(10, b"four\n"))
    text = (tmp_path / "attempt-001" / "worker-3" / "stdout").read_bytes()
    assert text == b"one\n\n[holdfast: 6 bytes are missing here]\nfour\n"


def test_a_folder_that_was_removed_is_made_again(tmp_path):
    files = ShippedFiles(tmp_path, lambda: 1000.0)
    files.take(piece(0, b"one\n"))
    shutil.rmtree(tmp_path / "attempt-001")
    assert files.take(piece(4, b"two\n")) == ""
    assert (tmp_path / "attempt-001" / "worker-3" / "stdout").read_bytes() == b"two\n"
    files.close()


def test_a_name_that_leads_elsewhere_is_not_taken(tmp_path):
    files = ShippedFiles(tmp_path, lambda: 1000.0)
    assert "not accepted" in files.take(piece(0, b"x", name="../../x"))
    assert "not accepted" in files.take(piece(0, b"x", worker=-1))
    assert not files.workers


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "attempt-001").write_bytes(b"in the way")
    assert "cannot be written to" in ShippedFiles(tmp_path, lambda: 1000.0).take(piece(0, b"x"))


def test_files_are_left_open_up_to_a_bound_and_not_those_of_an_attempt_that_is_over(tmp_path):
    def count_open():
        ends = [Path("/proc/self/fd", one) for one in os.listdir("/proc/self/fd")]
        return sum(str(one.readlink()).startswith(str(tmp_path)) for one in ends if one.is_symlink())

    files = ShippedFiles(tmp_path, lambda: 1000.0, open_max=2)
    for turn in range(2):
        for worker in range(4):
            assert files.take(piece(4 * turn, b"one\n", worker=worker)) == ""
    for worker in range(4):
        log = tmp_path / "attempt-001" / f"worker-{worker}" / "stdout"
        assert log.read_bytes() == b"one\none\n"
        assert Index(log).count == 2
    assert count_open() == 4  # two, each with its index
    files.take(Shipped(attempt=2, worker=0, name="stdout", offset=0, data=b"two\n"))
    assert count_open() == 2
    files.close()
    assert count_open() == 0
