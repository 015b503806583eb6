"""Folders are watched, also those that are made later."""

import os

import pytest

from holdfast.agent.checkpoints.inotify import Watches


@pytest.fixture
def watches(tmp_path):
    one = Watches((str(tmp_path / "state"),), 0)
    yield one
    one.close()


def seen(watches):
    return [(one.kind, os.path.basename(one.folder), one.name) for one in watches.read(0.0)]


def test_what_happens_to_files_is_reported(tmp_path, watches):
    watches.add(str(tmp_path), is_named=True)
    (tmp_path / "a.part").write_bytes(b"1")
    (tmp_path / "a.part").rename(tmp_path / "a.pt")
    (tmp_path / "a.pt").unlink()
    top = tmp_path.name
    assert seen(watches) == [
        ("created", top, "a.part"),
        ("written", top, "a.part"),
        ("gone", top, "a.part"),
        ("renamed", top, "a.pt"),
        ("gone", top, "a.pt"),
    ]


def test_a_new_folder_is_watched_with_what_is_in_it(tmp_path, watches):
    watches.add(str(tmp_path), is_named=False)
    (tmp_path / "new" / "deep").mkdir(parents=True)
    (tmp_path / "new" / "deep" / "a.pt").write_bytes(b"1")
    assert ("written", "deep", "a.pt") in seen(watches)
    (tmp_path / "new" / "deep" / "b.pt").write_bytes(b"1")
    assert seen(watches) == [("created", "deep", "b.pt"), ("written", "deep", "b.pt")]


def test_what_was_written_before_is_reported_in_order(tmp_path, watches):
    for at_ns, name in ((30, "a.pt"), (20, "b.pt"), (10, "c.log")):
        (tmp_path / name).write_bytes(b"1")
        os.utime(tmp_path / name, ns=(at_ns, at_ns))
    watches.add(str(tmp_path), is_named=False)
    assert [name for _, _, name in seen(watches)] == ["b.pt", "a.pt"]
    watches.add(str(tmp_path), is_named=False)
    assert seen(watches) == []


def test_some_folders_are_left_out(tmp_path, watches):
    (tmp_path / "state").mkdir()
    watches.add(str(tmp_path), is_named=True)
    watches.add("/proc", is_named=True)
    watches.add(str(tmp_path / "none"), is_named=True)
    (tmp_path / "state" / "a.pt").write_bytes(b"1")
    assert seen(watches) == []


def test_a_renamed_folder_is_one_change(tmp_path, watches):
    watches.add(str(tmp_path), is_named=True)
    (tmp_path / "tmp-checkpoint-5").mkdir()
    (tmp_path / "tmp-checkpoint-5" / "a.pt").write_bytes(b"1")
    seen(watches)
    (tmp_path / "tmp-checkpoint-5").rename(tmp_path / "checkpoint-5")
    changes = [one for one in watches.read(0.0) if one.kind != "gone"]
    assert [(one.kind, one.name, one.is_folder) for one in changes] == [("renamed", "checkpoint-5", True)]
    (tmp_path / "checkpoint-5" / "b.pt").write_bytes(b"1")
    assert ("written", "checkpoint-5", "b.pt") in seen(watches)
