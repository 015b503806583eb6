"""Checks whether the training can write its checkpoints and resume from the newest one."""

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.run import run_of
from holdfast.core.checks.env.checkpoint import (
    DEEPSPEED_TRACKER,
    FILE,
    FILES,
    HEAD_BYTES,
    HEADER_BYTES_MAX,
    MEGATRON_TRACKER,
    TAIL_BYTES,
    Entry,
    Newest,
    newest_of,
    of_newest,
    of_unwritable,
    state_of_file,
    state_of_folder,
    state_of_safetensors,
)
from holdfast.model.checks import (
    ASKED,
    BOOT,
    LIGHT,
    MANUAL,
    ON_FAILURE,
    PASS,
    PROLOG,
    SKIP,
    WARN,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

ENTRIES_MAX = 10_000
FILES_MAX = 64
JSON_BYTES_MAX = 8 << 20
PROBE_BYTES = 4096
_SURE = {
    errno.EACCES: "permission_error",
    errno.EPERM: "permission_error",
    errno.EROFS: "filesystem_error",
    errno.ENOSPC: "disk_full",
    errno.EDQUOT: "disk_full",
    errno.ENOTDIR: "filesystem_error",
    errno.ENOENT: "filesystem_error",  # of a file system in which nothing can be made, such as /proc
}


def checkpoint(scene: Scene) -> Iterator[Seen]:
    asked = run_of(scene).asked
    folder = scene.folders.get("checkpoint") or _full(asked.checkpoint, scene)
    resume = _full(asked.resume, scene)
    if not folder and not resume:
        why = (
            "the command names no checkpoint folder on this node; give it with: holdfast check "
            "--checkpoint DIR"
        )
        yield Finding(status=SKIP, why=why)
        return
    if folder:
        yield from _written_to(folder, resume)
    if resume and os.path.normpath(resume) != os.path.normpath(folder or "/"):
        yield from _loaded(resume, asked.resume)


def _full(path: str, scene: Scene) -> str:
    return os.path.join(scene.cwd or "/", os.path.expanduser(path)) if path else ""


def _written_to(folder: str, resume: str) -> Iterator[Seen]:
    try:
        is_new = _try_to_write(folder)
    except OSError as error:
        category = _SURE.get(error.errno or 0, "filesystem_error")
        text = error.strerror or str(error)
        yield of_unwritable(folder, text, category, is_sure=error.errno in _SURE)
        return
    if is_new:
        yield Finding(status=PASS, measured=f"{folder} can be created", expected="writable", whence=ASKED)
        return
    yield _of_folder(folder, is_loaded=os.path.normpath(resume or "/") == os.path.normpath(folder))


def _try_to_write(folder: str) -> bool:
    """Writes a test file in the folder, or in its nearest existing parent.

    Returns True if the folder does not exist yet.

    Raises OSError if the test file cannot be written.
    """
    if not os.path.lexists(folder):
        parent = next((path for path in Path(folder).parents if path.exists()), Path("/"))
        if not parent.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{parent} is not a folder")
        _write_in(str(parent))
        return True
    if not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, "it is not a folder")
    _write_in(folder)
    return False


def _write_in(folder: str) -> None:
    """Writes and removes a test file in a folder. Raises OSError."""
    probe = os.path.join(folder, f".holdfast-{os.getpid()}")
    descriptor = os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, b"\0" * PROBE_BYTES)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(probe)


def _loaded(resume: str, written: str) -> Iterator[Seen]:
    """Checks the checkpoint that the command resumes from, unless it is in the folder for new checkpoints.

    The name of a model on a hub is not a path, and is not checked.
    """
    if os.path.isdir(resume):
        yield _of_folder(resume, is_loaded=True)
    elif os.path.isfile(resume):
        newest = Newest(layout=FILE, name=os.path.basename(resume))
        yield of_newest(os.path.dirname(resume), newest, file_defect(resume), is_loaded=True)
    elif written.startswith(("/", "./", "../", "~")):
        yield Finding(
            status=WARN,
            device=resume,
            measured="not found",
            expected="the checkpoint to resume from",
            whence=ASKED,
            why=f"the command resumes from {resume}, which does not exist",
            advice=Words(
                en="Correct the path, or start without this argument; the path must exist on every node.",
                zh="请修正路径或去掉该参数；每个节点都须可见该路径。",
            ),
            category="checkpoint_load_error",
        )


def _of_folder(folder: str, *, is_loaded: bool) -> Finding:
    try:
        newest = newest_in(folder)
        wrong = newest_defect(folder, newest) if newest is not None and newest.name else ""
    except OSError as error:
        return Finding(status=SKIP, why=f"{folder} cannot be read: {error.strerror or error}")
    return of_newest(folder, newest, wrong, is_loaded=is_loaded)


def newest_in(folder: str) -> Newest | None:
    """Returns the newest checkpoint of a folder; None without a known layout. Raises OSError."""
    entries = list(_entries(folder))
    trackers = {
        name: _text(os.path.join(folder, name)).decode(errors="replace")
        for name in (MEGATRON_TRACKER, DEEPSPEED_TRACKER)
        if any(entry.name == name and not entry.is_folder for entry in entries)
    }
    return newest_of(entries, trackers)


def _entries(folder: str) -> Iterator[Entry]:
    with os.scandir(folder) as found:
        for place, one in enumerate(found):
            if place >= ENTRIES_MAX:
                return
            with suppress(OSError):  # gone meanwhile
                state = one.stat()
                yield Entry(one.name, one.is_dir(), state.st_mtime, state.st_size)


def newest_defect(folder: str, newest: Newest) -> str:
    """Returns what is wrong with the newest checkpoint of a folder; empty if nothing is. Raises OSError."""
    path = os.path.join(folder, newest.name)
    if newest.layout == FILE:
        return file_defect(path)
    names = sorted(os.listdir(path))[:ENTRIES_MAX]
    texts = {
        name: _text(os.path.join(path, name))
        for name in names
        if name == "trainer_state.json" or name.endswith(".index.json")
    }
    if wrong := state_of_folder(newest.layout, names, texts):
        return wrong
    for file in _files(path):
        if wrong := file_defect(file):
            return f"{os.path.relpath(file, path)}: {wrong}"
    return ""


def _files(path: str) -> list[str]:
    """Returns the paths of tensor files in the folder and its subfolders, at most FILES_MAX."""
    found = []
    for top, folders, names in os.walk(path):
        if top.count(os.sep) > path.count(os.sep):
            folders.clear()
        found += [os.path.join(top, name) for name in sorted(names) if name.endswith(FILES)]
        if len(found) >= FILES_MAX:
            break
    return found[:FILES_MAX]


def file_defect(path: str) -> str:
    """Returns what is wrong with a checkpoint file, such as truncation; empty if nothing is.

    Raises OSError.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEAD_BYTES)
        file.seek(max(size - TAIL_BYTES, 0))
        wrong = state_of_file(path, size, head, file.read(TAIL_BYTES))
        if wrong or not path.endswith(".safetensors"):
            return wrong
        file.seek(HEAD_BYTES)
        return state_of_safetensors(file.read(min(int.from_bytes(head, "little"), HEADER_BYTES_MAX)), size)


def _text(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(JSON_BYTES_MAX)


CHECKS = (
    Check(
        Spec(
            name="env-checkpoint",
            area="env",
            what=Words(
                en="checkpoints can be written, and the newest checkpoint is complete",
                zh="检查点目录可写，且最新检查点完整",
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            timeout_s=10.0,
            quick=True,
            hang_advice=Words(
                en="The file system of the checkpoints does not respond: check its mount and servers.",
                zh="检查点所在文件系统无响应，请检查挂载与存储服务。",
            ),
        ),
        checkpoint,
    ),
)
