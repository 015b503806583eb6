"""Watches folders for checkpoints, by the kernel's inotify.

source: inotify(7), <sys/inotify.h>. Changes by other machines of a shared file system are not reported, so each node
sees what its own ranks write.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from contextlib import suppress

from holdfast.core.checkpoints import names
from holdfast.core.checkpoints.saves import Change, Kind, placed

CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x8, 0x40, 0x80, 0x100, 0x200
DELETE_SELF, OVERFLOW, IGNORED, IS_FOLDER, ONLY_FOLDER = 0x400, 0x4000, 0x8000, 0x4000_0000, 0x0100_0000
_KINDS: dict[int, Kind] = {
    CREATE: "created",
    CLOSE_WRITE: "written",
    MOVED_TO: "renamed",
    MOVED_FROM: "gone",
    DELETE: "gone",
}
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16
DEPTH_MAX = 4
WATCHES_MAX = 512
ENTRIES_MAX = 2_000
_NEVER = ("/dev", "/proc", "/sys")


class Watches:
    """Watched folders. `left_out`: folders whose content is no training's, such as the state folder. `since_ns`: files
    that were written later than this are reported, too, if they are older than their watch; nanoseconds since the epoch.
    None: they are not, because another node may have written them.

    raises: OSError, if the kernel has no inotify or no instance is left
    """

    def __init__(self, left_out: tuple[str, ...], since_ns: int | None) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1 failed")
        self._left_out = tuple(map(os.path.realpath, left_out))
        self._since_ns = since_ns
        self._older: list[tuple[int, str, str, str]] = []  # time, root, folder, name: written before
        self._roots: dict[int, str] = {}
        self._paths: dict[int, str] = {}
        self._moved: dict[int, str] = {}
        self.why_not = ""  # why a folder is not watched

    def fileno(self) -> int:
        return int(self._fd)

    def add(self, root: str, *, is_named: bool) -> None:
        """Watches a folder in which checkpoints are saved, and folders in it. Does nothing if it is not there; can be
        called again, for folders that are new or are written to now.

        `is_named`: by the command, so that all folders in it are watched; else those that are written to since
        `since_ns`, and those whose name says that they are for checkpoints.
        """
        root = os.path.realpath(root)
        if not os.path.isdir(root) or self._is_left_out(root):
            return
        watched = set(self._paths.values())
        since_ns = 0 if is_named else self._since_ns
        for path in (root, *_folders(root, DEPTH_MAX, since_ns)):
            if path not in watched and self._add(root, path):
                self._note_older(root, path)

    def _note_older(self, root: str, folder: str) -> None:
        if self._since_ns is None:
            return
        with suppress(OSError), os.scandir(folder) as entries:
            for place, entry in enumerate(entries):
                if place >= ENTRIES_MAX:
                    return
                if placed(root, folder, entry.name) is None or not entry.is_file(follow_symlinks=False):
                    continue
                if (changed_ns := entry.stat().st_mtime_ns) >= self._since_ns:
                    self._older.append((changed_ns, root, folder, entry.name))

    def _is_left_out(self, path: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in (*_NEVER, *self._left_out))

    def _add(self, root: str, path: str) -> bool:
        if len(self._paths) >= WATCHES_MAX or self._is_left_out(path):
            return False
        mask = CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE | DELETE_SELF | ONLY_FOLDER
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(path), mask)
        if number < 0:
            code = ctypes.get_errno()
            if code in (errno.ENOSPC, errno.EACCES):
                self.why_not = f"{path} cannot be watched: {os.strerror(code)}"
            return False
        self._roots[number], self._paths[number] = root, path
        return True

    def read(self, at_s: float) -> list[Change]:
        """Returns what has happened since the last call. Never blocks."""
        found = [
            Change(kind="written", root=root, folder=folder, name=name, at_s=at_s)
            for _, root, folder, name in sorted(self._older)
        ]
        self._older.clear()
        while True:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                return found
            for number, mask, cookie, name in _events(data):
                found += self._changes(number, mask, cookie, name, at_s)

    def _changes(self, number: int, mask: int, cookie: int, name: str, at_s: float) -> Iterator[Change]:
        folder, root = self._paths.get(number), self._roots.get(number)
        if mask & IGNORED:
            self._paths.pop(number, None)
            self._roots.pop(number, None)
        if folder is None or root is None or not name:
            return
        kind = next((kind for bit, kind in _KINDS.items() if mask & bit), None)
        if kind is None:
            return
        is_folder = bool(mask & IS_FOLDER)
        path = os.path.join(folder, name)
        if not is_folder and kind == "created":
            with suppress(OSError):
                state = os.lstat(path)
                if state.st_mode & 0o170000 == 0o120000:
                    return  # a link is never closed; it is read with what it points to
                if state.st_nlink > 1:
                    kind = "renamed"  # a file with another name, complete as it is
        before = self._moved.pop(cookie, "") if kind == "renamed" else ""
        if mask & MOVED_FROM:
            self._moved = {cookie: path}  # the next event is where it was moved to
        yield Change(
            kind=kind, root=root, folder=folder, name=name, is_folder=is_folder, before=before, at_s=at_s
        )
        if is_folder and kind in ("created", "renamed"):
            yield from self._new_folder(root, path, at_s, is_whole=kind == "renamed")

    def _new_folder(self, root: str, path: str, at_s: float, *, is_whole: bool) -> Iterator[Change]:
        """Watches a new folder, and reports what was written in it before it was watched."""
        if path[len(root) :].count("/") > DEPTH_MAX or os.path.basename(path) == "__pycache__":
            return
        if not self._add(root, path):
            return
        with suppress(OSError), os.scandir(path) as entries:
            for place, entry in enumerate(entries):
                if place >= ENTRIES_MAX:
                    return
                if entry.is_dir(follow_symlinks=False):
                    yield from self._new_folder(root, entry.path, at_s, is_whole=is_whole)
                elif not is_whole and entry.is_file(follow_symlinks=False):
                    yield Change(kind="written", root=root, folder=path, name=entry.name, at_s=at_s)

    def close(self) -> None:
        os.close(self._fd)


def _events(data: bytes) -> Iterator[tuple[int, int, int, str]]:
    place = 0
    while place + _EVENT.size <= len(data):
        number, mask, cookie, length = _EVENT.unpack_from(data, place)
        place += _EVENT.size
        yield number, mask, cookie, os.fsdecode(data[place : place + length].rstrip(b"\0"))
        place += length


def _folders(root: str, depth: int, since_ns: int | None) -> Iterator[str]:
    """Yields the folders below a folder that were changed since then, or are likely ones. Not hidden ones."""
    with suppress(OSError), os.scandir(root) as entries:
        for place, entry in enumerate(entries):
            if place >= ENTRIES_MAX:
                return
            if entry.name[0] == "." or not entry.is_dir(follow_symlinks=False):
                continue
            changed_ns = entry.stat(follow_symlinks=False).st_mtime_ns
            if names.is_likely_folder(entry.name) or (since_ns is not None and changed_ns >= since_ns):
                yield entry.path
                if depth > 1:
                    yield from _folders(entry.path, depth - 1, since_ns)
