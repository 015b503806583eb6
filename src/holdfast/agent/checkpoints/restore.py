"""Compares the disk's checkpoint with its copy in memory before an attempt starts, and writes again what is damaged or gone.

`python -m holdfast.agent.checkpoints.restore OWNER SHM`. It waits for the word `go`, a line, so that it is ready when the
failed attempt has ended. Output: results, one a line; the last one is final. A file is written beside its place, checked,
and renamed; a damaged one keeps its content as `.NAME.damaged-N`. Nothing on the disk is ever deleted.
"""

import errno
import os
import signal
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.agent.checkpoints.content import (
    CHUNK_BYTES,
    crc_of,
    defect,
    defect_in,
    files_below,
    names_nothing,
)
from holdfast.agent.checkpoints.messages import Result
from holdfast.agent.checkpoints.store import SHM, Manifest, Owner, Store
from holdfast.core.checkpoints.judge import Found, Kept, lacking, plan
from holdfast.core.checkpoints.names import is_file, is_folder

COMPARE_S = 10.0  # a disk that is slower is left to the training, which reads it as well
THREADS_MAX = 8
DAMAGED_MAX = 1_000
_OUT_OF_REACH = (errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EEXIST)


class Late(Exception):
    """Raised when the disk's files could not be read in time."""


def compared(store: Store, manifest: Manifest, tell: Callable[[Result], None]) -> Result:
    """Compares, restores what is to be restored, and returns the result. `tell`: receives what is being done."""
    begun_s = time.monotonic()
    base = Result(
        outcome="comparing",
        path=manifest.path,
        copy=store.copy_path(manifest),
        size_bytes=manifest.size_bytes,
    )
    tell(base)
    if why := _out_of_reach(manifest):
        return replace(base, outcome="gone", text=why)
    copies = store.files(manifest.number)
    try:
        found = _found(manifest, copies, begun_s + COMPARE_S)
        is_superseded, beside = _beside(manifest)
    except Late:
        return replace(base, outcome="slow", took_s=time.monotonic() - begun_s)
    except OSError as error:
        return replace(base, outcome="gone", text=str(error))
    made = plan(manifest.files, found, superseded=is_superseded)
    base = replace(base, missing=made.missing, damaged=made.damaged, beside=beside)
    if made.outcome != "restore":
        return replace(base, outcome=made.outcome, took_s=time.monotonic() - begun_s)
    tell(replace(base, outcome="restoring"))
    kept = tuple(one for one in manifest.files if one.name in made.files)
    result = _restored(base, manifest, kept, copies)
    if result.outcome == "restored":
        with suppress(OSError):
            store.publish(_as_restored(manifest, made.files))
    return replace(result, took_s=time.monotonic() - begun_s)


def _out_of_reach(manifest: Manifest) -> str:
    """Returns why nothing can be compared: the file system of the checkpoint is not mounted; empty if it is."""
    place = Path(manifest.folder)
    while True:
        try:
            device = os.stat(place).st_dev
            break
        except FileNotFoundError:
            if place == place.parent:
                return f"{manifest.folder} is not there"
            place = place.parent
        except OSError as error:
            return f"{place}: {error.strerror or error}"
    return "" if device == manifest.device else f"the file system of {manifest.folder} is not mounted"


def _found(manifest: Manifest, copies: Path, until_s: float) -> dict[str, Found | None]:
    """Reads all files of the checkpoint on the disk. Raises Late, OSError."""
    with ThreadPoolExecutor(min(THREADS_MAX, len(os.sched_getaffinity(0)))) as pool:
        looks = pool.map(lambda one: _one_found(manifest, one, copies, until_s), manifest.files)
        return dict(zip((one.name for one in manifest.files), looks, strict=True))


def _one_found(manifest: Manifest, one: Kept, copies: Path, until_s: float) -> Found | None:
    path = os.path.join(manifest.folder, one.name)
    try:
        state = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if time.monotonic() > until_s:
        raise Late
    found = Found(size=state.st_size, inode=state.st_ino, changed_ns=state.st_mtime_ns)
    if one.link or one.tracker:
        return replace(found, names_nothing=names_nothing(manifest.folder, one.name))
    if os.path.isdir(path):
        return replace(found, wrong="it is a folder")
    if state.st_size != one.size:
        return replace(found, wrong=defect(path))
    crc = crc_of(path, lambda: time.monotonic() < until_s)
    if crc is None:
        raise Late
    if crc == one.crc:
        return replace(found, crc=crc)
    says_itself = not defect_in(str(copies / one.name))  # some writers leave the checksums out
    return replace(found, crc=crc, wrong=defect_in(path) if says_itself else defect(path))


def _beside(manifest: Manifest) -> tuple[bool, str]:
    """Returns whether a newer complete checkpoint lies beside it, and of an incomplete one what is wrong. Raises OSError."""
    own = {one.name.split("/")[0] for one in manifest.files}
    saved_ns = max((one.changed_ns for one in manifest.files if not one.tracker), default=0)
    incomplete = ""
    try:
        with os.scandir(manifest.folder) as entries:
            others = [
                (entry.stat().st_mtime_ns, entry.name, entry.is_dir())
                for entry in entries
                if entry.name not in own
                and (is_folder(entry.name) if entry.is_dir() else is_file(entry.name))
            ]
    except (FileNotFoundError, NotADirectoryError):
        return False, ""
    for changed_ns, name, is_dir in sorted(others, reverse=True):
        if changed_ns <= saved_ns:
            break
        wrong = _defect_of(manifest, name, is_dir=is_dir)
        if not wrong:
            return True, ""
        incomplete = incomplete or f"{os.path.join(manifest.folder, name)}: {wrong}"
    return False, incomplete


def _defect_of(manifest: Manifest, name: str, *, is_dir: bool) -> str:
    """Returns what is wrong with a newer checkpoint; empty if it is complete. Raises OSError."""
    path = os.path.join(manifest.folder, name)
    if not is_dir:
        return defect(path)
    inner = files_below(manifest.folder, name)
    for one in inner:
        if not os.path.islink(os.path.join(manifest.folder, one)):
            if wrong := defect(os.path.join(manifest.folder, one)):
                return f"{os.path.relpath(one, name)}: {wrong}"
    if not inner:
        return "it is empty"
    lacks = lacking([one.name for one in manifest.files if not one.tracker], inner)
    return f"it has no {os.path.basename(lacks)}" if lacks and manifest.unit else ""


# Writing -------------------------------------------------------------------------------------------------


def _restored(base: Result, manifest: Manifest, kept: Sequence[Kept], copies: Path) -> Result:
    """Writes files again. A failure leaves what is on the disk as it is, but for the files that are done."""
    need = sum(one.size for one in kept)
    aside: list[str] = []
    try:
        os.makedirs(manifest.folder, exist_ok=True)
        space = os.statvfs(manifest.folder)
        if space.f_bavail * space.f_frsize < need:
            text = f"the disk of {manifest.folder} is full"
            return replace(base, outcome="failed", text=text)
        for one in sorted(kept, key=lambda one: one.tracker):  # what names the checkpoint comes last
            aside += _write(manifest.folder, one, copies / one.name)
    except OSError as error:
        outcome = "gone" if error.errno in _OUT_OF_REACH else "failed"
        return replace(base, outcome=outcome, text=str(error), kept=tuple(aside))
    return replace(base, outcome="restored", files=len(kept), size_bytes=need, kept=tuple(aside))


def _write(folder: str, one: Kept, copy: Path) -> list[str]:
    """Writes one file beside its place, and renames it. Returns where the damaged one lies now. Raises OSError."""
    path = Path(folder, one.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.holdfast-{os.getpid()}")
    try:
        if one.link:
            part.symlink_to(one.link)
        else:
            crc = _copy(copy, part)
            if crc != one.crc:
                raise OSError(errno.EIO, "the copy in memory is damaged as well", str(copy))
            os.chmod(part, one.mode)
            os.utime(part, ns=(one.changed_ns, one.changed_ns))
        aside = _set_aside(path)
        os.replace(part, path)
    finally:
        with suppress(OSError):
            part.unlink()
    return aside


def _copy(copy: Path, part: Path) -> int:
    crc, buffer = 0, bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    with copy.open("rb", buffering=0) as read, part.open("xb", buffering=0) as write:
        while count := read.readinto(buffer):
            crc = zlib.crc32(view[:count], crc)
            rest = view[:count]
            while rest:
                rest = rest[write.write(rest) :]
        os.fsync(write.fileno())
    return crc


def _set_aside(path: Path) -> list[str]:
    """Gives what lies at a path another name. Returns that name; nothing if nothing lies there. Raises OSError."""
    if not os.path.lexists(path):
        return []
    for number in range(1, DAMAGED_MAX):
        aside = path.with_name(f".{path.name}.damaged-{number}")
        if not os.path.lexists(aside):
            with suppress(FileNotFoundError):  # another node has just done so
                os.rename(path, aside)
            return [str(aside)]
    raise OSError(errno.EEXIST, f"{path} was damaged {DAMAGED_MAX} times before", str(path))


def _as_restored(manifest: Manifest, files: Sequence[str]) -> Manifest:
    """Returns the manifest with the new inodes, by which a later change is recognised."""
    kept = []
    for one in manifest.files:
        if one.name in files:
            state = os.lstat(os.path.join(manifest.folder, one.name))
            one = replace(one, inode=state.st_ino, changed_ns=state.st_mtime_ns)
        kept.append(one)
    return replace(manifest, files=tuple(kept))


def main(words: list[str]) -> int:
    """Waits for the word, compares, and prints results. Returns the exit code."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # what is half written is removed
    store = Store(msgspec.json.decode(words[0], type=Owner), words[1] if words[1:] else SHM)
    if not sys.stdin.readline():
        return 1
    use = store.in_use()
    manifest = store.newest() if use is not None else None
    if manifest is None:
        _tell(Result(outcome="none"))
        return 0
    _tell(compared(store, manifest, _tell))
    return 0


def _tell(result: Result) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
