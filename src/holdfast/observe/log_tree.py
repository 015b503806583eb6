"""Finds the logs under what people name, and reads them as streams of bytes. First version."""

import gzip
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from holdfast.model.sightings import Skipped

SAMPLE_BYTES = 8192


class Log(Struct, frozen=True):
    """One log that can be read once, from its start."""

    name: str
    stream: BinaryIO


def logs(paths: Sequence[Path], skipped: list[Skipped]) -> Iterator[Log]:
    for path in paths:
        if not path.exists():
            skipped.append(Skipped(name=str(path), why="it is not there"))
        elif path.is_dir():
            for found in sorted(_files(path), key=lambda one: natural(str(one))):
                yield from _opened(found, str(found.relative_to(path)), skipped)
        else:
            yield from _opened(path, path.name, skipped)


def natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _files(folder: Path) -> Iterator[Path]:
    for where, _, names in os.walk(folder):
        for name in names:
            yield Path(where) / name


def _opened(path: Path, name: str, skipped: list[Skipped]) -> Iterator[Log]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            skipped.append(Skipped(name=name, why="it is not a file"))
            return
        with path.open("rb") as stream:
            head = stream.read(SAMPLE_BYTES)
            stream.seek(0)
            if head.startswith(b"\x1f\x8b"):
                yield Log(name, gzip.open(stream))  # type: ignore[arg-type]
            elif b"\0" in head:
                skipped.append(Skipped(name=name, why="it is binary"))
            else:
                yield Log(name, stream)
    except OSError as error:
        skipped.append(Skipped(name=name, why=f"it cannot be read: {error}"))
