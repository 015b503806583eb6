"""Disks that are full, read-only or taken away: the training goes on, and what is lost is said once."""

import os
import shutil
import subprocess
from contextlib import suppress

import pytest

from run.place import wait_for


@pytest.fixture
def small_disk(tmp_path):
    """small_disk("32m"): a file system of that size."""
    mounted = []

    def mount(size, *options):
        folder = tmp_path / "disk"
        folder.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", ",".join((f"size={size}", *options)), "none", str(folder)]
        if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
            pytest.skip("needs to mount a tmpfs (root)")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder, leave_bytes=0):
    disk = os.statvfs(folder)
    room = disk.f_bavail * disk.f_frsize - leave_bytes
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while room > 0:  # others write meanwhile: what fits is written, then there is no space
            room -= file.write(bytes(room))


# It waits before the disk is full: how soon Holdfast makes room depends on what else the machine does.
PRINTING = """
import os, time


def free_bytes():
    disk = os.statvfs(os.environ["HOLDFAST_WORKER_DIR"])
    return disk.f_bavail * disk.f_frsize


block = ("x" * 99 + "\\n") * 1000
n = 0
while not os.path.exists(os.environ["NOTES"] + "/go"):
    if free_bytes() < 1 << 20:
        time.sleep(0.02)
        continue
    n += 1
    os.write(1, f"step {n} loss 1\\n".encode())
    assert os.write(1, block.encode()) == len(block)
    time.sleep(0.02)
"""


LAST_WORDS = """
import os, time
print("ready", flush=True)
while not os.path.exists(os.environ["NOTES"] + "/go"):
    time.sleep(0.02)
for _ in range(1000):
    print("x" * 999, flush=True)
"""


def test_output_that_fills_the_disk_gives_up_its_oldest_part(place, small_disk):
    """A training that prints 5 MB/s into 16 MB: it goes on, its newest output is there, and it is told what is lost."""
    place.state = small_disk("16m")
    run = place.python(PRINTING, "--quiet", "--state-dir", place.state)
    stdout = place.worker() / "stdout"
    wait_for(
        lambda: f"more output than the disk can hold\\n{run.err}",
        lambda: run.process.poll() is not None or (stdout.exists() and stdout.stat().st_size > 24 << 20),
    )
    (place.path / "go").touch()
    assert run.code() == 0, run.err
    assert "oldest output were removed" in run.err
    assert run.err.count("nearly full") <= 5
    assert "disk-full" in place.findings()
    assert stdout.read_bytes().endswith(b"x\n")
    assert stdout.stat().st_blocks * 512 < 16 << 20


def test_a_disk_filled_by_somebody_else(place, small_disk):
    """There is nothing of ours to give up: that is said, and the run goes on."""
    place.state = small_disk("8m")
    run = place.shell(
        "echo ready; while [ ! -e $NOTES/go ]; do sleep 0.05; done; exit 5", "--state-dir", place.state
    )
    run.prints("ready")
    fill(place.state)
    run.says("nothing to remove")
    (place.path / "go").touch()
    assert run.code() == 5
    assert run.err.count("nearly full") == 1


def test_a_training_that_cannot_even_say_that_the_disk_is_full(place, small_disk):
    """Its traceback finds no room either; what ended it is known all the same."""
    place.state = small_disk("8m")
    run = place.python(LAST_WORDS, "--state-dir", place.state).prints("ready")
    fill(place.state)
    (place.path / "go").touch()
    assert run.code() == 1, run.err
    assert "disk_full" in run.err


def test_a_state_folder_on_a_full_disk(place, small_disk):
    """The training runs all the same, with its record in another place, and that is said."""
    disk = small_disk("1m")
    fill(disk)
    run = place.start("run", "--job", "t", "--state-dir", disk / "state", "--", "sh", "-c", "echo ran; exit 3",
                      TMPDIR=str(place.path))  # fmt: skip
    assert run.code() == 3, run.err
    assert "ran" in run.out
    assert "Traceback" not in run.err
    assert run.err.count("trying another folder") == 1


def test_a_disk_with_hardly_any_room(place, small_disk):
    """Enough for the folders, not for the journal or the output."""
    disk = small_disk("1m")
    fill(disk, leave_bytes=40 << 10)
    run = place.start("run", "--job", "t", "--state-dir", disk / "state", "--", "sh", "-c", "echo ran; exit 3",
                      TMPDIR=str(place.path))  # fmt: skip
    assert run.code() == 3, run.err
    assert "Traceback" not in run.err


def test_a_read_only_state_folder(place, small_disk):
    disk = small_disk("1m", "ro")
    run = place.start("run", "--job", "t", "--state-dir", disk / "state", "--", "sh", "-c", "echo ran; exit 3",
                      TMPDIR=str(place.path))  # fmt: skip
    assert run.code() == 3, run.err
    assert "ran" in run.out
    assert run.err.count("trying another folder") == 1


def test_a_state_folder_that_is_a_file(place):
    (place.path / "plain").write_text("")
    run = place.start("run", "--job", "t", "--state-dir", place.path / "plain", "--", "sh", "-c", "exit 3",
                      TMPDIR=str(place.path))  # fmt: skip
    assert run.code() == 3, run.err


def test_a_state_folder_that_is_deleted_during_the_run(place):
    run = place.shell("echo ready; while [ ! -e $NOTES/go ]; do sleep 0.05; done; echo after; exit 3")
    run.prints("ready")
    shutil.rmtree(place.job(), ignore_errors=True)  # a file that is written just then keeps its folder
    shutil.rmtree(place.job(), ignore_errors=True)
    run.says("removed while in use")
    (place.path / "go").touch()
    assert run.code() == 3, run.err
    assert "Traceback" not in run.err
    place.nothing_left()


def test_a_state_folder_that_is_deleted_and_a_failure_after_it(place):
    """A restart makes the folders anew."""
    run = place.ranks(2, "--max-restarts", "3", "--unconditional-restart").prints("step 3 ")
    place.found(1)
    shutil.rmtree(place.state, ignore_errors=True)  # a file that is written just then keeps its folder
    shutil.rmtree(place.job(), ignore_errors=True)
    os.kill(place.given(1, 1)["pid"], 9)
    assert place.given(0, 2)["HOLDFAST_ATTEMPT"] == "2"
    place.go()
    assert run.code() == 0, run.err
    assert "Traceback" not in run.err
