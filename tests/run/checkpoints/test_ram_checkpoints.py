"""A checkpoint that the disk has lost or damaged is restored from its copy in memory before the next attempt starts."""

import contextlib
import os
import signal
import sys
import zlib
from pathlib import Path

import pytest

from holdfast.agent.checkpoints.store import PREFIX, SHM
from run.place import is_over, wait_for

# Saves at once, then does as it is told: `kind` is how it writes its checkpoint. What it learns is a sum, so that a run
# that went on from a damaged or older checkpoint ends with another one.
TRAIN = """
import json, os, sys, time, zipfile

kind, attempt = sys.argv[1], os.environ["HOLDFAST_ATTEMPT"]


def write(path, step, total):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("state.json", json.dumps([step, total]))
        file.writestr("weights", os.urandom(1 << 20))


def save(step, total):
    if kind == "renamed":
        write("out/checkpoint.part", step, total)
        os.replace("out/checkpoint.part", "out/checkpoint.pt")
    elif kind == "in-place":
        write("out/checkpoint.pt", step, total)
    else:
        os.makedirs(f"out/global_step{step}", exist_ok=True)
        for shard in range(2):
            write(f"out/global_step{step}/rank_{shard}.pt", step, total)
        open("out/latest", "w").write(f"global_step{step}")


def load():
    path = "out/checkpoint.pt"
    if kind == "folder":
        if not os.path.exists("out/latest"):
            return 0, 0.0
        path = "out/" + open("out/latest").read() + "/rank_1.pt"
    path = os.environ.get("HOLDFAST_RAM_CHECKPOINT", path)
    if not os.path.exists(path):
        return 0, 0.0
    with zipfile.ZipFile(path) as file:
        file.read("weights")
        return json.loads(file.read("state.json"))


if attempt == "1":
    os.makedirs("out", exist_ok=True)
step, total = load()
print(f"resumed at {step}", flush=True)
while step < 20:
    step, total = step + 1, total + 1.0 / (step + 1)
    if step % 5 == 0 and not (attempt == "1" and step > 10):
        save(step, total)
    print(f"step {step}/20 loss {total:.6f}", flush=True)
    while attempt == "1" and step == 12 and not os.path.exists("fail"):
        time.sleep(0.01)
    if attempt == "1" and step == 12:
        if open("fail").read() == "cut":
            with open("out/checkpoint.pt", "r+b") as file:  # the fault comes while it writes the next one
                file.truncate(1000)
        sys.exit(3)
print(f"total {total:.6f}", flush=True)
"""
TOTAL = sum(1.0 / step for step in range(1, 21))
RESTARTS = ("--max-restarts", "2", "--unconditional-restart")
LONG_S = 250.0  # the copier runs at the lowest priority, beside all else that runs here
DEEP = 4096  # in the file: past its header


class Training:
    """A training that has saved step 10, and whose copy of that is complete."""

    def __init__(self, place, kind, *flags, size="64MiB"):
        self.place = place
        (place.path / "train.py").write_text(TRAIN)
        words = (sys.executable, "-S", "train.py", kind)
        self.run = place.run(*RESTARTS, *flags, "--ram-checkpoints", size, "--", *words)

    def store(self):
        for path in Path(SHM).glob(f"{PREFIX}-{os.getuid()}-*"):
            # It may be removed at this moment, also another test's.
            with contextlib.suppress(FileNotFoundError):
                if str(self.place.state) in (path / "owner.json").read_text():
                    return path
        return None

    def copier(self):
        """The process that makes the copies; None while another one takes over."""
        store = self.store()
        with contextlib.suppress(OSError, ValueError):
            return int((store / "pid").read_text()) if store is not None else None
        return None

    def wait_for_copy(self, path="out/checkpoint.pt"):
        wait_for("step 12", lambda: "step 12/" in self.run.out)
        wait_for(lambda: f"the copy:\n{self.run.err}", lambda: self._has(self.place.path / path), LONG_S)
        return self.place.path / path

    def _has(self, path):
        data = path.read_bytes()
        try:
            copies = [copy.read_bytes() for copy in self.store().glob(f"*/files/**/{path.name}")]
            complete = [copy for copy in self.store().glob("*/manifest.json")]
        except (OSError, AttributeError):
            return False
        return len(complete) == 1 and [zlib.crc32(copy) for copy in copies] == [zlib.crc32(data)]

    def fail(self, how="die"):
        part = self.place.path / "fail.part"
        part.write_text(how)
        part.rename(self.place.path / "fail")

    def ends_well(self, resumed_at):
        assert self.run.code(LONG_S) == 0, self.run.err
        assert f"resumed at {resumed_at}\n" in self.run.out
        assert self.run.out.endswith(f"total {TOTAL:.6f}\n")
        self.place.nothing_left()
        wait_for("an empty /dev/shm", lambda: self.store() is None, LONG_S)

    def findings(self):
        return [
            one["numbers"] for one in self.place.events("finding-noted") if one["finding"] == "ram-checkpoint"
        ]

    def outcome(self):
        return next(one for one in self.findings() if one["outcome"] not in ("copied", "refused", "left-out"))


def flip(path, at=DEEP):
    """Changes one byte, as a failing disk does."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_checkpoint_is_restored(place):
    training = Training(place, "renamed")
    path = training.wait_for_copy()
    flip(path)
    damaged = path.read_bytes()
    training.fail()
    training.ends_well(resumed_at=10)
    assert training.outcome()["outcome"] == "restored"
    assert (path.parent / ".checkpoint.pt.damaged-1").read_bytes() == damaged
    assert "was restored from memory (1 file damaged)" in training.run.err


def test_a_checkpoint_that_is_gone_is_restored(place):
    training = Training(place, "renamed")
    training.wait_for_copy().unlink()
    training.fail()
    training.ends_well(resumed_at=10)
    assert (training.outcome()["outcome"], training.outcome()["missing"]) == ("restored", 1)


def test_a_good_checkpoint_stays(place):
    training = Training(place, "renamed")
    path = training.wait_for_copy()
    inode = path.stat().st_ino
    training.fail()
    training.ends_well(resumed_at=10)
    assert training.outcome()["outcome"] == "intact"
    assert inode  # the training has replaced it since
    assert sorted(one.name for one in path.parent.iterdir()) == ["checkpoint.pt"]


def test_a_checkpoint_that_was_being_written_in_place_is_restored(place):
    training = Training(place, "in-place")
    training.wait_for_copy()
    training.fail("cut")
    training.ends_well(resumed_at=10)
    assert (training.outcome()["outcome"], training.outcome()["damaged"]) == ("restored", 1)


def test_a_folder_is_restored_with_what_names_it(place):
    training = Training(place, "folder", "--grace", "1s")
    path = training.wait_for_copy("out/global_step10/rank_1.pt")
    (path.parent / "rank_0.pt").unlink()
    path.write_bytes(path.read_bytes()[:5000])
    (place.path / "out" / "latest").write_text("")
    training.fail()
    training.ends_well(resumed_at=10)
    assert (training.outcome()["missing"], training.outcome()["damaged"]) == (1, 1)
    assert (place.path / "out" / "global_step10" / ".rank_1.pt.damaged-1").stat().st_size == 5000


def test_where_the_disk_is_gone_the_copy_is_offered(place):
    training = Training(place, "renamed")
    path = training.wait_for_copy()
    path.parent.rename(place.path / "away")
    path.parent.write_text("no folder any more")
    training.fail()
    assert training.run.code() != 0  # it cannot save its next checkpoint
    assert "resumed at 10" in training.run.out
    assert training.outcome()["outcome"] == "gone"
    assert "HOLDFAST_RAM_CHECKPOINT" in training.run.err
    place.nothing_left()
    wait_for("an empty /dev/shm", lambda: training.store() is None, LONG_S)


def test_a_checkpoint_that_is_too_large_is_refused(place):
    training = Training(place, "renamed", size="1MiB")
    training.run.says(
        "is not copied to memory: larger than the setting ram-checkpoints (1 MiB) allows (1 MiB)"
    )
    wait_for("step 12", lambda: "step 12/" in training.run.out)
    training.fail()
    training.ends_well(resumed_at=10)


def test_a_copier_that_is_killed_is_started_again(place):
    training = Training(place, "renamed")
    path = training.wait_for_copy()
    first = wait_for("a copier", training.copier)
    os.kill(first, signal.SIGKILL)
    wait_for("another copier", lambda: training.copier() not in (None, first), LONG_S)
    flip(path)
    training.fail()
    training.ends_well(resumed_at=10)
    assert training.outcome()["outcome"] == "restored"


def test_memory_is_cleared_when_holdfast_is_killed(place):
    training = Training(place, "renamed")
    training.wait_for_copy()
    training.run.kill()
    wait_for("an empty /dev/shm", lambda: training.store() is None, LONG_S)
    place.nothing_left()


def test_the_next_start_clears_what_was_killed_with_its_copier(place):
    training = Training(place, "renamed")
    training.wait_for_copy()
    store = training.store()
    copier = wait_for("a copier", training.copier)
    os.kill(copier, signal.SIGSTOP)
    training.run.kill()
    os.kill(copier, signal.SIGKILL)
    place.nothing_left()  # what is left in /dev/shm, the next start of any job on this machine clears
    other = place.start("run", "--job", "other", "--", "true")
    assert other.code() == 0
    wait_for("an empty /dev/shm", lambda: not store.exists())


def test_a_detached_training_keeps_its_copy(place):
    training = Training(place, "renamed", "--detach")
    path = training.wait_for_copy()
    training.run.kill()
    copier = wait_for("a copier", training.copier)
    again = place.start("attach", "t")
    wait_for("another copier", lambda: training.copier() not in (None, copier), LONG_S)
    assert wait_for("the end of the first copier", lambda: is_over(copier))
    flip(path)
    training.fail()
    assert again.code() == 0, again.err
    assert f"total {TOTAL:.6f}" in again.out + training.run.out
    assert training.outcome()["outcome"] == "restored"
    place.nothing_left()
    wait_for("an empty /dev/shm", lambda: training.store() is None, LONG_S)


@pytest.mark.parametrize("size", ["20", "-1G", "much", "1KiB", "10EB"])
def test_a_size_that_cannot_be_read_is_refused(place, size):
    run = place.run(f"--ram-checkpoints={size}", "--", "true")
    assert run.code() == 2
    assert f"--ram-checkpoints cannot be {size!r}; allowed: 1MiB to 1PiB, or none" in run.err
