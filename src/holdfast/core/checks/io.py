"""Judges folders, mounts, shared memory and limits of a run. Pure.

sources: proc_pid_mountinfo(5); statvfs(3); getrlimit(2); the defaults of Docker (/dev/shm of 64 MiB)
"""

import errno
from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.checks.node_findings import failed, passed, size, skipped, warned
from holdfast.core.plurals import counted
from holdfast.late_pattern import late
from holdfast.model.checks import ASKED, DEVICE_FAULT, ENVIRONMENT_FAULT, NO_FAULT, RULE, Baseline, Finding

MIB, GIB = 1 << 20, 1 << 30
FULL_BYTES, FULL_SHARE = 64 * MIB, 0.01  # with less than the smaller of both, a disk counts as full
LOW_BYTES, LOW_SHARE = 5 * GIB, 0.03
INODES_LOW, INODES_SHARE = 1000, 0.01
NETWORK = frozenset(
    "nfs nfs4 lustre gpfs beegfs ceph cifs smb3 glusterfs 9p afs orangefs pvfs2 panfs wekafs gfs2 ocfs2 davfs".split()
)
NOT_ASKED = frozenset(("autofs", "fusectl"))  # autofs would be mounted by a test; fusectl has no files
_ESCAPED = late(r"\\([0-7]{3})")
# `file:/`, `s3:/`: the rest of a URL that was joined to a folder
_REMOTE = late(r"(?:^|/)[A-Za-z][A-Za-z0-9+.-]{1,15}:/")

DISK_FULL, FILESYSTEM, STALL = "disk_full", "filesystem_error", "nfs_lustre_stall"
GONE = {
    errno.ESTALE: (
        "the server no longer knows this mount (stale handle)",
        "服务器已不识别该挂载（句柄失效）",
    ),
    errno.ENOTCONN: ("the program that serves it has died", "提供该挂载的进程已退出"),
    errno.EIO: ("it answers with an input/output error", "访问返回输入输出错误"),
    errno.EHOSTDOWN: ("its server is down", "其服务器已宕机"),
    errno.ETIMEDOUT: ("its server did not answer in time", "其服务器应答超时"),
    errno.ESHUTDOWN: ("it was shut down", "已被关闭"),
}


class Mount(Struct, frozen=True):
    """A mount of the node, one line of mountinfo. `is_read_only`: the mount, or the file system itself."""

    path: str
    kind: str
    source: str
    is_read_only: bool = False

    @property
    def is_remote(self) -> bool:
        """Returns whether this is a network or FUSE file system."""
        return self.kind in NETWORK or self.kind.startswith("fuse")


def parse_mounts(text: str) -> tuple[Mount, ...]:
    r"""Parses the text of /proc/self/mountinfo; returns the mounts in order.

    36 35 98:0 /mnt1 /mnt/a rw,noatime master:1 - ext3 /dev/root rw,errors=continue
    """
    found = []
    for line in text.splitlines():
        head, separator, tail = line.partition(" - ")
        fields, behind = head.split(), tail.split()
        if separator and len(fields) >= 6 and len(behind) >= 2:
            options = {*fields[5].split(","), *(behind[2].split(",") if len(behind) > 2 else ())}
            found.append(Mount(_plain(fields[4]), behind[0], _plain(behind[1]), "ro" in options))
    return tuple(found)


def _plain(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount | None:
    """Returns the mount that a path lies on: the one with the longest matching mount point, and of equal ones the
    last, which hides the others.
    """
    best: Mount | None = None
    for mount in mounts:
        if is_below(path, mount.path) and (best is None or len(mount.path) >= len(best.path)):
            best = mount
    return best


def is_below(path: str, folder: str) -> bool:
    """Returns whether a path is in the folder, or is the folder."""
    return folder == "/" or path == folder or path.startswith(folder.rstrip("/") + "/")


def is_local_path(path: str) -> bool:
    """Returns whether this is a path of a local file; False for "/home/me/s3:/bucket/run", a URL joined to a
    folder.
    """
    return path.startswith("/") and not _REMOTE.search(path)


def mounts_to_ask(mounts: Sequence[Mount], folders: Mapping[str, str]) -> list[Mount]:
    """Returns the mounts to test, each path once: network and FUSE mounts, and those that contain a folder of the
    run.
    """
    holding = {id(mount) for path in folders.values() if (mount := mount_of(path, mounts))}
    wanted = [one for one in mounts if one.kind not in NOT_ASKED and (one.is_remote or id(one) in holding)]
    return list({one.path: one for one in wanted}.values())


ANSWER_SURE_S = 3.0


class Space(Struct, frozen=True, kw_only=True):
    """The size and the free space of the file system under a folder. `inodes`: 0 without a fixed number."""

    size_bytes: int
    free_bytes: int
    inodes: int = 0
    free_inodes: int = 0


def judge_space(role: str, path: str, space: Space) -> Finding:
    """Returns the finding on the free space under a folder. `role`: what the run uses the folder for."""
    if space.size_bytes <= 0:
        return skipped("the file system does not report its size", path)
    measured = f"{size(space.free_bytes)} free of {size(space.size_bytes)}"
    full = min(FULL_BYTES, space.size_bytes * FULL_SHARE)
    low = min(LOW_BYTES, space.size_bytes * LOW_SHARE)
    if space.free_bytes >= low:
        return passed(measured, path)
    is_full = space.free_bytes < full
    what = failed if is_full else warned
    return what(
        measured,
        f"at least {size(low)}",
        RULE,
        device=path,
        why=f"the disk under the {role} folder {path} is {'full' if is_full else 'nearly full'}",
        en=f"Make room under {path} (`du -xh --max-depth=2 {path}`), or give the run another {role} folder.",
        zh=f"清理 {path}（`du -xh --max-depth=2 {path}`），或为训练指定其他目录。",
        category=DISK_FULL,
    )


def judge_inodes(role: str, path: str, space: Space) -> Finding:
    """Returns the finding on the free inodes of the file system under a folder."""
    if space.inodes <= 0:
        return passed("no fixed number of inodes", path)
    measured = f"{space.free_inodes} of {space.inodes} inodes free"
    if space.free_inodes >= min(INODES_LOW, space.inodes * INODES_SHARE):
        return passed(measured, path)
    what = failed if space.free_inodes == 0 else warned
    return what(
        measured,
        f"at least {max(1, round(min(INODES_LOW, space.inodes * INODES_SHARE)))}",
        RULE,
        device=path,
        why=f"the file system under the {role} folder {path} has no room for {'any' if not space.free_inodes else 'many'}"
        " more files, though there may be space",
        en=f"Delete small files under {path} (`du --inodes -x {path} | sort -n | tail`).",
        zh=f"删除 {path} 下的小文件（`du --inodes -x {path} | sort -n | tail`）。",
        category=DISK_FULL,
    )


def judge_mount(
    mount: Mount, error: int, hangs: bool, within_s: float, where: str, roles: Sequence[str]
) -> Finding:
    """Returns the finding about one mount: whether it responds.

    `error`: errno of the access, 0 for none. `roles`: what the run uses the folders on it for. A mount that the run
    does not need causes only a warning, and so does a time limit of one second, because a busy server may need more.
    """
    name = f"{mount.path} ({mount.kind})"
    if not hangs and error not in GONE:
        return passed(
            "answers" if not error else f"answers ({errno.errorcode.get(error, error)})", mount.path
        )
    if hangs:
        measured, en, zh = f"no answer within {within_s:g} s", "it does not answer", "无应答"
        measured += f"; waits in {where}" if where else ""
    else:
        (en, zh), measured = GONE[error], errno.errorcode.get(error, str(error))
    is_sure = not hangs or within_s >= ANSWER_SURE_S
    what = failed if roles and is_sure else warned
    on_it = f", which holds the {' and '.join(roles)} folder of the run" if roles else ""
    return what(
        measured,
        f"an answer within {within_s:g} s",
        RULE,
        device=mount.path,
        why=f"the mount {name}{on_it} is dead: {en}",
        en=f"Check its server {mount.source}; then `umount -f -l {mount.path}` and mount it again.",
        zh=f"{zh}：检查服务端 {mount.source}；然后执行 `umount -f -l {mount.path}` 并重新挂载。",
        category=STALL,
    )


def judge_gone_mounts(mounts: Sequence[Mount], folders: Mapping[str, str], known: Baseline) -> list[Finding]:
    """Returns findings about mounts in the baseline that are missing now under a folder of the run, so that the run
    would fill the local disk.
    """
    here = {mount.path for mount in mounts}
    found = []
    for key in known.devices("mount"):
        path = key.removeprefix("mount:")
        roles = [role for role, folder in folders.items() if is_below(folder, path)]
        if roles and path not in here:
            found.append(
                failed(
                    "not mounted",
                    f"{known.of(key, 'kind')} of {known.of(key, 'source')}",
                    "baseline",
                    device=path,
                    why=f"{path}, which holds the {' and '.join(roles)} folder, is not mounted any more",
                    en=f"Mount it (`mount {path}`); without it the run writes to the disk below, or does not find its data.",
                    zh=f"请挂载（`mount {path}`）；否则训练会写入其下的本地盘，或找不到数据。",
                    category=FILESYSTEM,
                )
            )
    return found


class Written(Struct, frozen=True, kw_only=True):
    """The result of writing a small file.

    `error`: errno; 0 for none. `hangs`: not finished in time. `same`: the content read back was equal.
    """

    error: int = 0
    hangs: bool = False
    same: bool = True
    seconds: float = 0.0


SLOW_S = 5.0
SURE_S = 8.0  # a busy disk may need seconds to write a file; one that needs longer does not work
_REFUSED = {
    errno.ENOSPC: ("no space or no inodes are left", "空间或文件数已耗尽", DISK_FULL),
    errno.EDQUOT: ("the quota is used up", "配额已用尽", DISK_FULL),
    errno.EROFS: ("it is read-only", "只读", FILESYSTEM),
    errno.EACCES: ("this user may not write there", "当前用户无写权限", "permission_error"),
    errno.EPERM: ("this user may not write there", "当前用户无写权限", "permission_error"),
    errno.EIO: ("it answers with an input/output error", "返回输入输出错误", "storage_io"),
    errno.ESTALE: ("the server no longer knows it (stale handle)", "句柄失效", STALL),
    errno.ENOENT: ("it is not there", "目录不存在", "missing_file"),
    errno.ENOTDIR: ("it is not a folder", "不是目录", "missing_file"),
}
STOPS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM))


def judge_written(
    role: str, path: str, seen: Written, within_s: float, is_local: bool, bytes_: int
) -> Finding:
    """Returns the finding whether a folder can be written.

    A checkpoint folder that cannot be written stops the run at once; a work folder may be read-only.
    """
    if seen.hangs:
        what = failed if within_s >= SURE_S else warned
        return what(
            f"no end in {within_s:g} s",
            f"{size(bytes_)} within {within_s:g} s",
            RULE,
            device=path,
            why=f"writing to the {role} folder {path} does not finish",
            en="Check the server or disk behind it (`dmesg`, `iostat -x 1`) and whether the file system is frozen (fsfreeze).",
            zh="检查其后端服务器或磁盘（`dmesg`、`iostat -x 1`），以及文件系统是否被冻结（fsfreeze）。",
            category=STALL,
        )
    if seen.error:
        return _refused(role, path, seen.error)
    if not seen.same:
        return failed(
            "other bytes",
            "what was written",
            RULE,
            device=path,
            why=f"a file written to {path} was read back with different bytes",
            en="Stop writing there: checkpoints would be damaged. Check the disk, its cable and the memory.",
            zh="请停止写入：检查点会损坏。检查磁盘、线缆与内存。",
            category="storage_io",
            fault=DEVICE_FAULT if is_local else NO_FAULT,
        )
    measured = f"{size(bytes_)} in {seen.seconds * 1000:.0f} ms"
    if seen.seconds < SLOW_S:
        return passed(measured, path)
    return warned(
        measured,
        f"less than {SLOW_S:g} s",
        RULE,
        device=path,
        why=f"writing a small file to the {role} folder {path} takes {seen.seconds:.1f} s",
        en="Find what keeps the disk or its server busy (`iostat -x 1`, `nfsiostat 1`).",
        zh="查看磁盘或服务器繁忙原因（`iostat -x 1`、`nfsiostat 1`）。",
        category="straggler",
    )


def _refused(role: str, path: str, error: int) -> Finding:
    name = errno.errorcode.get(error, str(error))
    en, zh, category = _REFUSED.get(error, (f"it fails with {name}", f"返回 {name}", FILESYSTEM))
    if role == "work" and error in (errno.EROFS, errno.EACCES, errno.EPERM):
        return passed(f"not writable ({name}), which a run does not need", path)
    stops = role == "checkpoint" and error in STOPS
    return failed(
        name,
        "a file can be written",
        ASKED,
        device=path,
        why=f"nothing can be written to the {role} folder {path}: {en}",
        en=f"Make {path} writable with room to spare, or give the run another {role} folder.",
        zh=f"{zh}。请使 {path} 可写且空间充足，或为训练指定其他目录。",
        category=category,
        fault=ENVIRONMENT_FAULT if stops else NO_FAULT,
    )


SHM_RANK_BYTES, SHM_LOADER_BYTES = 32 * MIB, 64 * MIB
SHM_FREE_LEAST = 16 * MIB


def judge_shm(size_bytes: int, free_bytes: int, ranks: int | None, loaders: int | None) -> Finding:
    """Returns the finding about the size of shared memory. `ranks`: on this node; `loaders`: data loader workers of
    each rank; None if unknown.

    The requirement is a lower bound: 32 MiB for NCCL's buffers in each rank, 64 MiB for the batches of each loader
    worker.
    """
    measured = f"{size(free_bytes)} free of {size(size_bytes)}"
    need = (ranks or 0) * (SHM_RANK_BYTES + (loaders or 0) * SHM_LOADER_BYTES)
    what_for = counted(ranks or 0, "rank") + (
        f" with {counted(loaders, 'loader worker')} each" if loaders else ""
    )
    if ranks and size_bytes < need:
        return warned(
            measured,
            f"about {size(need)} for {what_for}",
            ASKED,
            device="/dev/shm",
            why=f"/dev/shm of {size(size_bytes)} is small for {what_for}; they end with a bus error when it is full",
            en="Start the container with --ipc=host or --shm-size, or mount a larger emptyDir (medium: Memory).",
            zh="启动容器时使用 --ipc=host 或 --shm-size，或挂载更大的 emptyDir（medium: Memory）。",
            category="shm_oom",
        )
    if free_bytes < min(max(need, SHM_FREE_LEAST), size_bytes / 4):
        return warned(
            measured,
            f"{size(max(need, SHM_FREE_LEAST))} free",
            ASKED if need else RULE,
            device="/dev/shm",
            why="/dev/shm is filled by files that other processes left or still hold",
            en="Find which processes hold it (`ls -lS /dev/shm`, `fuser -v /dev/shm/*`), and delete the files that no process holds.",
            zh="查看占用者（`ls -lS /dev/shm`、`fuser -v /dev/shm/*`），删除无人使用的文件。",
            category="shm_oom",
        )
    return passed(measured, "/dev/shm", expected=f"about {size(need)} for {what_for}" if need else "")


UNLIMITED = -1
FILES_LEAST = 1024
FILES_PER_LOADER = 64
LOCKED_LEAST = 64 * MIB
THREADS_PER_RANK, THREADS_PER_LOADER = 64, 8


class Limits(Struct, frozen=True, kw_only=True):
    """The soft limits of a process; UNLIMITED for none. `may_lock`, `may_fork`: it may exceed the limits on locked
    memory, on processes.

    `pids_left`: number of processes that the cgroup still allows; None if unlimited or unknown.
    """

    files: int
    locked_bytes: int
    processes: int
    may_lock: bool = False
    may_fork: bool = False
    pids_left: int | None = None


def judge_limits(limits: Limits, ranks: int | None, loaders: int | None, has_rdma: bool) -> list[Finding]:
    """Returns findings on limits of open files, locked memory and processes."""
    found = [*_files(limits, loaders), *_processes(limits, ranks or 1, loaders or 0)]
    if has_rdma and not limits.may_lock and 0 <= limits.locked_bytes < LOCKED_LEAST:
        found.append(
            warned(
                f"{size(limits.locked_bytes)} may be locked",
                "unlimited",
                RULE,
                device="memlock",
                why="RDMA needs locked memory, and this user's limit is too low: NCCL cannot register its buffers",
                en="Set `* - memlock unlimited` in /etc/security/limits.d, or --ulimit memlock=-1 for a container.",
                zh="在 /etc/security/limits.d 中设置 `* - memlock unlimited`，容器则使用 --ulimit memlock=-1。",
                category="host_limit",
            )
        )
    shown = ", ".join(
        f"{name} {'unlimited' if value == UNLIMITED else value}"
        for name, value in (("files", limits.files), ("processes", limits.processes))
    )
    return found or [passed(shown)]


def _files(limits: Limits, loaders: int | None) -> list[Finding]:
    need = max(FILES_LEAST, FILES_PER_LOADER * (loaders or 0))
    if limits.files == UNLIMITED or limits.files >= need:
        return []
    return [
        warned(
            f"{limits.files} open files",
            f"at least {need}",
            ASKED if loaders else RULE,
            device="nofile",
            why=f"the limit of open files per process is {limits.files}; the loader workers and sockets of a training need more",
            en="Raise it: `ulimit -n 65536` before the run, or `* - nofile 65536` in /etc/security/limits.d.",
            zh="提高上限：启动前执行 `ulimit -n 65536`，或在 /etc/security/limits.d 中设置 `* - nofile 65536`。",
            category="host_limit",
        )
    ]


def _processes(limits: Limits, ranks: int, loaders: int) -> list[Finding]:
    need = ranks * (THREADS_PER_RANK + loaders * THREADS_PER_LOADER)
    left = [limits.pids_left] if limits.pids_left is not None else []
    if limits.processes != UNLIMITED and not limits.may_fork:
        left.append(limits.processes)
    if not left or min(left) >= need:
        return []
    of_group = limits.pids_left is not None and min(left) == limits.pids_left
    return [
        warned(
            f"{min(left)} more processes and threads" if of_group else f"{min(left)} processes and threads",
            f"about {need} for {counted(ranks, 'rank')}",
            ASKED,
            device="pids" if of_group else "nproc",
            why=f"the {'control group' if of_group else 'user'} may have too few processes and threads for {counted(ranks, 'rank')}",
            en="Raise pids.max of the container (--pids-limit, podPidsLimit)."
            if of_group
            else "Raise it: `ulimit -u unlimited`, or `* - nproc unlimited` in /etc/security/limits.d.",
            zh="提高容器的 pids.max(--pids-limit、podPidsLimit)。"
            if of_group
            else "提高上限：`ulimit -u unlimited`，或在 /etc/security/limits.d 中设置 `* - nproc unlimited`。",
            category="host_limit",
        )
    ]
