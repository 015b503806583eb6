"""Checks the folders of a run: free space, writing and reading a file, mounts that respond.

Each access to a file system runs in its own process with a deadline: a mount that does not respond is
reported, and the other folders are still checked.
"""

import errno
import os
from collections.abc import Iterator, Mapping
from functools import partial

from holdfast.checks.readers.asked_aside import Answer, Question, ask_all
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.io import (
    NETWORK,
    Mount,
    Space,
    Written,
    is_below,
    is_local_path,
    judge_gone_mounts,
    judge_inodes,
    judge_mount,
    judge_space,
    judge_written,
    mount_of,
    mounts_to_ask,
    parse_mounts,
)
from holdfast.core.checks.node_findings import passed, skipped
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    EPILOG,
    LIGHT,
    MANUAL,
    ON_FAILURE,
    PROLOG,
    Fact,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

WITHIN_S, WITHIN_QUICK_S = 3.0, 1.0
WRITTEN_WITHIN_S, WRITTEN_WITHIN_QUICK_S = 10.0, 1.5
WRITTEN_BYTES = 256 << 10
PARENTS_MAX = 64
MOUNTS = "/proc/self/mountinfo"
NO_FOLDER = "the training uses no known folder on this node"


def folders_of(scene: Scene) -> dict[str, str]:
    """Returns the local folders of a run by role ("checkpoint", "work", ...): each path once, remote paths
    (`s3://`) left out.
    """
    kept: dict[str, str] = {}
    for role in sorted(scene.folders, key=lambda role: role != "checkpoint"):
        path = scene.folders[role]
        if is_local_path(path) and os.path.normpath(path) not in kept.values():
            kept[role] = os.path.normpath(path)
    return kept


def within_s(scene: Scene) -> float:
    return WITHIN_QUICK_S if scene.quick else WITHIN_S


def space_of(path: str) -> dict[str, float | int | str]:
    """Returns the free space of the file system of a folder, or of its nearest existing parent.

    The parent is used because many trainings create their checkpoint folder themselves.
    """
    for _ in range(PARENTS_MAX):
        try:
            space = os.statvfs(path)
        except FileNotFoundError:
            path = os.path.dirname(path)
            continue
        free = space.f_bfree if os.geteuid() == 0 else space.f_bavail
        inodes = space.f_ffree if os.geteuid() == 0 else space.f_favail
        return {
            "size_bytes": space.f_blocks * space.f_frsize,
            "free_bytes": free * space.f_frsize,
            "inodes": space.f_files,
            "free_inodes": inodes,
        }
    raise OSError(errno.ENOENT, "neither the folder nor any parent folder exists")


def look_at_space(scene: Scene) -> Iterator[Seen]:
    for role, path, space in _spaces(scene):
        yield space if isinstance(space, Finding) else judge_space(role, path, space)


def look_at_inodes(scene: Scene) -> Iterator[Seen]:
    for role, path, space in _spaces(scene):
        yield space if isinstance(space, Finding) else judge_inodes(role, path, space)


def _spaces(scene: Scene) -> Iterator[tuple[str, str, Space | Finding]]:
    folders = folders_of(scene)
    if not folders:
        yield "", "", skipped(NO_FOLDER)
    questions: list[Question] = [partial(space_of, path) for path in folders.values()]
    answers = ask_all(questions, within_s(scene))
    for (role, path), answer in zip(folders.items(), answers, strict=True):
        if answer.hangs or answer.error:
            why = (
                "the file system does not respond"
                if answer.hangs
                else errno.errorcode.get(answer.error, "it fails")
            )
            yield role, path, skipped(f"the free space under {path} is unknown: {why}", path)
        else:
            yield role, path, Space(**{name: int(value) for name, value in answer.value.items()})


def write_and_read(path: str, sync: bool) -> dict[str, float | int | str]:
    """Writes a test file in a folder, reads it back, and returns whether the content is the same.

    The file has no name (O_TMPFILE), so it cannot remain; where the file system does not support this, it is
    deleted.
    """
    while not os.path.lexists(path) and path != "/":
        path = os.path.dirname(path)
    content = os.urandom(WRITTEN_BYTES)
    descriptor, name = _new_file(path)
    try:
        left = content
        while left:
            left = left[os.write(descriptor, left) :]
        if sync:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # so that it is the disk that is read
        back = b""
        os.lseek(descriptor, 0, os.SEEK_SET)
        while len(back) < len(content) and (part := os.read(descriptor, len(content))):
            back += part
    finally:
        if name:
            os.unlink(name)
        os.close(descriptor)
    return {"same": int(back == content)}


def _new_file(folder: str) -> tuple[int, str]:
    """Returns the descriptor of a new test file, and its name; the name is empty for an unnamed file."""
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(folder, flags | os.O_TMPFILE, 0o600), ""
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS):
            raise
    name = os.path.join(folder, f".holdfast-check-{os.getpid()}")
    return os.open(name, flags | os.O_CREAT | os.O_TRUNC, 0o600), name


def look_at_writing(scene: Scene) -> Iterator[Seen]:
    """Checks that files can be written in the folders of a run, and how long it takes. Yields findings.

    The boot check does not flush to disk, because that takes seconds on a busy disk.
    """
    folders = folders_of(scene)
    if not folders:
        yield skipped(NO_FOLDER)
        return
    limit_s = WRITTEN_WITHIN_QUICK_S if scene.quick else WRITTEN_WITHIN_S
    mounts = parse_mounts(NodeFiles(scene).text(MOUNTS))
    questions: list[Question] = [partial(write_and_read, path, not scene.quick) for path in folders.values()]
    for (role, path), answer in zip(folders.items(), ask_all(questions, limit_s), strict=True):
        yield judge_written(role, path, _written(answer), limit_s, _is_local(path, mounts), WRITTEN_BYTES)


def _written(answer: Answer) -> Written:
    return Written(
        error=answer.error,
        hangs=answer.hangs,
        same=bool(answer.value.get("same", 1)),
        seconds=answer.seconds,
    )


def _is_local(path: str, mounts: tuple[Mount, ...]) -> bool:
    mount = mount_of(path, mounts)
    return mount is not None and mount.source.startswith("/dev/")


def look_at_mounts(scene: Scene) -> Iterator[Seen]:
    mounts = parse_mounts(NodeFiles(scene).text(MOUNTS))
    if not mounts:
        yield skipped("/proc/self/mountinfo cannot be read")
        return
    folders = folders_of(scene)
    asked = mounts_to_ask(mounts, folders)
    limit_s = within_s(scene)
    questions: list[Question] = [partial(_answers, scene.root, one.path) for one in asked]
    for mount, answer in zip(asked, ask_all(questions, limit_s), strict=True):
        roles = _on(mount, mounts, folders)
        yield judge_mount(mount, answer.error, answer.hangs, limit_s, answer.where, roles)
        if roles and mount.kind in NETWORK and not answer.hangs and not answer.error:
            for name, value in (("kind", mount.kind), ("source", mount.source)):
                yield Fact(name=name, value=value, device=f"mount:{mount.path}", learn=True)
    yield from judge_gone_mounts(mounts, folders, scene.baseline) or [passed(f"{len(asked)} mounts tested")]


def _answers(root: str, path: str) -> dict[str, float | int | str]:
    place = os.path.join(root, path.lstrip("/"))
    os.statvfs(place)
    os.stat(place)
    return {}


def _on(mount: Mount, mounts: tuple[Mount, ...], folders: Mapping[str, str]) -> list[str]:
    """Returns the roles of the folders that lie directly on a mount, not on another mount below it."""
    return [
        role
        for role, path in folders.items()
        if is_below(path, mount.path) and (held := mount_of(path, mounts)) and held.path == mount.path
    ]


CHECKS = (
    Check(
        Spec(
            name="io-mounts",
            area="io",
            what=Words(en="mounts respond, none is stale", zh="挂载点是否有响应、有无失效"),
            contexts=(BOOT, PROLOG, EPILOG, CONTINUOUS, ON_FAILURE, MANUAL),
            timeout_s=15.0,
            quick=True,
        ),
        look_at_mounts,
    ),
    Check(
        Spec(
            name="io-space",
            area="io",
            what=Words(en="free space in the folders of the training", zh="训练所用目录的剩余空间"),
            contexts=(BOOT, PROLOG, CONTINUOUS, ON_FAILURE, MANUAL),
            timeout_s=5.0,
            quick=True,
        ),
        look_at_space,
    ),
    Check(
        Spec(
            name="io-inodes",
            area="io",
            what=Words(en="free inodes in the folders of the training", zh="训练所用目录的剩余 inode"),
            contexts=(BOOT, PROLOG, CONTINUOUS, ON_FAILURE, MANUAL),
            timeout_s=5.0,
            quick=True,
        ),
        look_at_inodes,
    ),
    Check(
        Spec(
            name="io-write",
            area="io",
            what=Words(en="a small file can be written and read back", zh="小文件可写入并读回"),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            timeout_s=13.0,
            quick=True,
        ),
        look_at_writing,
    ),
)
