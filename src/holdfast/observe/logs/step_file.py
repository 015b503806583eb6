"""Stores the current step of one worker in a small file beside its output, for `holdfast status`.

The journal stores findings permanently; this file contains the current state, is written once a second, and may be
lost.
"""

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.model.steps import StepFinding, StepNow

NAME = "steps.json"
NEW = f".{NAME}.new"
RECENT_MAX = 60
BYTES_MAX = 256 << 10  # one of ours has some KiB


class StepFile(Struct, frozen=True, kw_only=True):
    """Content of a worker's step file: its current step, recent step times and findings.

    `at_s`: when it was written, by the job's clock. `recent`: step times in seconds, oldest first.
    `findings`: current ones, oldest first.
    """

    at_s: float
    attempt: int
    now: StepNow
    framework: str | None = None
    recent: tuple[float, ...] = ()
    findings: tuple[StepFinding, ...] = ()
    batch: float | None = None
    batch_counts: str = ""
    sequence: int | None = None


class StepFileWriter:
    """Writer of a step file. It replaces the file atomically: a reader sees the old or the new one."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._new = folder / NEW
        self._written = b""

    def write(self, steps: StepFile) -> bool:
        """Writes the file, unless only `at_s` has changed since the last write.

        Returns False if it could not be written, as on a full disk.
        """
        content = msgspec.json.encode(msgspec.structs.replace(steps, at_s=0.0))
        if content == self._written:
            return True
        try:
            with self._new.open("wb") as file:
                file.write(msgspec.json.encode(steps))
            os.replace(self._new, self._path)
        except OSError:
            with suppress(OSError):
                self._new.unlink(missing_ok=True)
            return False
        self._written = content
        return True


def read(folder: Path) -> StepFile | None:
    """Returns the step file of the worker in this folder; None if there is no readable one."""
    try:
        with (folder / NAME).open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError:
        return None
    if len(content) > BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(content, type=StepFile)
    except msgspec.MsgspecError:
        return None
