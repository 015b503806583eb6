"""What is noted of the clocks of nodes, and how lines of logs are laid in order by it."""

import json

import pytest

from holdfast.controller.clock_notes import LOOK_S, ClockNotes
from holdfast.controller.shipped import ShippedFiles
from holdfast.model.nodes.workers import Shipped
from holdfast.observe.logs.index import CLOCK_NOTE, IndexWriter, read_lines

T = 1_767_280_800.0


@pytest.fixture
def folders(tmp_path):
    """(attempt, worker) -> folder, as the job's folder has it; of two workers."""

    def worker_dir(attempt, worker):
        return tmp_path / f"attempt-{attempt:03}" / f"worker-{worker}"

    for worker in range(2):
        worker_dir(1, worker).mkdir(parents=True)
    return worker_dir


def written(folder, at_s, text):
    with (folder / "stdout").open("ab") as file:
        file.write(text)
        end = file.tell()
    index = IndexWriter(folder / "stdout", lambda text: None)
    index.append(at_s, end)
    index.close()


def read(folders, **more):
    dirs = [(1, worker, folders(1, worker)) for worker in range(2)]
    return [(line.at_s, line.text) for line in read_lines(dirs, **more)]


def test_lines_of_nodes_with_clocks_hours_apart_are_in_order(folders):
    ahead = {"a": 7200.5, "b": -3600.25}
    ClockNotes(folders, ahead.get).turn(1, {0: "a", 1: "b"}, T)
    for after_s, worker, text in [(0, 0, b"one\n"), (1, 1, b"two\n"), (2, 0, b"three\n"), (3, 1, b"four\n")]:
        written(folders(1, worker), T + after_s + ahead["ab"[worker]], text)
    assert read(folders) == [(T, b"one"), (T + 1, b"two"), (T + 2, b"three"), (T + 3, b"four")]
    assert [text for _, text in read(folders, since_s=T + 0.5, until_s=T + 2.5)] == [b"two", b"three"]


def test_small_differences_and_unknown_ones_are_not_noted(folders):
    notes = ClockNotes(folders, {"a": 0.04, "b": None}.get)
    notes.turn(1, {0: "a", 1: "b"}, T)
    assert not any((folders(1, worker) / CLOCK_NOTE).exists() for worker in range(2))


def test_a_clock_that_is_set_right_is_noted_anew_and_no_more_often_than_need_be(folders):
    ahead = {"a": 60.0}
    notes = ClockNotes(folders, ahead.get)
    path = folders(1, 0) / CLOCK_NOTE
    notes.turn(1, {0: "a"}, T)
    assert json.loads(path.read_text()) == {"ahead_s": 60.0}
    ahead["a"] = 0.001
    notes.turn(1, {0: "a"}, T + LOOK_S - 1)
    assert json.loads(path.read_text()) == {"ahead_s": 60.0}
    notes.turn(1, {0: "a"}, T + LOOK_S)
    assert json.loads(path.read_text()) == {"ahead_s": 0.001}


def test_a_folder_that_is_not_there_yet_is_written_later(folders):
    notes = ClockNotes(folders, {"a": 60.0}.get)
    notes.turn(2, {0: "a"}, T)
    folders(2, 0).mkdir(parents=True)
    notes.turn(2, {0: "a"}, T + LOOK_S)
    assert (folders(2, 0) / CLOCK_NOTE).exists()


@pytest.mark.parametrize("note", [b"", b"[]", b'{"ahead_s": "x"}', b'{"ahead_s": 1e300}', b"\xff"])
def test_a_note_that_is_none_shifts_nothing(folders, note):
    (folders(1, 0) / CLOCK_NOTE).write_bytes(note)
    written(folders(1, 0), T, b"one\n")
    assert read(folders) == [(T, b"one")]


def test_what_an_agent_sends_is_stamped_as_it_comes_and_by_no_other_clock(folders, tmp_path):
    now_s = [T]
    files = ShippedFiles(tmp_path, lambda: now_s[0])

    def ship(data, offset):
        assert not files.take(Shipped(attempt=1, worker=0, name="stdout", offset=offset, data=data))

    ship(b"one\n", 0)
    now_s[0] += 5
    ship(b"two\n", 4)
    ClockNotes(folders, {"a": 3600.0}.get).turn(1, {0: "a"}, T, without=files.workers)
    assert read(folders) == [(T, b"one"), (T + 5, b"two")]
