"""Reads the members of tar and zip archives as streams. Writes nothing: member names are only labels.

It has its own tar reader on top of the standard library's header parser, because that library loads any long
name or extended header into memory, whatever its size.
"""

import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from msgspec import Struct

from holdfast.observe.logs.streams import Meter, Reader, Unreadable, exactly

RECORD_BYTES = 512
HEADER_BYTES_MAX = 1 << 20  # of a long name or an extended header
SKIP_BYTES = 1 << 20
DIRECTORY_BYTES_MAX = (
    16 << 20
)  # of a zip's list of members, which zipfile keeps in memory: some 100,000 of them
NAME_CHARACTERS_MAX = 400
END_BYTES = 66_000  # a zip's last record is at most so far from its end
DAMAGE = (OSError, EOFError, ValueError, NotImplementedError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
TORCH_MEMBERS = ("/data.pkl", "/.data/serialization_id")  # a file of torch.save


class Member(Struct, frozen=True):
    """A member of an archive; it must be read before the next one.

    `why_not`: why it cannot be read, if `reader` is None.
    """

    name: str
    reader: Reader | None
    why_not: str = ""


class TarPart:
    """Reader of the bytes of one member of a tar archive."""

    def __init__(self, reader: Reader, size_bytes: int) -> None:
        self._reader = reader
        self.left_bytes = size_bytes

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes. Raises Unreadable if the archive is truncated."""
        data = self._reader.read(min(size, self.left_bytes)) if self.left_bytes else b""
        if self.left_bytes and not data:
            self.left_bytes = 0
            raise Unreadable("its archive is truncated; the existing part was read")
        self.left_bytes -= len(data)
        return data


class ZipPart:
    """Reader of the bytes of one member of a zip archive."""

    def __init__(self, opened: IO[bytes], meter: Meter) -> None:
        self._opened = opened
        self._meter = meter

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes. Raises Unreadable if the archive is damaged."""
        try:
            data = self._opened.read(size)
        except DAMAGE as error:
            raise Unreadable(f"it is damaged: {error}") from error
        self._meter.count(len(data))
        return data


def tar_members(reader: Reader, meter: Meter) -> Iterator[Member]:
    """Yields the files in a tar archive in order; folders and links are skipped. Raises Unreadable."""
    named = ""
    known_size: int | None = None
    while True:
        header = exactly(reader, RECORD_BYTES)
        if len(header) < RECORD_BYTES:
            if header:
                raise Unreadable("the archive is truncated in a header; the existing part was read")
            return
        if not header.strip(b"\0"):
            return
        info = _header(header)
        meter.count_member()
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
            records = _extended(_small(reader, info.size))
            named, known_size = records.get("path", named), _number(records.get("size"), known_size)
            continue
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XGLTYPE):
            text = _small(reader, info.size)
            if info.type == tarfile.GNUTYPE_LONGNAME:
                named = text.rstrip(b"\0").decode("utf-8", "replace")
            continue
        size_bytes = info.size if known_size is None else known_size
        part = TarPart(reader, size_bytes if _has_content(info) else 0)
        name = label(named or info.name)
        if info.type == tarfile.GNUTYPE_SPARSE:
            yield Member(
                name,
                None,
                (
                    "it is stored as a sparse file, which Holdfast cannot read inside an archive: unpack the "
                    "archive"
                ),
            )
        elif info.isreg():
            yield Member(name, part)
        while part.left_bytes:
            part.read(SKIP_BYTES)
        exactly(reader, -size_bytes % RECORD_BYTES if _has_content(info) else 0)
        named, known_size = "", None


def is_tar(head: bytes) -> bool:
    """Returns True if the first 512 bytes are those of a tar archive.

    source: POSIX ustar, "magic" at offset 257; GNU writes "ustar  " there.
    """
    return head[257:262] == b"ustar"


def zip_members(fd: int, size_bytes: int, meter: Meter) -> Iterator[Member]:
    """Yields the files in a zip archive. Raises Unreadable."""
    if _directory_bytes(fd, size_bytes) > DIRECTORY_BYTES_MAX:
        raise Unreadable("its list of members is too long: unpack it")
    meter.packed_bytes += size_bytes
    try:
        with open(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
            yield from _zip_members(archive, meter)
    except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
        raise Unreadable(f"it is damaged: {error}") from error


def label(name: str) -> str:
    """Returns the name of an archive member for display, without a leading "./" or "/".

    It is never used as a path.
    """
    clean = "".join(one if one.isprintable() else "?" for one in name)
    while clean.startswith(("./", "/")):
        clean = clean.removeprefix("./").removeprefix("/")
    return clean[:NAME_CHARACTERS_MAX] or "?"


def _zip_members(archive: zipfile.ZipFile, meter: Meter) -> Iterator[Member]:
    infos = archive.infolist()
    if any(info.filename.endswith(TORCH_MEMBERS) for info in infos):
        raise Unreadable("it is a checkpoint of PyTorch, not a log")
    for info in infos:
        meter.count_member()
        if info.is_dir():
            continue
        name = label(info.filename)
        try:
            opened = archive.open(info)
        except RuntimeError:  # raised by zipfile for a member that needs a password
            yield Member(name, None, "it is encrypted")
            continue
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            yield Member(name, None, f"it cannot be unpacked: {error}")
            continue
        with opened:
            yield Member(name, ZipPart(opened, meter))


def _directory_bytes(fd: int, size_bytes: int) -> int:
    """Returns the length of a zip archive's list of members. source: PKWARE APPNOTE.TXT, 4.3.14 and 4.3.16"""
    start = max(0, size_bytes - END_BYTES)
    end = os.pread(fd, END_BYTES, start)
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or len(end) < at + 22:
        raise Unreadable("it is damaged: the list of members is missing at its end")
    (listed,) = struct.unpack_from("<L", end, at + 12)
    if listed < 0xFFFFFFFF:
        return int(listed)
    at = end.rfind(b"PK\x06\x06", 0, at)
    if at < 0 or len(end) < at + 48:
        raise Unreadable("it is damaged: the list of members cannot be found")
    return int(struct.unpack_from("<Q", end, at + 40)[0])


def _header(header: bytes) -> tarfile.TarInfo:
    try:
        info = tarfile.TarInfo.frombuf(header, "utf-8", "replace")
    except (tarfile.HeaderError, ValueError) as error:
        raise Unreadable(f"the archive is damaged: {error}; what came before was read") from error
    if info.size < 0:
        raise Unreadable("the archive is damaged: a member has a negative size")
    return info


def _has_content(info: tarfile.TarInfo) -> bool:
    return not (info.islnk() or info.issym() or info.ischr() or info.isblk() or info.isdir() or info.isfifo())


def _small(reader: Reader, size_bytes: int) -> bytes:
    if size_bytes > HEADER_BYTES_MAX:
        raise Unreadable("the archive claims a name of more than 1 MiB: the rest was not read")
    text = exactly(reader, size_bytes)
    exactly(reader, -size_bytes % RECORD_BYTES)
    return text


def _extended(text: bytes) -> dict[str, str]:
    r"""Parses an extended tar header: {"path": "worker-0/a.log"} for b"22 path=worker-0/a.log\n".

    source: POSIX pax, extended header
    """
    records = {}
    while text:
        length, _, rest = text.partition(b" ")
        if not length.isdigit() or len(length) > 9 or not len(length) < int(length) <= len(text):
            break
        key, _, value = rest[: int(length) - len(length) - 2].partition(b"=")
        records[key.decode("utf-8", "replace")] = value.decode("utf-8", "replace")
        text = text[int(length) :]
    return records


def _number(text: str | None, otherwise: int | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else otherwise
