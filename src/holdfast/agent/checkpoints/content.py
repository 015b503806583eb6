"""Reads the files of checkpoints: their checksums, what is visibly wrong with them, and which are open for writing."""

import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from holdfast.checks.env.checkpoint import file_defect
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.readers.own_cgroup import memory_limit
from holdfast.core.checkpoints import names
from holdfast.core.checkpoints.room import Room
from holdfast.core.checks.env.checkpoint import FILES as KNOWN_FORMATS
from holdfast.model.checks import Scene

CHUNK_BYTES = 4 << 20
FILES_MAX = 10_000
TRACKER_BYTES_MAX = 1 << 16


class TooManyFiles(ValueError):
    """Raised for a folder with more than FILES_MAX files."""


def crc_of(path: str, go_on: Callable[[], bool]) -> int | None:
    """Returns the CRC-32 of a file; None if `go_on` becomes False before its end. Raises OSError."""
    crc, buffer = 0, bytearray(CHUNK_BYTES)
    view = memoryview(buffer)
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc = zlib.crc32(view[:count], crc)
            if not go_on():
                return None
    return crc


def defect(path: str) -> str:
    """Returns what is visibly wrong with a checkpoint file, by its format; empty if nothing is. Raises OSError."""
    return file_defect(path) if path.endswith(KNOWN_FORMATS) else ""


def defect_in(path: str) -> str:
    """As `defect`, and reads all of a zip file, as torch.save writes it, against its own checksums. Raises OSError."""
    if wrong := defect(path):
        return wrong
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error):
        return ""  # another format, or one that says nothing of its content
    return f"the checksum of {bad} in it is wrong" if bad is not None else ""


def files_below(folder: str, unit: str) -> list[str]:
    """Returns the paths of a checkpoint's files and links, relative to `folder`. Raises TooManyFiles."""
    found: list[str] = []
    for top, folders, here in os.walk(os.path.join(folder, unit)):
        folders.sort()
        linked = [name for name in folders if os.path.islink(os.path.join(top, name))]
        for name in sorted((*here, *linked)):
            if name[0] != "." and names.is_unfinished(name):
                continue
            with suppress(OSError):
                mode = os.lstat(os.path.join(top, name)).st_mode
                if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                    found.append(os.path.relpath(os.path.join(top, name), folder))
        if len(found) > FILES_MAX:
            raise TooManyFiles(f"{os.path.join(folder, unit)} has more than {FILES_MAX} files")
    return found


def trackers_beside(folder: str, unit: str, files: Iterable[str]) -> list[str]:
    """Returns the names of files and links in `folder` that name this checkpoint."""
    own = {os.path.join(folder, name) for name in files} | ({os.path.join(folder, unit)} if unit else set())
    found = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                target = os.path.normpath(os.path.join(folder, _target(entry.path)))
                if target in own and entry.path not in own:
                    found.append(entry.name)
            elif names.is_tracker(entry.name) and entry.is_file():
                if 0 < entry.stat().st_size <= TRACKER_BYTES_MAX and entry.path not in own:
                    found.append(entry.name)
            if len(found) > FILES_MAX:
                break
    return sorted(found)


def _target(path: str) -> str:
    with suppress(OSError):
        return os.readlink(path)
    return ""


def names_nothing(folder: str, name: str) -> bool:
    """Returns whether a file or link beside a checkpoint names one that is not there."""
    path = os.path.join(folder, name)
    if os.path.islink(path):
        return not os.path.exists(path)
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(TRACKER_BYTES_MAX).strip()
    except (OSError, ValueError):
        return True
    if text.isascii() and text.isdigit():  # Megatron-LM
        return not os.path.exists(os.path.join(folder, f"iter_{int(text):07d}"))
    is_a_name = text and "\n" not in text and len(text) < 256 and names.is_folder(os.path.basename(text))
    return not text or bool(is_a_name) and not os.path.exists(os.path.join(folder, text))


def open_for_writing(pids: Iterable[int]) -> Iterator[str]:
    """Yields the paths of files of checkpoints that these processes have open for writing.

    source: proc_pid_fdinfo(5), flags in octal
    """
    for pid in pids:
        try:
            numbers = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for number in numbers:
            with suppress(OSError, ValueError, IndexError):
                path = os.readlink(f"/proc/{pid}/fd/{number}")
                if path[0] != "/" or not _may_be_checkpoint(path):
                    continue
                with open(f"/proc/{pid}/fdinfo/{number}", encoding="ascii") as file:
                    flags = next(line.split()[1] for line in file if line.startswith("flags:"))
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    yield path


def _may_be_checkpoint(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    parent = os.path.basename(folder)
    is_saved_aside = names.is_unfinished(name) and name[0] != "."
    return names.is_file(name) or is_saved_aside or names.is_folder(parent) or names.is_unfinished(parent)


def room(limit_bytes: int, shm: str) -> Room:
    """Reads how much memory is left on this node. Raises OSError."""
    space = os.statvfs(shm)
    memory = {}
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            name, _, rest = line.partition(":")
            memory[name] = int(rest.split()[0]) << 10
    cgroup = memory_limit(NodeFiles(Scene()))
    return Room(
        limit_bytes=limit_bytes,
        shm_bytes=space.f_blocks * space.f_frsize,
        shm_free_bytes=space.f_bavail * space.f_frsize,
        memory_bytes=memory["MemTotal"],
        available_bytes=memory.get("MemAvailable", memory["MemFree"]),
        cgroup_limit_bytes=cgroup.limit_bytes if cgroup is not None else None,
        cgroup_free_bytes=max(0, cgroup.limit_bytes - cgroup.used_bytes) if cgroup is not None else None,
    )
