"""Checks shared memory and process limits against what the training will start."""

import os
import resource
from collections.abc import Iterator

from holdfast.checks.readers.infiniband import ports
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.readers.own_cgroup import pids_left
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.io import UNLIMITED, Limits, judge_limits, judge_shm
from holdfast.core.checks.node_findings import failed, skipped
from holdfast.core.checks.rdma import is_wanted
from holdfast.model.checks import ASKED, BOOT, MANUAL, ON_FAILURE, PROLOG, Scene, Spec
from holdfast.model.signatures import Words

SHM = "/dev/shm"
IPC_LOCK, SYS_RESOURCE, SYS_ADMIN = 14, 24, 21  # numbers of capabilities; linux/capability.h
WHOLE_RANGE = "4294967295"


def look_at_shm(scene: Scene) -> Iterator[Seen]:
    try:
        space = os.statvfs(NodeFiles(scene).place(SHM))
    except FileNotFoundError:
        yield failed(
            "it does not exist",
            "a tmpfs",
            ASKED,
            device=SHM,
            why="/dev/shm does not exist; data loader workers and NCCL need it",
            en="Mount it: `mount -t tmpfs -o size=50% tmpfs /dev/shm`.",
            zh="请挂载：`mount -t tmpfs -o size=50% tmpfs /dev/shm`。",
            category="shm_oom",
        )
        return
    except OSError as error:
        yield skipped(f"the size of {SHM} cannot be read: {error.strerror}")
        return
    size, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    yield judge_shm(size, free, scene.ranks, scene.loader_workers)


def look_at_limits(scene: Scene) -> Iterator[Seen]:
    files = NodeFiles(scene)
    rights = _rights(files)
    limits = Limits(
        files=_soft(resource.RLIMIT_NOFILE),
        locked_bytes=_soft(resource.RLIMIT_MEMLOCK),
        processes=_soft(resource.RLIMIT_NPROC),
        may_lock=bool(rights >> IPC_LOCK & 1),
        may_fork=bool(rights & (1 << SYS_RESOURCE | 1 << SYS_ADMIN)) or is_root(files),
        pids_left=pids_left(files),
    )
    has_rdma = any(port.is_active and is_wanted(port, scene.env) for port in ports(files))
    yield from judge_limits(limits, scene.ranks, scene.loader_workers, has_rdma)


def _soft(which: int) -> int:
    soft = resource.getrlimit(which)[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def is_root(files: NodeFiles) -> bool:
    """Returns whether the effective user of this process is root.

    Uid:   0       0       0       0     (the second number is the effective user id)
    """
    lines = files.text("/proc/self/status").splitlines()
    return any(line.split()[2:3] == ["0"] for line in lines if line.startswith("Uid:"))


def _rights(files: NodeFiles) -> int:
    """Returns the effective Linux capabilities as a bit set; 0 if they hold only inside a user namespace."""
    ids = files.word("/proc/self/uid_map").split()
    if ids and ids[2:] != [WHOLE_RANGE]:
        return 0
    for line in files.text("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            try:
                return int(line.split()[1], 16)
            except (ValueError, IndexError):
                return 0
    return 0


CHECKS = (
    Check(
        Spec(
            name="io-shm",
            area="io",
            what=Words(
                en="/dev/shm is large enough for the ranks and data loader workers",
                zh="/dev/shm 容量满足各 rank 与数据加载进程",
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_shm,
    ),
    Check(
        Spec(
            name="io-limits",
            area="io",
            what=Words(
                en="limits of open files, locked memory, processes", zh="打开文件数、锁定内存与进程数上限"
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_limits,
    ),
)
