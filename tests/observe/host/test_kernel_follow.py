"""The kernel's log as it grows: the real one where this machine lets us write to it, files and a reader elsewhere."""

import os
from pathlib import Path

import pytest

from holdfast.observe.host.kernel_follow import KernelFollower

NOWHERE = Path("/nowhere/kmsg")


def test_the_real_log_from_now_on():
    try:
        kmsg = os.open("/dev/kmsg", os.O_WRONLY)
    except OSError as error:
        pytest.skip(f"/dev/kmsg cannot be written here: {error}")
    follower = KernelFollower()
    line = f"holdfast test {os.getpid()}: a line of its own"
    try:
        os.write(kmsg, line.encode() + b"\n")
        assert follower.source == "kmsg"
        assert [text for text in follower.poll() if text == line.encode()] == [line.encode()]
        assert line.encode() not in follower.poll()
    finally:
        os.close(kmsg)
        follower.close()


def test_a_file_of_syslog_from_its_end_on(tmp_path):
    log = tmp_path / "kern.log"
    log.write_bytes(b"old\n")
    follower = KernelFollower(NOWHERE, [log], ("no-such-reader",))
    with log.open("ab") as file:
        file.write(b"one\ntw")
        file.flush()
        assert follower.poll() == [b"one"]
        file.write(b"o\n")
    assert follower.poll() == [b"two"]
    follower.close()


def test_a_reader_that_ends_is_reported(tmp_path):
    follower = KernelFollower(NOWHERE, [], ("sh", "-c", "echo one; echo two"))
    lines = []
    while not follower.why_not:
        lines += follower.poll()
    assert lines == [b"one", b"two"]
    assert "the journalctl process ended" in follower.why_not
    assert follower.poll() == []


def test_nothing_to_read_is_said_with_each_reason():
    follower = KernelFollower(NOWHERE, [Path("/nowhere/kern.log")], ("no-such-reader",))
    assert follower.poll() == []
    assert "/nowhere/kmsg" in follower.why_not and "/nowhere/kern.log" in follower.why_not
    assert "no no-such-reader" in follower.why_not
    follower.close()
