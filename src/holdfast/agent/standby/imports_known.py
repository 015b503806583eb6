"""Stores what a job's ranks import and how a rank is started, for the zygote of the next attempt and of the
next run.

There is one file for each script and launcher, in the folder `imports` of the state folder.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

FOLDER = "imports"
LEARNED, OF_LAUNCHER = "imports.learned", "imports.launcher"  # in a worker's folder, written by the shim
BY_IMPORT = "set:"
LINES_MAX = 12_000
READ_BYTES_MAX = 1 << 20
FILES_MAX = 200


class LeftOut(Struct, frozen=True):
    """A module that is not imported ahead. `version`: of its package; with another version, the import is
    tried again.
    """

    version: str
    why: str


class Known(Struct, frozen=True):
    """What is known about the imports of a job's ranks.

    `argv`: command line of a rank. `own_env`: variables that a rank has in addition to its launcher's.
    `lines`: its imports, in the format of `shim/holdfast_shim_imports.py`. `launcher`: those of them that its launcher
    imports. `by_import`: variables that a rank has because an import of its launcher has added them; a zygote is started
    without them, so that its own imports add them. `not_by_import`: those of them that its imports did not add. `cost_s`: seconds of each import,
    as the last zygote measured them.
    """

    argv: tuple[str, ...] = ()
    own_env: dict[str, str] = {}
    lines: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    by_import: tuple[str, ...] = ()
    not_by_import: tuple[str, ...] = ()
    left_out: dict[str, LeftOut] = {}
    cost_s: dict[str, float] = {}


def file_of(state: Path, command: Sequence[str], cwd: str) -> Path:
    """Returns the file in which this command's imports are stored, by the scripts and modules that the
    command names. Its options do not matter.
    """
    words = [_program(word, before, cwd) for before, word in zip(("", *command), command, strict=False)]
    key = "\0".join(word for word in words if word)
    return state / FOLDER / f"{hashlib.sha256(os.fsencode(key)).hexdigest()[:20]}.json"


def _program(word: str, before: str, cwd: str) -> str:
    """A module, or a script's or program's path; empty for other words."""
    if before in ("-m", ""):
        return word
    path = os.path.join(cwd, word)
    is_program = os.path.isfile(path) and (word.endswith((".py", ".sh")) or os.access(path, os.X_OK))
    return path if is_program else ""


def load(path: Path) -> Known:
    """Reads the stored imports of a command; empty if nothing is stored, or if the file cannot be read."""
    try:
        return decoded(path.read_bytes())
    except OSError:
        return Known()


def decoded(content: bytes) -> Known:
    """Reads what `encoded` has written; empty if it cannot be read."""
    try:
        return msgspec.json.decode(content, type=Known)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return Known()


def encoded(known: Known) -> bytes:
    """Writes the imports of a command as JSON."""
    return msgspec.json.encode(known)


def store(path: Path, known: Known) -> None:
    """Replaces the stored imports of a command. If the state folder cannot be written, only the next run
    starts more slowly.
    """
    new = path.with_suffix(f".{secrets.token_hex(8)}.new")  # agents of other nodes may have the same pid
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        others = sorted(path.parent.glob("*.json"), key=lambda one: one.stat().st_mtime)
        for old in others[:-FILES_MAX]:
            old.unlink(missing_ok=True)
        new.write_bytes(encoded(known))
        new.replace(path)


def learned(folder: Path) -> tuple[str, ...]:
    """Returns what the ranks and the launcher of a worker have imported so far, the ranks' imports first.

    Variables that a launcher sets before its imports are for its ranks, which already have them when they
    start.
    """
    own = (line for line in _lines(folder / LEARNED) if not line.startswith(BY_IMPORT))
    return merged(own, learned_of_launcher(folder))


def learned_of_launcher(folder: Path) -> tuple[str, ...]:
    """Returns what the launcher of a worker has imported so far, without the variables that it set."""
    return tuple(line for line in _lines(folder / OF_LAUNCHER) if not line.startswith(("env:", BY_IMPORT)))


def learned_by_import(folder: Path) -> tuple[str, ...]:
    """Returns the variables that imports of a worker's ranks or launcher have added to the environment so far."""
    lines = [*_lines(folder / LEARNED), *_lines(folder / OF_LAUNCHER)]
    names = [line.removeprefix(BY_IMPORT) for line in lines if line.startswith(BY_IMPORT)]
    return tuple(dict.fromkeys(names))


def learned_bytes(folder: Path) -> int:
    """Returns the size of what the shim has written about the imports of a worker; 0: nothing yet."""
    size = 0
    for name in (LEARNED, OF_LAUNCHER):
        with suppress(OSError):
            size += (folder / name).stat().st_size
    return size


def merged(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """Returns the lines of both lists of imports in order, each line once.

    Marks of changes that the script made to its environment keep their place in the first list.
    """
    lines = dict.fromkeys(first)
    lines |= dict.fromkeys(line for line in second if line not in lines)
    return tuple(lines)[:LINES_MAX]


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(READ_BYTES_MAX)
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()
