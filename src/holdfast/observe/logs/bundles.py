"""Writes and reads evidence bundles: one .tar.zst with all evidence about the end of an attempt, secrets
masked.

Everything is masked before it is written, because a bundle leaves the machine. The file is written under a
temporary name and renamed, so an existing bundle is complete. `tree` reads a bundle like any archive.
"""

import io
import os
import tarfile
from collections.abc import Iterable
from pathlib import Path

import zstandard
from msgspec import Struct

from holdfast.parsers.log_lines.secrets import masked

FAILURE = "failure.json"  # what is known of the ends of ranks; `holdfast diagnose` reads it again
HEAD_BYTES = 64 << 10
TAIL_BYTES = 512 << 10
AROUND_BYTES = 128 << 10  # on each side of a line that matters
BUNDLE_BYTES_MAX = 64 << 20  # before compression
LEVEL = 3
MEMBER_BYTES_MAX = 16 << 20
FIRST_MEMBERS = 8  # what is read back stands first
READ_BYTES = 1 << 20


class Member(Struct, frozen=True):
    """A file in a bundle. `name`: its path in the bundle.

    `content`: UTF-8 text; secrets are masked when it is written.
    """

    name: str
    content: bytes
    at_s: float = 0.0


def write_bundle(
    path: Path, members: Iterable[Member], at_s: float, *, bytes_max: int = BUNDLE_BYTES_MAX
) -> list[str]:
    """Writes a bundle, and returns the names of members that were left out because of the size limit.

    Raises OSError; no incomplete file remains then.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    left_out: list[str] = []
    total = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with (
            new.open("wb") as file,
            zstandard.ZstdCompressor(level=LEVEL).stream_writer(file, closefd=False) as stream,
            tarfile.open(fileobj=stream, mode="w|") as archive,
        ):
            for member in members:
                total += len(member.content)
                if total > bytes_max:
                    total -= len(member.content)
                    left_out.append(member.name)
                    continue
                _add(archive, member, at_s)
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return left_out


def read_member(path: Path, name: str, *, bytes_max: int = MEMBER_BYTES_MAX) -> bytes | None:
    """Returns one member of a bundle; None if the file is no bundle, has no such member, or the member is
    too long.
    """
    try:
        with (
            path.open("rb") as file,
            zstandard.ZstdDecompressor().stream_reader(file) as stream,
            tarfile.open(fileobj=stream, mode="r|") as archive,
        ):
            for number, member in enumerate(archive):
                if member.name == name and member.isreg() and member.size <= bytes_max:
                    found = archive.extractfile(member)
                    return found.read() if found is not None else None
                if number > FIRST_MEMBERS:
                    return None
    except (OSError, tarfile.TarError, zstandard.ZstdError, EOFError):
        return None
    return None


def excerpt(path: Path, offsets: Iterable[int] = ()) -> bytes:
    """Returns the beginning of a log, its end, and the text around the offsets; a line between parts states
    what is left out.

    Lines are whole unless one is longer than the limit. Empty if the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, 2)
            wanted = [(0, HEAD_BYTES), (size_bytes - TAIL_BYTES, size_bytes)]
            wanted += [(offset - AROUND_BYTES, offset + AROUND_BYTES) for offset in offsets]
            return _pieces(file, _merged(wanted, size_bytes), size_bytes)
    except OSError:
        return b""


def _merged(wanted: Iterable[tuple[int, int]], size_bytes: int) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted((max(0, begin), min(end, size_bytes)) for begin, end in wanted):
        if begin >= end:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _pieces(file: io.BufferedReader, spans: list[tuple[int, int]], size_bytes: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    for begin, end in spans:
        file.seek(begin)
        piece = file.read(end - begin)
        if begin > 0:  # a line that is cut off at its front says something else
            first_end = piece.find(b"\n") + 1
            begin, piece = begin + first_end, piece[first_end:]
        if begin > at:
            parts.append(b"[holdfast: %d bytes left out here]\n" % (begin - at))
        if end < size_bytes and b"\n" in piece:
            piece = piece[: piece.rfind(b"\n") + 1]
        parts.append(piece)
        at = begin + len(piece)
    return b"".join(parts)


def _add(archive: tarfile.TarFile, member: Member, at_s: float) -> None:
    content = masked(member.content.decode("utf-8", "backslashreplace")).encode()
    info = tarfile.TarInfo(member.name)
    info.size, info.mtime, info.mode = len(content), int(member.at_s or at_s), 0o644
    archive.addfile(info, io.BytesIO(content))
