"""A copy is complete or not there at all."""

import os
import stat

import pytest

from agent.checkpoints.kit import OWNER, save_of, saved
from holdfast.agent.checkpoints.copying import NotComplete, source_of
from holdfast.agent.checkpoints.store import Store, leftovers, sweep


def test_a_folder_is_copied_with_links_empty_files_and_what_names_it(disk, memory):
    unit = disk / "checkpoint-5"
    saved(unit / "global_step5" / "rank_0.pt")
    (unit / "done").touch()
    (unit / "latest.pt").symlink_to("global_step5/rank_0.pt")
    (unit / "rank_1.pt.tmp").write_bytes(b"left over")
    (disk / "newest").symlink_to("checkpoint-5")
    (disk / "latest").write_text("checkpoint-5")
    (disk / "other").symlink_to("/etc")
    manifest = memory.copy(save_of(disk, unit="checkpoint-5"))
    names = {one.name: one for one in manifest.files}
    inner = {"checkpoint-5/done", "checkpoint-5/global_step5/rank_0.pt", "checkpoint-5/latest.pt"}
    assert set(names) == inner | {"latest", "newest"}
    assert names["checkpoint-5/latest.pt"].link == "global_step5/rank_0.pt"
    assert (names["latest"].tracker, names["newest"].link) == (True, "checkpoint-5")
    assert manifest.path == str(unit)
    copy = memory.store.files(manifest.number) / "checkpoint-5"
    assert (copy / "latest.pt").read_bytes() == (unit / "latest.pt").read_bytes()
    assert stat.S_IMODE(os.stat(memory.store.folder).st_mode) == 0o700


def test_an_unchanged_file_is_shared_with_the_copy_before(disk, memory):
    saved(disk / "checkpoint-5" / "a.pt")
    first = memory.copy(save_of(disk, unit="checkpoint-5"))
    saved(disk / "checkpoint-5" / "b.pt")
    second = memory.copy(save_of(disk, unit="checkpoint-5"))
    places = [memory.store.files(one.number) / "checkpoint-5" / "a.pt" for one in (first, second)]
    assert os.path.samefile(*places)
    assert memory.store.drop(but=second.number)
    assert places[1].read_bytes() == (disk / "checkpoint-5" / "a.pt").read_bytes()


def test_files_that_are_saved_together_are_one_checkpoint(disk, memory):
    saved(disk / "model.pt")
    memory.copy(save_of(disk, "model.pt", is_renamed=True))
    saved(disk / "optimizer.pt")
    manifest = memory.copy(save_of(disk, "optimizer.pt", is_renamed=True))
    assert [one.name for one in manifest.files] == ["model.pt", "optimizer.pt"]


@pytest.mark.parametrize("content", [b"", b"PK\3\4 cut"])
def test_a_file_that_is_visibly_incomplete_is_not_copied(disk, memory, content):
    (disk / "a.pt").write_bytes(content)
    with pytest.raises(NotComplete, match=r"a\.pt: it is"):
        memory.copy(save_of(disk, "a.pt"))


def test_a_file_that_is_written_while_it_is_copied_leaves_no_copy(disk, memory):
    path = saved(disk / "a.pt", os.urandom(9 << 20))
    pieces = memory.pieces(source_of(save_of(disk, "a.pt"), None))
    next(pieces)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(NotComplete, match="was written while it was copied"):
        list(pieces)
    assert memory.store.newest() is None
    assert not list(memory.store.folder.glob("[0-9]*"))


def test_a_file_that_is_replaced_while_it_is_copied_is_copied_as_it_was(disk, memory):
    path = saved(disk / "a.pt", os.urandom(9 << 20))
    content = path.read_bytes()
    pieces = memory.pieces(source_of(save_of(disk, "a.pt", is_renamed=True), None))
    next(pieces)
    os.replace(saved(disk / "b.pt"), path)
    *_, manifest = pieces
    assert (memory.store.files(manifest.number) / "a.pt").read_bytes() == content


def test_a_copy_that_is_broken_off_leaves_nothing(disk, memory):
    saved(disk / "a.pt", os.urandom(9 << 20))
    pieces = memory.pieces(source_of(save_of(disk, "a.pt"), None))
    next(pieces)
    pieces.close()
    assert not list(memory.store.folder.glob("[0-9]*"))


def test_a_checkpoint_that_is_gone_is_no_error(disk, memory):
    with pytest.raises(NotComplete, match="No such file"):
        memory.copy(save_of(disk, "a.pt"))


def test_a_copy_in_use_is_not_dropped(disk, memory):
    saved(disk / "a.pt")
    memory.copy(save_of(disk, "a.pt"))
    use = memory.store.in_use()
    assert not memory.store.drop()
    os.close(use)
    assert memory.store.drop()
    assert memory.store.newest() is None


def test_a_store_has_one_owner_and_is_swept_once_it_has_none(disk, memory):
    shm = memory.store.shm
    assert not Store(OWNER, shm).take()
    assert list(leftovers(shm)) == []
    memory.store.release()
    assert list(leftovers(shm)) == [memory.store.folder]
    sweep(shm)
    assert not memory.store.folder.exists()


def test_a_copy_that_its_copier_did_not_complete_is_removed(memory):
    (memory.store.folder / "7" / "files").mkdir(parents=True)
    memory.store.release()
    assert memory.store.take()
    assert not (memory.store.folder / "7").exists()


def test_a_file_that_the_disk_has_changed_does_not_replace_its_copy(disk, memory):
    """What its writer renames is never changed in place; else its own checksums show it."""
    for is_renamed, name in ((True, "a.pt"), (False, "b.pt")):
        path = saved(disk / name)
        manifest = memory.copy(save_of(disk, name, is_renamed=is_renamed))
        data = bytearray(path.read_bytes())
        data[5000] ^= 1
        path.write_bytes(data)
        with pytest.raises(NotComplete, match="changed in place|checksum"):
            memory.copy(save_of(disk, name))
        assert memory.store.newest() == manifest


def test_of_a_shared_checkpoint_only_what_was_written_here_is_copied(disk, memory):
    for shard in range(3):
        saved(disk / "checkpoint-5" / f"rank_{shard}.pt")
    save = save_of(disk, unit="checkpoint-5")
    save.seen.add("checkpoint-5/rank_1.pt")
    source = source_of(save, None, only_seen=True)
    assert [one.name for one in source.kept] == ["checkpoint-5/rank_1.pt"]
