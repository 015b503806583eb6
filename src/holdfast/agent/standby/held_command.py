"""Decides whether a command other than torchrun can wait at its gate, before the first line of its script, and whether ranks
that another program starts would wait at theirs.

Two commands other than torchrun cannot run side by side: both would take the same port and write the same checkpoint. A command
whose own process is a Python that loads the shim is held before it does anything, so it can be started ahead. A shell
script cannot: its lines before the Python would run beside the training.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.agent.launch import FACTS, Started
from holdfast.agent.standby.rank_starts import RankStart, parent, rank_starts
from holdfast.observe.processes.stacks import shim_note

REACHED = "reached"  # in a worker's folder, written by the shim: pids of session leaders that have loaded it
PYTHON = re.compile(rb"python[0-9.]*")
FIRST_LINE_BYTES = 256


def is_python(program: str) -> bool:
    """Returns whether an executable file is a Python interpreter, by its name, or a script that one runs, by its first
    line.

    `program`: absolute path; empty: False.
    """
    if PYTHON.fullmatch(os.fsencode(os.path.basename(program))):
        return True
    try:
        with open(program, "rb") as file:
            words = file.read(FIRST_LINE_BYTES).partition(b"\n")[0].split()
    except OSError:
        return False
    if not words or not words[0].startswith(b"#!"):
        return False
    names = [os.path.basename(word) for word in (words[0][2:], *words[1:]) if word]
    interpreter = names[1] if names[:1] == [b"env"] and len(names) > 1 else b"".join(names[:1])
    return PYTHON.fullmatch(interpreter) is not None


def is_reached(folder: Path) -> bool:
    """Returns whether the shim has been loaded by the command itself, not only by processes that it has started.

    `folder`: of a worker whose command runs or has run.
    """
    pid = command_pid(folder)
    try:
        return bool(pid) and str(pid) in (folder / REACHED).read_text().split()
    except (OSError, UnicodeDecodeError):
        return False


def are_reached(folder: Path, ranks: Mapping[int, int]) -> bool:
    """Returns whether the shim has been loaded by the process of each of these ranks, which is there from its start.

    `ranks`: pids by number. False for none. A rank that a shell script has started is not: its lines before the Python
    would not wait.
    """
    notes = {rank: shim_note(folder, rank) for rank in ranks}
    return bool(ranks) and all(note is not None and note.pid == ranks[rank] for rank, note in notes.items())


def command_pid(folder: Path) -> int:
    """Returns the process id of a worker's command, from the first message of its reaper; 0 if there is none yet."""
    try:
        with (folder / FACTS).open("rb") as file:
            return msgspec.json.decode(file.readline(), type=Started).pid
    except (OSError, msgspec.MsgspecError):
        return 0


def own_rank_starts(folder: Path, pids: Sequence[int]) -> tuple[RankStart, ...]:
    """Returns how the command itself has started these ranks; empty if it has not started each of them.

    A launcher that is held starts them ahead only in that case: another process would start its own.
    """
    command = command_pid(folder)
    if not command or not pids or any(parent(pid) != command for pid in pids):
        return ()
    return rank_starts(pids)
