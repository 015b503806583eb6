"""Speed of real file systems: what is measured, what is left behind (nothing), what is said where it cannot be."""

import errno
import os
import signal
import subprocess
import sys

import pytest

from holdfast.checks.io.bench import (
    Mount,
    bench_of,
    io_disk_speed,
    judged_content,
    mount_of,
    mounts_of,
)
from holdfast.checks.readers import disk_speed
from holdfast.checks.readers.disk_speed import DiskSpeed, NoRoom, measured, room
from holdfast.model.checks import FAIL, PASS, SKIP, WARN, Fact, Finding, Scene

QUICK = {"io-disk-speed.seconds": "0.1", "io-disk-speed.mebibytes": "16"}
SPEED = DiskSpeed(
    write=(100e6,) * 8,
    read=(200e6,) * 8,
    reads=(5000.0,) * 4,
    syncs=(300.0,) * 4,
    file_bytes=1 << 28,
    is_direct=True,
)


def test_a_folder_is_measured_and_left_as_it_was(tmp_path):
    speed = measured(
        str(tmp_path), disk_speed.FILE_BYTES_MIN, 0.1
    )  # so much is written however long it takes
    assert speed.file_bytes == disk_speed.FILE_BYTES_MIN and speed.wrong_chunks == 0
    assert min(speed.write) > 0 and min(speed.syncs) > 0
    assert (speed.read is not None) == (speed.reads is not None) == speed.is_direct
    assert os.listdir(tmp_path) == []


def test_a_slow_disk_costs_no_more_than_its_time(tmp_path):
    speed = measured(str(tmp_path), 1 << 40, 0.01)
    assert disk_speed.FILE_BYTES_MIN <= speed.file_bytes < 1 << 32


def test_one_that_is_killed_leaves_nothing(tmp_path):
    program = (
        "import sys; from holdfast.checks.readers.disk_speed import _nameless; import os, signal\n"
        "d = _nameless(sys.argv[1], 0); os.write(d, b'x' * 4096); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL and os.listdir(tmp_path) == []


@pytest.fixture
def small(tmp_path):
    """A file system of 8 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("mounting needs root")
    yield str(place)
    subprocess.run(["umount", str(place)], check=True)


def test_a_folder_with_little_room_is_not_filled(small):
    with pytest.raises(NoRoom, match="8 MiB are free"):
        room(small, 1 << 28)
    (finding,) = io_disk_speed(Scene(folders={"work": small}, options=QUICK))
    assert finding.status == SKIP and "8 MiB" in finding.why


def test_space_that_ends_meanwhile_is_said(small):
    with pytest.raises(NoRoom, match=os.strerror(errno.ENOSPC)):
        measured(small, 64 << 20, 5.0)
    assert os.listdir(small) == []


def test_a_file_takes_a_small_part_of_the_room(tmp_path):
    has = os.statvfs(tmp_path)
    free = has.f_bavail * has.f_frsize
    if free < 8 << 30:
        pytest.skip("little room here")
    assert room(str(tmp_path), 64 << 20) == 64 << 20
    assert room(str(tmp_path), 1 << 60) <= free * disk_speed.FREE_SHARE_MAX


def test_a_folder_that_is_not_there_is_skipped_with_its_name():
    (finding,) = io_disk_speed(Scene(folders={"work": "/nowhere/at/all"}, options=QUICK))
    assert finding.status in (SKIP, WARN) and "/nowhere/at/all" in finding.why


def test_no_folder_is_nothing_to_look_at():
    assert list(io_disk_speed(Scene())) == []


def test_two_folders_of_one_file_system_are_measured_once(tmp_path):
    (tmp_path / "a").mkdir()
    folders = {"work": str(tmp_path), "checkpoint": str(tmp_path / "a")}
    seen = list(io_disk_speed(Scene(folders=folders, options=QUICK)))
    assert [one.status for one in seen if isinstance(one, Finding)] == [PASS]
    names = [one.name for one in seen if isinstance(one, Fact) and one.peers]
    assert names[0] == "sequential write, 16 MiB" or "page cache" in names[0]
    assert os.listdir(tmp_path) == ["a"]


def test_a_bad_option_is_said():
    (finding,) = io_disk_speed(Scene(folders={"work": "/"}, options={"io-disk-speed.seconds": "soon"}))
    assert finding.status == SKIP and "soon" in finding.why


# Judging, and where it lies


def test_bytes_that_come_back_other_than_they_went_are_a_failure():
    assert list(judged_content("/ckpt", SPEED)) == []
    bad = DiskSpeed(
        write=(1.0,), read=None, reads=None, syncs=None, file_bytes=1, is_direct=True, wrong_chunks=2
    )
    (finding,) = judged_content("/ckpt", bad)
    assert finding.status == FAIL and finding.category == "storage_io" and "/ckpt" in finding.why


def test_a_network_file_system_has_the_same_model_on_all_nodes():
    bench = bench_of("/ckpt/run", SPEED, Mount(("/ckpt", "nfs4", "filer:/ckpt")), "")
    assert (bench.key, bench.model) == ("disk:/ckpt", "nfs4 filer:/ckpt")
    local = bench_of("/data", SPEED, Mount(("/data", "xfs", "/dev/nvme0n1")), "SAMSUNG MZQL23T8")
    assert local.model == "xfs on SAMSUNG MZQL23T8"
    assert [one.value for one in local.measures] == pytest.approx([95.367, 190.73, 5000, 300], rel=1e-4)


def test_what_went_through_the_page_cache_is_never_compared_with_what_did_not():
    cached = DiskSpeed(
        write=(1e9,) * 8, read=None, reads=None, syncs=(9e4,) * 4, file_bytes=1 << 28, is_direct=False
    )
    mount = Mount(("/", "overlay", "overlay"))
    names = {one.name for one in bench_of("/x", cached, mount, "").measures}
    assert not names & {one.name for one in bench_of("/x", SPEED, mount, "").measures}


def test_a_disk_is_held_to_be_no_more_exact_than_its_parts():
    uneven = DiskSpeed(
        write=(50e6, 100e6, 150e6), read=None, reads=None, syncs=None, file_bytes=1 << 28, is_direct=True
    )
    mount = Mount(("/", "ext4", "/dev/sda1"))
    assert bench_of("/x", uneven, mount, "").measures[0].spread == 1.0
    assert bench_of("/x", SPEED, mount, "").measures[0].spread == 0.1


MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:25 / /ckpt rw - nfs4 filer:/ckpt rw,vers=4.2
31 22 0:26 / /ckpt\040two rw master:3 - lustre 10.0.0.1@o2ib:/fs rw
40 30 0:30 / /ckpt rw - tmpfs none rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/ckpt/a", "tmpfs"), ("/ckpt two/a", "lustre"), ("/ckptx", "ext4"), ("/home", "ext4"), ("/", "ext4")],
)
def test_the_mount_of_a_path_is_the_nearest_and_the_last(path, kind):
    assert mount_of(path, mounts_of(MOUNTS))[1] == kind


def test_without_a_list_of_mounts_the_kind_is_unknown():
    assert mount_of("/x", mounts_of("")) == ("/", "unknown", "")
