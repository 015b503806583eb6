"""Copies one checkpoint into memory, a piece at a time, with a checksum of each file."""

import os
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.checkpoints.content import CHUNK_BYTES, defect, defect_in, files_below, trackers_beside
from holdfast.agent.checkpoints.store import MANIFEST, Manifest, Store
from holdfast.core.checkpoints.judge import Kept
from holdfast.core.checkpoints.saves import Save

TOGETHER_NS = 30 * 10**9  # files of one folder that are written within this time are one checkpoint


class NotComplete(Exception):
    """Raised when a checkpoint is still being written, is gone again, or is visibly cut. The message says which."""


class Source(Struct, frozen=True, kw_only=True):
    """What is to be copied. `kept`: its files, without checksums; those of `before` that have not changed since keep
    theirs, and their copies are shared.
    """

    folder: str
    unit: str
    device: int
    kept: tuple[Kept, ...]
    before: Manifest | None

    @property
    def size_bytes(self) -> int:
        return sum(one.size for one in self.kept)

    @property
    def shared_bytes(self) -> int:
        return sum(one.size for one in self.kept if self.shared(one) is not None)

    def shared(self, one: Kept) -> Kept | None:
        """Returns the file of the last copy that has the same content; None if there is none."""
        if self.before is None or self.before.folder != self.folder or one.link or one.tracker:
            return None
        key = (one.name, one.size, one.inode, one.changed_ns)
        return next((old for old in self.before.files if _key(old) == key), None)


def _key(one: Kept) -> tuple[str, int, int, int]:
    return one.name, one.size, one.inode, one.changed_ns


def source_of(save: Save, before: Manifest | None, *, only_seen: bool = False) -> Source:
    """Lists the files of a save. `only_seen`: those alone that were seen being written here, because other nodes write
    to the same folder. Raises NotComplete, OSError, TooManyFiles."""
    folder = save.folder
    if save.unit:
        found = files_below(folder, save.unit)
        if only_seen:
            is_same = before is not None and (before.folder, before.unit) == (folder, save.unit)
            earlier = {one.name for one in before.files} if before is not None and is_same else set()
            found = [name for name in found if name in save.seen | earlier]
    else:
        found = sorted({*save.files, *_beside(folder, before)})
    own = [_kept(folder, name, is_renamed=save.is_renamed) for name in found]
    for one in own:
        path = os.path.join(folder, one.name)
        if not one.link and (wrong := defect(path) or _changed_in_place(one, folder, before)):
            raise NotComplete(f"{path}: {wrong}")
    if not any(one.size for one in own):
        raise NotComplete(f"{os.path.join(folder, save.unit)} has no content")
    trackers = [
        replace(_kept(folder, name, is_renamed=False), tracker=True)
        for name in trackers_beside(folder, save.unit, found)
    ]
    kept = (*own, *trackers)
    return Source(folder=folder, unit=save.unit, device=os.stat(folder).st_dev, kept=kept, before=before)


def _changed_in_place(one: Kept, folder: str, before: Manifest | None) -> str:
    """Returns a reason if a file that its writer renames into place has another content, but is the same file."""
    if before is None or before.folder != folder:
        return ""
    old = next((old for old in before.files if old.name == one.name), None)
    if old is None or not old.renamed or old.inode != one.inode or _key(old) == _key(one):
        return ""
    return "it was changed in place, though its writer renames it"


def _beside(folder: str, before: Manifest | None) -> list[str]:
    """Returns the files that were saved in the same folder a moment ago, and are still as they were copied."""
    if before is None or before.folder != folder or before.unit:
        return []
    if time.time_ns() - before.copied_ns > TOGETHER_NS:
        return []
    found = []
    for one in before.files:
        with suppress(OSError):
            state = os.lstat(os.path.join(folder, one.name))
            if not one.tracker and (state.st_ino, state.st_mtime_ns) == (one.inode, one.changed_ns):
                found.append(one.name)
    return found


def _kept(folder: str, name: str, *, is_renamed: bool) -> Kept:
    """Raises NotComplete for a file that is gone or cannot be read."""
    path = os.path.join(folder, name)
    try:
        state = os.lstat(path)
        link = os.readlink(path) if stat.S_ISLNK(state.st_mode) else ""
    except OSError as error:
        raise NotComplete(f"{path}: {error.strerror or error}") from error
    return Kept(
        name=name,
        size=0 if link else state.st_size,
        mode=stat.S_IMODE(state.st_mode),
        inode=state.st_ino,
        changed_ns=state.st_mtime_ns,
        renamed=is_renamed,
        link=link,
    )


def copied(source: Source, store: Store, number: int) -> Iterator[Manifest | None]:
    """Copies the files, and yields None after each piece; at last the manifest, which is not published yet.

    Raises NotComplete if a file changes meanwhile, and OSError if memory is full or a file cannot be read; what was copied
    is removed then, and also if the iterator is closed before its end.
    """
    files = store.files(number)
    begun_s = time.monotonic()
    is_whole = False
    try:
        files.mkdir(parents=True, mode=0o700)
        kept: list[Kept] = []
        for one in source.kept:
            target = files / one.name
            target.parent.mkdir(parents=True, exist_ok=True)
            yield from _one(source, one, target, store, kept)
            if wrong := _worse(source, kept[-1], store, target):
                raise NotComplete(f"{os.path.join(source.folder, one.name)}: {wrong}")
        is_whole = True
        yield Manifest(
            number=number,
            folder=source.folder,
            unit=source.unit,
            device=source.device,
            copied_ns=time.time_ns(),
            took_s=time.monotonic() - begun_s,
            files=tuple(kept),
        )
    finally:
        if not (is_whole and (files.parent / MANIFEST).exists()):
            shutil.rmtree(files.parent, ignore_errors=True)


def _one(source: Source, one: Kept, target: Path, store: Store, kept: list[Kept]) -> Iterator[None]:
    """Copies one file, and adds it to `kept` with its checksum."""
    if one.link:
        target.symlink_to(one.link)
        kept.append(one)
        return
    shared = source.shared(one)
    if shared is not None and source.before is not None:
        with suppress(OSError):  # dropped meanwhile: it is copied
            os.link(store.files(source.before.number) / one.name, target)
            kept.append(replace(one, crc=shared.crc))
            return
    path = os.path.join(source.folder, one.name)
    crc, done, buffer = 0, 0, bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0, opener=_no_link) as read, target.open("wb", buffering=0) as write:
        before = os.fstat(read.fileno())
        while count := read.readinto(buffer):
            crc = zlib.crc32(view[:count], crc)
            rest = view[:count]
            while rest:
                rest = rest[write.write(rest) :]
            done += count
            yield None
        after = os.fstat(read.fileno())
    is_same = (before.st_ino, before.st_size, before.st_mtime_ns) == (
        after.st_ino,
        after.st_size,
        after.st_mtime_ns,
    )
    if (
        not is_same
        or done != after.st_size
        or (not one.renamed and _stamp(after) != (one.size, one.changed_ns))
    ):
        raise NotComplete(f"{path} was written while it was copied")
    size, changed_ns = _stamp(after)
    kept.append(replace(one, crc=crc, size=size, inode=after.st_ino, changed_ns=changed_ns))


def _worse(source: Source, one: Kept, store: Store, copy: Path) -> str:
    """Returns what is wrong with a file that was not renamed into place, if the copy before shows nothing of the kind: a
    disk that changes a checkpoint must not change its copy as well. Some writers leave the checksums out.
    """
    before = source.before
    if before is None or before.folder != source.folder or one.renamed or one.tracker or one.link:
        return ""
    old = next((old for old in before.files if old.name == one.name and old.crc != one.crc), None)
    if old is None or not (wrong := defect_in(str(copy))):
        return ""
    with suppress(OSError):
        return "" if defect_in(str(store.files(before.number) / old.name)) else wrong
    return ""


def _stamp(state: os.stat_result) -> tuple[int, int]:
    return state.st_size, state.st_mtime_ns


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
