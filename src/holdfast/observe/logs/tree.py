"""Finds the logs under given paths, and opens them as streams of bytes, compressed and in archives or not.

It reads regular files only, follows no link twice, writes nothing, and reports the reason for everything it
skips.
"""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from holdfast.model.matches import Skipped
from holdfast.observe.logs.archives import Member, is_tar, label, tar_members, zip_members
from holdfast.observe.logs.streams import (
    FileReader,
    Limits,
    Meter,
    Packed,
    Reader,
    Replayed,
    Unreadable,
    Utf8,
    bunzip2,
    gunzip,
    unxz,
    unzstd,
)
from holdfast.parsers.flight.names import Kind, kind_of

Say: TypeAlias = Callable[[Skipped], None]
Identity: TypeAlias = tuple[int, int]  # device and inode

STDIN = "stdin"
HEAD_BYTES = 8 << 10
FILES_MAX = 200_000
CONTROLS_MAX = (
    0.05  # of the first bytes; text has none but tabs, line ends and colours, random bytes have 11 %
)
NULS_MAX = 0.3
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# Holdfast's own files beside a job's logs: those that only keep its works going, and those about the job: what they say
# of an error, the logs say too.
WORKS = re.compile(
    r"journal\.db(?:-.*)?|.*\.idx|reaper\.sock|rank-\d+\.(?:ready|sock)|gate(?:\..*)?|imports|preload|samples\.(?:new|old)"
)
OWN = re.compile(
    rf"{WORKS.pattern}|rank-\d+\.(?:error|shim|status)\.json|hang-stacks\.json|reaper\.jsonl|fault-tolerance\.log"
    r"|(?:failure|verdict|checks|settings|versions|environment|steps)\.json|\.steps\.json\.new|samples\.jsonl"
)
UNPACKERS = {b"\x1f\x8b": gunzip, b"BZh": bunzip2, b"\xfd7zXZ\x00": unxz, b"\x28\xb5\x2f\xfd": unzstd}
ZIP = b"PK\x03\x04"
CONTROLS = bytes({*range(1, 9), *range(14, 27), *range(28, 32), 127})
MAGICS = {
    b"7z\xbc\xaf\x27\x1c": "it is a 7z archive: unpack it first",
    b"Rar!": "it is a rar archive: unpack it first",
    b"\x04\x22\x4d\x18": "it is packed with lz4: unpack it first",
    b"LPKSHHRH": "it is a binary journal of systemd: export it with journalctl -o short-iso-precise --file",
    b"SQLite format 3": "it is a database",
    b"\x7fELF": "it is a program or a core dump",
    b"\x89PNG": "it is an image",
    b"\x93NUMPY": "it is a NumPy array",
    b"%PDF": "it is a PDF",
}


WHY_OWN = "it is a data file of Holdfast, not a log"


class LogFile(Struct, frozen=True):
    """A regular file that may be a log. `size_bytes`: its size when it was found."""

    path: Path
    name: str
    size_bytes: int


class Log(Struct, frozen=True):
    """One log as a stream; it must be read before the next one.

    `file`: set if the log is a plain file on disk, which can be read again. `kind`: set for a file that is no
    log but belongs to the job: a flight record, a list of process groups, a stack dump.
    """

    name: str
    stream: Reader
    file: FileReader | None = None
    kind: Kind | None = None


def natural(name: str) -> list[tuple[int, int, str]]:
    """Returns a sort key by which rank-10 follows rank-9."""
    parts = re.split(r"([0-9]{1,18})", name)
    return [(0, int(part), "") if at % 2 else (1, 0, part) for at, part in enumerate(parts)]


def find(paths: Sequence[Path], say: Say) -> list[LogFile]:
    """Returns all regular files under the paths, each once, in natural order of their names."""
    walk = _Walk(say)
    for path in paths:
        walk.add(path, "" if len(paths) == 1 else str(path))
    return walk.found


def logs(paths: Sequence[Path], skipped: list[Skipped]) -> Iterator[Log]:
    """Yields the logs under the paths, one after another. Unreadable files are added to `skipped`."""
    for file in find(paths, skipped.append):
        yield from opened(file, skipped.append)


def opened(file: LogFile, say: Say, limits: Limits | None = None) -> Iterator[Log]:
    """Yields the logs in one file: the file itself, or the members of an archive.

    Unreadable ones are reported to `say`.

    A returned reader may raise Unreadable; the caller then continues with the next log.
    """
    limits = limits or Limits()
    try:
        fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        say(Skipped(name=file.name, why=f"it cannot be opened: {error.strerror}", lost=True))
        return
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):  # it was one when it was found
            say(Skipped(name=file.name, why="it is no longer a regular file"))
            return
        yield from _of_file(file.name, fd, say, Meter(limits))
    except Unreadable as error:
        say(Skipped(name=file.name, why=str(error), lost=True))
    finally:
        os.close(fd)


def of_stdin(stdin: Reader, say: Say, limits: Limits | None = None) -> Iterator[Log]:
    """Yields the logs on stdin, which may be compressed or an archive."""
    meter = Meter(limits or Limits())
    try:
        yield from _logs(STDIN, _Pipe(stdin), say, meter, 0)
    except Unreadable as error:
        say(Skipped(name=STDIN, why=str(error), lost=True))


def readable_name(path: str) -> str:
    """Returns a path as printable text, also if its bytes are not valid UTF-8."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return "".join(one if one.isprintable() else "?" for one in text)


class _Pipe:
    """Reader of stdin."""

    def __init__(self, stdin: Reader) -> None:
        self._stdin = stdin

    def read(self, size: int, /) -> bytes:
        try:
            return self._stdin.read(size) or b""
        except (OSError, ValueError) as error:
            raise Unreadable(f"reading failed: {error}") from error


class _Walk:
    """Search through folders.

    Links to folders come last, so that a file found directly keeps its own name.
    """

    def __init__(self, say: Say) -> None:
        self.found: list[LogFile] = []
        self._say = say
        self._seen: dict[Identity, str] = {}
        self._is_full = False

    def add(self, path: Path, prefix: str) -> None:
        """Adds the files under a path. `prefix`: put before their names."""
        try:
            about = path.stat()
        except OSError as error:
            self._say(_unread(readable_name(str(path)), error, path))
            return
        if not stat.S_ISDIR(about.st_mode):
            self._add_file(path, readable_name(prefix or path.name), about)
            return
        links = [(path, prefix)]
        while links:  # a link may lead to further ones
            folders, links = links, []
            for folder, named in folders:
                found, more = self._folder(folder, named)
                links += more
                for one in sorted(found, key=lambda one: natural(one[1])):
                    self._add_file(*one)

    def _folder(
        self, top: Path, prefix: str
    ) -> tuple[list[tuple[Path, str, os.stat_result]], list[tuple[Path, str]]]:
        """Returns the files under a folder, and the links to other folders among them."""
        files: list[tuple[Path, str, os.stat_result]] = []
        links: list[tuple[Path, str]] = []
        folders = [(top, prefix)]
        while folders:
            folder, named = folders.pop()
            try:
                about = folder.stat()
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError as error:
                self._say(_unread(readable_name(named or str(folder)), error, folder))
                continue
            if self._is_known((about.st_dev, about.st_ino), named, folder):
                continue
            for entry in entries:
                name = f"{named}/{entry.name}" if named else entry.name
                self._sort_in(entry, name, files, folders, links)
        return files, links

    def _sort_in(
        self,
        entry: os.DirEntry[str],
        name: str,
        files: list[tuple[Path, str, os.stat_result]],
        folders: list[tuple[Path, str]],
        links: list[tuple[Path, str]],
    ) -> None:
        path = Path(entry.path)
        try:
            about = entry.stat()
        except OSError as error:
            self._say(_unread(readable_name(name), error, path))
            return
        if not stat.S_ISDIR(about.st_mode):
            files.append((path, readable_name(name), about))
        elif entry.is_symlink():
            links.append((path, name))
        else:
            folders.append((path, name))

    def _add_file(self, path: Path, name: str, about: os.stat_result) -> None:
        if OWN.fullmatch(path.name):
            self._say(Skipped(name=name, why=WHY_OWN))
        elif not stat.S_ISREG(about.st_mode):
            self._say(Skipped(name=name, why=f"it is {_kind(about.st_mode)}, not a file"))
        elif len(self.found) >= FILES_MAX:
            if not self._is_full:
                self._say(
                    Skipped(
                        name=name,
                        why=f"more than {FILES_MAX} files: this and the rest were not read",
                        lost=True,
                    )
                )
            self._is_full = True
        elif not self._is_known((about.st_dev, about.st_ino), name, path):
            self.found.append(LogFile(path, name, about.st_size))

    def _is_known(self, identity: Identity, name: str, path: Path) -> bool:
        before = self._seen.get(identity)
        if before is None:
            self._seen[identity] = name or str(path)
            return False
        same = f"it is the same file as {readable_name(before)}, through a link"
        self._say(Skipped(name=readable_name(name or str(path)), why=same))
        return True


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "something else")


def _unread(name: str, error: OSError, path: Path) -> Skipped:
    if error.errno == errno.ELOOP:
        return Skipped(name=name, why="it is a circular link")
    if isinstance(error, FileNotFoundError):
        if path.is_symlink():
            return Skipped(name=name, why="it is a broken link")
        return Skipped(name=name, why="it does not exist", lost=True)
    if isinstance(error, PermissionError):
        return Skipped(name=name, why="this user has no permission to read it", lost=True)
    return Skipped(name=name, why=f"it cannot be read: {error.strerror}", lost=True)


def _of_file(name: str, fd: int, say: Say, meter: Meter) -> Iterator[Log]:
    reader = FileReader(fd)
    first = reader.at  # a file that begins with a hole was emptied while its writer went on
    head = os.pread(fd, HEAD_BYTES, first)
    if head.startswith(ZIP):
        for member in zip_members(fd, reader.size_bytes, meter):
            yield from _member(name, member, say, meter, 1)
    elif _unpacker(head) or is_tar(head):
        yield from _logs(name, Packed(reader, meter), say, meter, 0)
    elif kind := kind_of(name, head):
        yield Log(name, reader, kind=kind)
    elif head.startswith(UTF16_MARKS):
        yield Log(name, Utf8(reader))
    elif why := _why_no_text(head):
        say(Skipped(name=name, why=why))
    else:
        reader.at += len(UTF8_MARK) if head.startswith(UTF8_MARK) else 0
        yield Log(name, reader, reader)
        if reader.is_shorter:
            say(
                Skipped(
                    name=name,
                    why=f"it was truncated to {reader.size_bytes} bytes while it was read",
                    lost=True,
                )
            )


def _logs(name: str, reader: Reader, say: Say, meter: Meter, depth: int) -> Iterator[Log]:
    """Yields the logs in a stream: the stream itself, what it decompresses to, or the members of an
    archive.
    """
    whole = Replayed(reader, HEAD_BYTES)
    head = whole.head
    unpacker = _unpacker(head)
    if (unpacker or is_tar(head)) and depth >= meter.limits.depth_max:
        raise Unreadable(f"it is compressed or archived more than {depth} times over")
    if unpacker:
        yield from _logs(name, unpacker(whole, meter), say, meter, depth + 1)
    elif is_tar(head):
        for member in tar_members(whole, meter):
            yield from _member(name, member, say, meter, depth + 1)
    elif head.startswith(ZIP):
        say(
            Skipped(
                name=name, why="it is a zip archive within another, or on stdin: unpack it first", lost=True
            )
        )
    elif kind := kind_of(name, head):
        yield Log(name, whole, kind=kind)
    elif head.startswith(UTF16_MARKS):
        yield Log(name, Utf8(whole))
    elif why := _why_no_text(head):
        say(Skipped(name=name, why=why))
    else:
        whole.skip(UTF8_MARK)
        yield Log(name, whole)


def _member(archive: str, member: Member, say: Say, meter: Meter, depth: int) -> Iterator[Log]:
    name = f"{archive}/{label(member.name)}"
    if member.reader is None:
        say(Skipped(name=name, why=member.why_not, lost=True))
    elif OWN.fullmatch(member.name.rpartition("/")[2]):
        say(Skipped(name=name, why=WHY_OWN))
    else:
        yield from _logs(name, member.reader, say, meter, depth)


def _unpacker(head: bytes) -> Callable[[Reader, Meter], Reader] | None:
    return next((unpack for magic, unpack in UNPACKERS.items() if head.startswith(magic)), None)


def _why_no_text(head: bytes) -> str:
    """Returns why these first bytes are not those of a text; empty if they may be."""
    for magic, why in MAGICS.items():
        if head.startswith(magic):
            return why
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "it is a pickle, which is not opened"
    if head[8:10] == b'{"' and b"\0" in head[:8]:
        return "it contains model weights (safetensors)"
    text = head.strip(
        b"\0"
    )  # a log that was emptied while its writer went on begins with zeros; a hole ends with them
    controls = len(text) - len(text.translate(None, CONTROLS))
    if text and (controls > CONTROLS_MAX * len(text) or text.count(0) > NULS_MAX * len(text)):
        return "it is a binary file"
    return ""
