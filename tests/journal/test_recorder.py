"""The recorder against disks and folders that fail under it: the job is never stopped, and told once."""

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from holdfast.journal import recorder
from holdfast.journal.recorder import LOST_KEY, RETRY_S, Recorder
from holdfast.journal.store import JournalUnusable, Row, Store, open_reader
from journal.processes import in_child, mount


class Scene:
    """A recorder with a clock set by hand, and all it said."""

    def __init__(self, path):
        self.path = path
        self.now_s = 0.0
        self.said = []
        self.recorder = Recorder(path, lambda: self.now_s, self.said.append)

    def write(self, *numbers, size_bytes=150):
        for number in numbers:
            self.recorder.record(Row(float(number), "tick", b"%d" % number + b"." * size_bytes, b"", ""))
        return self.recorder.flush()

    def later(self):
        self.now_s += RETRY_S
        return self.recorder.flush()

    def written(self):
        reader = open_reader(self.path)
        numbers = [int(entry.at_s) for entry in reader.read()]
        assert reader.damage == ""
        reader.close()
        return numbers


def test_rows_are_durable_after_a_flush(tmp_path):
    scene = Scene(tmp_path / "jobs" / "a" / "journal.db")
    scene.recorder.set_meta("policy", b"p")
    assert scene.write(1, 2)
    assert scene.written() == [1, 2] and scene.recorder.store.meta("policy") == b"p"
    scene.recorder.close()
    assert scene.said == []


def test_trouble_is_said_once_and_what_waited_is_written(tmp_path):
    (tmp_path / "state").write_text("a file where the folder should be")
    scene = Scene(tmp_path / "state" / "journal.db")
    assert not scene.write(1)
    assert not scene.write(2)
    assert not scene.later()
    assert len(scene.said) == 1
    assert scene.said[0].startswith("the journal of this job cannot be written: the journal")
    assert "training continues" in scene.said[0]
    (tmp_path / "state").unlink()
    assert not scene.write(3)  # not yet tried again
    assert scene.later()
    assert scene.written() == [1, 2, 3]
    assert scene.said[1:] == ["the journal of this job is being written again, with 3 waiting entries"]
    assert scene.write(4) and scene.written() == [1, 2, 3, 4]
    scene.recorder.close()


def test_too_many_rows_drop_the_oldest_and_are_counted(tmp_path):
    (tmp_path / "state").write_text("")
    scene = Scene(tmp_path / "state" / "journal.db")
    scene.write(*range(recorder.HELD_ROWS_MAX + 7), size_bytes=1)
    assert scene.recorder.lost_rows == 7
    (tmp_path / "state").unlink()
    assert scene.later()
    assert scene.written() == list(range(7, recorder.HELD_ROWS_MAX + 7))
    assert "7 are lost" in scene.said[-1] and len(scene.said) == 2
    scene.recorder.close()
    reader = open_reader(scene.path)
    assert reader.meta(LOST_KEY) == b"7"
    reader.close()


def test_large_rows_are_bounded_by_their_bytes(tmp_path):
    (tmp_path / "state").write_text("")
    scene = Scene(tmp_path / "state" / "journal.db")
    scene.write(1, 2, 3, size_bytes=recorder.HELD_BYTES_MAX // 3 + 1)
    assert scene.recorder.lost_rows == 1
    scene.recorder.close()
    assert "2 entries of the journal of this job are lost" in scene.said[-1]


def test_the_folder_may_be_removed_under_it(tmp_path):
    scene = Scene(tmp_path / "jobs" / "a" / "journal.db")
    scene.recorder.set_meta("policy", b"p")
    scene.write(*range(3000))
    shutil.rmtree(tmp_path / "jobs")
    assert scene.write(3000)
    assert scene.written() == list(range(3001))
    assert scene.recorder.store.meta("policy") == b"p"
    assert len(scene.said) == 1 and "was removed while in use" in scene.said[0]
    shutil.rmtree(tmp_path / "jobs")
    assert scene.write(3001) and scene.written() == list(range(3002))
    scene.recorder.close()
    assert os.listdir(scene.path.parent) == ["journal.db"]


def test_a_removed_folder_that_cannot_be_made_again_is_trouble_until_it_can(tmp_path):
    scene = Scene(tmp_path / "jobs" / "a" / "journal.db")
    scene.write(1)
    shutil.rmtree(tmp_path / "jobs")
    (tmp_path / "jobs").write_text("")
    assert not scene.write(2)
    (tmp_path / "jobs").unlink()
    assert scene.later()
    assert scene.written() == [1, 2]
    scene.recorder.close()


def test_a_journal_of_another_run_in_its_place_is_not_touched(tmp_path):
    scene = Scene(tmp_path / "a" / "journal.db")
    scene.write(1)
    shutil.rmtree(tmp_path / "a")
    other = Store.open(scene.path)
    other.append([Row(99.0, "tick", b"", b"", "")])
    assert not scene.write(2)
    assert "was replaced by another file" in scene.said[0]
    assert scene.written() == [99]
    other.close()
    shutil.rmtree(tmp_path / "a")
    assert scene.later() and scene.written() == [1, 2]
    scene.recorder.close()


def test_a_salvaged_journal_is_reported(tmp_path):
    (tmp_path / "journal.db").write_bytes(b"nonsense")
    scene = Scene(tmp_path / "journal.db")
    assert len(scene.said) == 1 and "was damaged" in scene.said[0]
    scene.recorder.close()


def test_a_gone_console_does_not_stop_the_record(tmp_path):
    def gone(sentence):
        raise BrokenPipeError

    (tmp_path / "journal.db").write_bytes(b"nonsense")
    quiet = Recorder(tmp_path / "journal.db", lambda: 0.0, gone)
    assert quiet.flush()
    quiet.close()


def _fill(scene):
    """Writes until the disk is full. How many rows were recorded."""
    count = 0
    while count < 100_000 and scene.write(count, size_bytes=2000):
        count += 1
    assert not scene.recorder.flush()
    return count + 1


def _check_full_disk(path: Path, make_room):
    scene = Scene(path)
    scene.write(-1)
    count = _fill(scene)
    assert count > 20
    for number in range(count, count + 50):
        scene.write(number)
        scene.now_s += 1.0
    assert len(scene.said) == 1 and "training continues" in scene.said[0]
    acknowledged = [-1, *range(count - 1)]
    assert scene.written() == acknowledged
    make_room()
    assert scene.later()
    assert scene.written() == [-1, *range(count + 50)]
    assert len(scene.said) == 2 and "again" in scene.said[1]
    scene.recorder.close()
    store = Store.open(path)
    assert (store.salvaged, store.last_seq) == ("", count + 51)
    store.close()


def test_a_full_disk_holds_the_record_up_and_nothing_else(tmp_path):
    def work():
        mount("-t", "tmpfs", "-o", "size=2m", "none", tmp_path)
        ballast = tmp_path / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        _check_full_disk(tmp_path / "journal.db", ballast.unlink)

    in_child(work)


def test_a_file_size_limit_is_a_full_disk(tmp_path):
    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        _check_full_disk(
            tmp_path / "journal.db", lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        )

    in_child(work)


def test_a_disk_that_is_full_from_the_start_is_refused_without_debris(tmp_path):
    def work():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
        with pytest.raises(JournalUnusable, match="cannot be opened"):
            Store.open(tmp_path / "journal.db")
        assert os.listdir(tmp_path) == []

    in_child(work)
