"""Folders, mounts, shared memory, limits; questions with a deadline."""

import errno
import os
import signal

import pytest

from holdfast.checks.child import look
from holdfast.checks.io.folders import folders_of, space_of, write_and_read
from holdfast.checks.readers.asked_aside import _begin, _is_late, _late_answer, ask_all
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.readers.own_cgroup import MemoryLimit, cpu_quota, memory_limit, pids_left
from holdfast.checks.registry import check_named
from holdfast.core.checks.io import (
    GIB,
    MIB,
    UNLIMITED,
    Limits,
    Mount,
    Space,
    Written,
    is_local_path,
    judge_gone_mounts,
    judge_inodes,
    judge_limits,
    judge_mount,
    judge_shm,
    judge_space,
    judge_written,
    mount_of,
    mounts_to_ask,
    parse_mounts,
)
from holdfast.model.checks import DEVICE_FAULT, ENVIRONMENT_FAULT, FAIL, PASS, SKIP, WARN, Baseline, Scene

TABLE = r"""20 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw
21 20 0:30 / /my\040data rw - nfs4 filer:/a rw,vers=4.2
22 20 0:31 / /ro ro,relatime - ext4 /dev/sdb1 rw
23 20 0:32 / /net rw - autofs systemd-1 rw
24 20 0:33 / /run/user/0/gvfs rw - fuse.gvfsd-fuse gvfsd-fuse rw
25 20 0:34 / /fast rw - ext4 /dev/sdc1 ro,errors=remount-ro
half a line
"""


def test_mounts_are_read_with_their_escapes():
    mounts = parse_mounts(TABLE)
    assert [mount.path for mount in mounts] == ["/", "/my data", "/ro", "/net", "/run/user/0/gvfs", "/fast"]
    assert [mount.is_read_only for mount in mounts] == [False, False, True, False, False, True]
    assert mount_of("/my data/run", mounts).kind == "nfs4"
    assert mount_of("/my database", mounts).path == "/"
    asked = mounts_to_ask(mounts, {"work": "/home/me"})
    assert [mount.path for mount in asked] == ["/", "/my data", "/run/user/0/gvfs"]


def test_a_mount_over_another_hides_it():
    over = (Mount("/", "ext4", "/dev/a"), Mount("/a", "nfs", "x:/"), Mount("/a", "tmpfs", "tmpfs"))
    assert mount_of("/a/b", over).kind == "tmpfs"


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("/data/run", True),
        ("/home/me/s3:/bucket/run", False),
        ("/x/hdfs:/a", False),
        ("/c:/x", True),
        ("run", False),
    ],
)
def test_an_address_is_no_folder(path, local):
    assert is_local_path(path) is local


@pytest.mark.parametrize(
    ("space", "status"),
    [
        (Space(size_bytes=1000 * GIB, free_bytes=100 * GIB), PASS),
        (Space(size_bytes=1000 * GIB, free_bytes=4 * GIB), WARN),
        (Space(size_bytes=1000 * GIB, free_bytes=10 * MIB), FAIL),
        (Space(size_bytes=20 * GIB, free_bytes=1 * GIB), PASS),
        (Space(size_bytes=64 * MIB, free_bytes=60 * MIB), PASS),
        (Space(size_bytes=64 * MIB, free_bytes=0), FAIL),
        (Space(size_bytes=0, free_bytes=0), SKIP),
    ],
)
def test_room_is_held_against_the_size(space, status):
    assert judge_space("work", "/a", space).status == status


@pytest.mark.parametrize(
    ("inodes", "free", "status"),
    [(0, 0, PASS), (10**7, 10**6, PASS), (10**7, 500, WARN), (10**7, 0, FAIL), (40, 30, PASS)],
)
def test_inodes(inodes, free, status):
    space = Space(size_bytes=1, free_bytes=1, inodes=inodes, free_inodes=free)
    assert judge_inodes("work", "/a", space).status == status


@pytest.mark.parametrize(
    ("role", "seen", "status", "fault"),
    [
        ("checkpoint", Written(seconds=0.01), PASS, ""),
        ("checkpoint", Written(seconds=7.0), WARN, ""),
        ("checkpoint", Written(error=errno.ENOSPC), FAIL, ENVIRONMENT_FAULT),
        ("temporary", Written(error=errno.ENOSPC), FAIL, ""),
        ("work", Written(error=errno.EROFS), PASS, ""),
        ("work", Written(error=errno.EIO), FAIL, ""),
        ("checkpoint", Written(error=errno.ELOOP), FAIL, ""),
        ("checkpoint", Written(same=False), FAIL, DEVICE_FAULT),
        ("checkpoint", Written(hangs=True), FAIL, ""),
    ],
)
def test_what_writing_gave(role, seen, status, fault):
    told = judge_written(role, "/a", seen, 10.0, True, 4096)
    assert (told.status, told.fault) == (status, fault)


def test_a_quick_look_is_not_sure_that_writing_hangs():
    assert judge_written("work", "/a", Written(hangs=True), 1.5, True, 4096).status == WARN


@pytest.mark.parametrize(
    ("error", "hangs", "roles", "status"),
    [
        (0, False, [], PASS),
        (errno.EACCES, False, ["work"], PASS),
        (errno.ESTALE, False, [], WARN),
        (errno.ENOTCONN, False, ["work"], FAIL),
        (0, True, [], WARN),
        (0, True, ["checkpoint"], FAIL),
    ],
)
def test_a_dead_mount_matters_more_where_the_run_is(error, hangs, roles, status):
    told = judge_mount(Mount("/a", "nfs4", "filer:/a"), error, hangs, 3.0, "nfs_wait", roles)
    assert told.status == status and (status == PASS or "/a" in told.why)


def test_a_mount_that_had_a_second_only_is_not_surely_dead():
    mount = Mount("/a", "nfs4", "filer:/a")
    assert judge_mount(mount, 0, True, 1.0, "", ["work"]).status == WARN
    assert judge_mount(mount, errno.ESTALE, False, 1.0, "", ["work"]).status == FAIL


def test_a_mount_that_was_learned_is_missed_only_under_a_folder_of_the_run():
    known = Baseline(facts={"mount:/ckpt": {"kind": "nfs4", "source": "filer:/c"}})
    root = (Mount("/", "ext4", "/dev/a"),)
    assert judge_gone_mounts(root, {"work": "/home"}, known) == []
    assert judge_gone_mounts(root, {"checkpoint": "/ckpt/run"}, known)[0].status == FAIL


@pytest.mark.parametrize(
    ("size", "free", "ranks", "loaders", "status"),
    [
        (64 * MIB, 64 * MIB, None, None, PASS),
        (64 * MIB, 64 * MIB, 1, 0, PASS),
        (64 * MIB, 64 * MIB, 8, None, WARN),
        (64 * MIB, 64 * MIB, 1, 4, WARN),
        (64 * GIB, 60 * GIB, 8, 16, PASS),
        (64 * GIB, 1 * MIB, 8, 0, WARN),
        (64 * GIB, 1 * MIB, None, None, WARN),
    ],
)
def test_shared_memory_is_held_against_the_run(size, free, ranks, loaders, status):
    assert judge_shm(size, free, ranks, loaders).status == status


@pytest.mark.parametrize(
    ("limits", "rdma", "devices"),
    [
        (Limits(files=1024, locked_bytes=65536, processes=UNLIMITED), False, []),
        (Limits(files=1024, locked_bytes=65536, processes=UNLIMITED), True, ["memlock"]),
        (Limits(files=1024, locked_bytes=65536, processes=UNLIMITED, may_lock=True), True, []),
        (Limits(files=UNLIMITED, locked_bytes=UNLIMITED, processes=100), True, ["nproc"]),
        (Limits(files=UNLIMITED, locked_bytes=UNLIMITED, processes=100, may_fork=True), True, []),
        (Limits(files=256, locked_bytes=0, processes=UNLIMITED, pids_left=20), False, ["nofile", "pids"]),
    ],
)
def test_limits(limits, rdma, devices):
    told = judge_limits(limits, 8, 0, rdma)
    assert [one.device for one in told if one.status == WARN] == devices


def test_questions_are_answered_in_their_order_and_one_that_hangs_is_cut_off():
    def waits():
        signal.pause()
        return {}

    def fails():
        raise OSError(errno.ESTALE, "stale")

    def breaks():
        raise ValueError("not an OSError")

    answers = ask_all([lambda: {"a": 1}, waits, fails, breaks, lambda: {"b": "x"}], 3.0)
    assert [answer.hangs for answer in answers] == [False, True, False, False, False]
    assert [answer.error for answer in answers] == [0, 0, errno.ESTALE, -1, 0]
    assert (answers[0].value, answers[4].value) == ({"a": 1}, {"b": "x"})


def test_one_that_has_answered_by_the_time_it_is_found_late_does_not_hang():
    asked = _begin(0, lambda: {"a": 1})
    try:
        os.waitid(os.P_PID, asked.pid, os.WEXITED | os.WNOWAIT)
        assert _is_late(asked, 0.0)
        answer = _late_answer(asked)
        assert (answer.value, answer.hangs, answer.error) == ({"a": 1}, False, 0)
    finally:
        os.close(asked.channel)
        os.waitpid(asked.pid, 0)


def test_more_questions_than_are_asked_at_once_are_all_answered():
    answers = ask_all([lambda number=number: {"n": number} for number in range(50)], 10.0)
    assert [answer.value["n"] for answer in answers] == list(range(50))


def test_a_folder_that_the_run_will_make_is_judged_by_the_one_above(tmp_path):
    assert space_of(str(tmp_path / "a" / "b"))["size_bytes"] == space_of(str(tmp_path))["size_bytes"]
    assert write_and_read(str(tmp_path / "a" / "b"), sync=True) == {"same": 1}
    assert os.listdir(tmp_path) == []


def test_each_folder_is_looked_at_once_under_the_role_that_matters_most(tmp_path):
    scene = Scene(folders={"work": str(tmp_path), "checkpoint": f"{tmp_path}/", "temporary": "relative"})
    assert folders_of(scene) == {"checkpoint": str(tmp_path)}


@pytest.mark.parametrize("name", ["io-space", "io-inodes", "io-write", "io-mounts", "io-shm", "io-limits"])
def test_nothing_to_look_at_is_no_pass_and_no_error(name, tmp_path):
    outcome = look(check_named(name), Scene(root=str(tmp_path)))
    assert "the check itself failed" not in outcome.findings[0].why
    if name in ("io-space", "io-inodes", "io-write", "io-mounts"):
        assert outcome.status == SKIP


def group_tree(tmp_path, groups, files):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return NodeFiles(Scene(root=str(tmp_path)))


def test_the_lowest_limit_of_all_levels_counts(tmp_path):
    files = group_tree(
        tmp_path,
        "0::/a/b\n",
        {
            "a/b/cpu.max": "max 100000",
            "a/cpu.max": "150000 100000",
            "a/b/memory.max": "1000",
            "a/b/memory.current": "600",
            "a/b/memory.stat": "anon 1\ninactive_file 500\n",
            "a/memory.max": "2000",
            "a/memory.current": "1900",
            "a/pids.max": "max",
            "a/b/pids.max": "50",
            "a/b/pids.current": "20",
        },
    )
    assert cpu_quota(files) == 1.5
    assert memory_limit(files) == MemoryLimit(2000, 1900)
    assert pids_left(files) == 30


def test_a_container_that_is_given_the_hosts_path_looks_at_its_own_root(tmp_path):
    files = group_tree(
        tmp_path,
        "3:cpu,cpuacct:/docker/abc\n2:memory:/docker/abc\n",
        {
            "cpu/cpu.cfs_quota_us": "-1",
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/memory.usage_in_bytes": "5",
        },
    )
    assert cpu_quota(files) is None and memory_limit(files) is None and pids_left(files) is None
