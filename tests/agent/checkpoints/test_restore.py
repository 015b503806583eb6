"""The disk's checkpoint is compared with its copy, and restored where that is possible."""

import os
import resource
import signal
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.checkpoints.kit import save_of, saved
from holdfast.agent.checkpoints import restore


@pytest.fixture
def path(disk, memory):
    """A checkpoint with a copy."""
    path = saved(disk / "a.pt")
    os.chmod(path, 0o640)
    os.utime(path, ns=(10**18, 10**18))
    memory.copy(save_of(disk, "a.pt", is_renamed=True))
    return path


def later(path):
    """The kernel's times of files are some milliseconds coarse."""
    os.utime(path, (time.time() + 10, time.time() + 10))


def test_a_restored_file_is_as_it_was(path, memory):
    content, before = path.read_bytes(), path.stat()
    path.write_bytes(b"rubbish")
    result = memory.compared()
    assert (result.outcome, result.damaged, result.files) == ("restored", 1, 1)
    after = path.stat()
    assert (path.read_bytes(), after.st_mode, after.st_mtime_ns) == (
        content,
        before.st_mode,
        before.st_mtime_ns,
    )
    assert result.kept == (str(path.with_name(".a.pt.damaged-1")),)
    assert memory.compared().outcome == "intact"
    path.write_bytes(b"once more")
    assert memory.compared().kept == (str(path.with_name(".a.pt.damaged-2")),)
    assert sorted(os.listdir(path.parent)) == [".a.pt.damaged-1", ".a.pt.damaged-2", "a.pt"]


def test_all_folders_are_made_again(disk, memory):
    unit = disk / "run" / "checkpoint-5"
    saved(unit / "global_step5" / "rank_0.pt")
    (unit / "latest.pt").symlink_to("global_step5/rank_0.pt")
    memory.copy(save_of(disk / "run", unit="checkpoint-5"))
    content = (unit / "latest.pt").read_bytes()
    (disk / "run").rename(disk / "lost")
    result = memory.compared()
    assert (result.outcome, result.missing) == ("restored", 2)
    assert (unit / "latest.pt").is_symlink()
    assert (unit / "latest.pt").read_bytes() == content


def test_a_link_that_leads_nowhere_is_made_again(disk, memory):
    saved(disk / "checkpoint-5" / "a.pt")
    (disk / "newest").symlink_to("checkpoint-5")
    memory.copy(save_of(disk, unit="checkpoint-5"))
    (disk / "newest").unlink()
    (disk / "newest").symlink_to("checkpoint-6")
    assert memory.compared().outcome == "restored"
    assert os.readlink(disk / "newest") == "checkpoint-5"


def test_a_newer_checkpoint_stays(path, memory):
    os.replace(saved(path.with_name("new.pt")), path)
    content = path.read_bytes()
    assert memory.compared().outcome == "newer"
    assert path.read_bytes() == content


def test_an_older_checkpoint_that_was_removed_is_not_restored_beside_a_newer_one(disk, memory):
    saved(disk / "checkpoint-5" / "a.pt")
    memory.copy(save_of(disk, unit="checkpoint-5"))
    (disk / "checkpoint-5").rename(disk / "trash")
    saved(disk / "checkpoint-10" / "a.pt")
    later(disk / "checkpoint-10")
    assert memory.compared().outcome == "newer"
    assert not (disk / "checkpoint-5").exists()


def test_an_incomplete_newer_one_beside_it_is_named(disk, memory):
    saved(disk / "checkpoint-5" / "a.pt")
    memory.copy(save_of(disk, unit="checkpoint-5"))
    (disk / "checkpoint-10").mkdir()
    (disk / "checkpoint-10" / "a.pt").write_bytes(b"PK\3\4 cut")
    later(disk / "checkpoint-10")
    result = memory.compared()
    assert result.outcome == "intact"
    assert result.beside.startswith(f"{disk / 'checkpoint-10'}: a.pt: it is truncated")


def test_a_copy_that_is_damaged_itself_is_not_written(path, memory):
    copy = memory.store.files(memory.store.newest().number) / "a.pt"
    copy.write_bytes(b"\0" * copy.stat().st_size)
    path.write_bytes(b"rubbish")
    result = memory.compared()
    assert result.outcome == "failed"
    assert "the copy in memory is damaged as well" in result.text
    assert path.read_bytes() == b"rubbish"
    assert os.listdir(path.parent) == ["a.pt"]


def test_a_disk_that_cannot_take_it_keeps_what_it_has(path, memory):
    """As on a full disk: the write fails in the middle."""
    path.write_bytes(b"rubbish")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        result = memory.compared()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert result.outcome == "failed"
    assert "too large" in result.text
    assert (path.read_bytes(), os.listdir(path.parent)) == (b"rubbish", ["a.pt"])


def test_a_folder_that_may_not_be_written_is_no_end(path, memory):
    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    path.unlink()
    path.parent.chmod(0o500)
    try:
        result = memory.compared()
    finally:
        path.parent.chmod(0o700)
    assert (result.outcome, "Permission denied" in result.text) == ("failed", True)


def test_a_file_system_that_is_not_mounted_is_not_written(path, memory):
    manifest = memory.store.newest()
    memory.store.publish(replace(manifest, device=manifest.device + 1))
    path.unlink()
    result = memory.compared()
    assert (result.outcome, "is not mounted" in result.text) == ("gone", True)
    assert not path.exists()
    assert Path(result.copy).read_bytes()


def test_a_place_that_is_no_folder_any_more_is_out_of_reach(path, memory):
    path.unlink()
    path.parent.rmdir()
    path.parent.write_text("a file")
    assert memory.compared().outcome == "gone"


def test_a_slow_disk_is_left_to_the_training(path, memory):
    manifest = memory.store.newest()
    with pytest.raises(restore.Late):
        restore._found(manifest, memory.store.files(manifest.number), time.monotonic() - 1)


def test_a_damage_that_only_the_content_shows_is_found(disk, memory):
    """Its writer writes in place: the checksums in the zip file decide between damage and a newer checkpoint."""
    path = saved(disk / "a.pt")
    memory.copy(save_of(disk, "a.pt"))
    data = bytearray(path.read_bytes())
    data[5000] ^= 1
    path.write_bytes(data)
    assert memory.compared().outcome == "restored"
    saved(path)
    assert memory.compared().outcome == "newer"
