"""Starts and holds the processes of the next attempt, so that a restart does not wait for imports.

A standby is the same command, started in the next attempt's folder and held at a gate before the first line
of the script: each rank has a Python process and, once allowed, the modules that an earlier attempt imported.
On one machine its launcher has already started the ranks. With several workers the launcher itself is held
before the rendezvous, with its imports done (`held`). No line of the script runs. `take` releases the
standby, which then is the attempt; otherwise it is discarded.
"""

import fcntl
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from holdfast.agent.launch import (
    AnyFact,
    CommandGone,
    LaunchSpec,
    ReaperLost,
    Running,
    StartFailed,
    Stopped,
    launch,
)
from holdfast.agent.standby.rank_starts import RANKS, RankStart, as_listing

GATE = "gate"
PRELOAD = "preload"
BESIDE = "beside"  # a gate that is open from the start
HURRY = "gate.hurry"
OWNER = "standby"  # in its folder: which standby made it
HELD, READY = "gate.held", "gate.ready"  # of its launcher: it waits, and has made its imports
IMPORTS = "imports"
DEVICE, TORCH = "device", "torch"  # in the list of imports


class Standby:
    """The prepared processes of one future attempt. `facts`: messages of their reaper, until the attempt
    takes over.

    `held`: how the ranks of a held launcher are started; empty: the launcher starts them itself; None: the
    launcher is not held, only the ranks are.

    raises: OSError, if the processes cannot be started
    """

    def __init__(
        self,
        number: int,
        spec: LaunchSpec,
        start: Callable[[LaunchSpec], Running] = launch,
        *,
        held: tuple[RankStart, ...] | None = None,
    ) -> None:
        self.number = number
        self.folder = spec.folder
        self.env = spec.env
        self._held_ranks = held
        self._name = secrets.token_hex(8)
        (self.folder / OWNER).write_text(self._name)
        if held is not None:
            (self.folder / RANKS).write_bytes(as_listing(held))
        (self.folder / HURRY).unlink(missing_ok=True)  # of a Holdfast that was killed
        self._hold: int | None = _held(self.folder / PRELOAD)
        try:
            self.running = start(spec)
        except OSError:
            self._let_go()
            raise
        self.facts: list[AnyFact] = []
        self.broken = False
        self.was_killed = False  # from outside: no fault of the command
        self.over = False  # nothing of it is left
        self.hurries = False  # see `hurry`
        self.thrown_away = False

    def read(self) -> None:
        new = self.running.read()
        self.facts += new
        self.broken = self.broken or any(
            isinstance(fact, CommandGone | StartFailed | ReaperLost) for fact in new
        )
        killed = any(isinstance(fact, CommandGone) and fact.code == -signal.SIGKILL for fact in new)
        self.was_killed = self.was_killed or (killed and not self.thrown_away)
        self.over = self.over or any(isinstance(fact, StartFailed | ReaperLost | Stopped) for fact in new)

    @property
    def is_in_place(self) -> bool:
        """Returns whether the folder still belongs to this standby; another node may have taken over the
        worker's number.
        """
        try:
            return (self.folder / OWNER).read_text() == self._name
        except (OSError, UnicodeDecodeError):
            return False

    @property
    def is_usable(self) -> bool:
        """Returns whether the command is running, and the launcher waits at the gate if it is to be held."""
        return bool(self.facts) and self.is_held and not self.broken and not self.thrown_away

    @property
    def is_held(self) -> bool:
        """Returns whether the launcher waits at the gate, or is not to be held."""
        return self._held_ranks is None or (self.folder / HELD).exists()

    @property
    def is_ready(self) -> bool:
        """Returns whether all preparation of the standby is done."""
        if not self.is_usable or not self.imports or self._held_ranks is None:
            return False
        ranks = [self.folder / f"rank-{start.env['RANK']}.ready" for start in self._held_ranks]
        return all(path.exists() for path in [self.folder / READY, *ranks])

    @property
    def imports(self) -> bool:
        """Returns whether the ranks of the standby have been allowed to import modules."""
        return self._hold is None

    def let_import(self, listing: Path | None) -> None:
        """Lets the ranks of the standby import the modules that the file `listing` names, one rank at a time.
        None: they import nothing ahead.
        """
        if self._hold is not None and listing is not None:
            with suppress(OSError):  # without the list they import nothing, and are a standby all the same
                os.write(self._hold, listing.read_bytes())
        self._let_go()

    def hurry(self, listing: Path | None) -> None:
        """Lets all ranks of the standby import at the same time, because no training runs any more."""
        if not self.hurries:
            self.hurries = True
            with suppress(OSError):
                (self.folder / HURRY).touch()
            self.let_import(listing)

    def take(self, env: Mapping[str, str]) -> tuple[Running, list[AnyFact]]:
        """Opens the gate of the standby. Returns its running command, and the reaper's messages so far.
        `env`: variables that became known only now.
        """
        self.running.go(env)
        self._let_go()
        return self.running, self.facts

    def throw_away(self) -> None:
        if not self.thrown_away:
            self.thrown_away = True
            self.running.kill("the standby is not needed")
            self._let_go()

    def _let_go(self) -> None:
        if self._hold is not None:
            os.close(self._hold)
            self._hold = None

    def clear(self) -> None:
        """Removes the files of an ended standby that was never released."""
        self.running.bye()
        if not self.is_in_place:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # other workers may have theirs beside it
            self.folder.parent.rmdir()


def gated(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Returns `env` plus the variables that make ranks that are started ahead wait for a file in `folder`."""
    return dict(env) | {"HOLDFAST_GATE": str(folder / GATE), "HOLDFAST_PRELOAD": str(folder / PRELOAD)}


def launcher_gated(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Returns `env` plus the variables that make the launcher of a standby and the ranks that it starts wait
    at the gate in `folder`.
    """
    return gated(env, folder) | {"HOLDFAST_RANKS": str(folder / RANKS)}


def command_gated(env: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Returns `env` plus the variables that make the command itself, which is a Python, wait at the gate in `folder`."""
    return launcher_gated(env, folder) | {"HOLDFAST_HOLDS": "command"}


def with_ranks_begun(
    env: Mapping[str, str], folder: Path, starts: tuple[RankStart, ...], listing: Path | None
) -> dict[str, str]:
    """Returns the environment of a launcher that does not wait, and whose ranks start in parallel with its
    own imports.

    The gate of the launcher is open before it starts. `listing`: file of modules that the ranks import until
    the launcher requests them.

    raises: OSError
    """
    folder.mkdir(parents=True, exist_ok=True)
    gate = folder / BESIDE
    (folder / RANKS).write_bytes(as_listing(starts))
    gate.touch()
    gate.with_name(f"{BESIDE}.hurry").touch()
    gate.with_name(f"{BESIDE}.go").write_text("{}")
    waits = {
        "HOLDFAST_GATE": str(gate),
        "HOLDFAST_PRELOAD": str(listing or ""),
        "HOLDFAST_RANKS": str(folder / RANKS),
    }
    return dict(env) | waits


def _held(path: Path) -> int:
    """Creates an empty, locked list of imports: its readers wait until it is filled and unlocked.

    Raises OSError.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def imports_to_repeat(folder: Path) -> Path | None:
    """Returns the list of modules that rank 0 imported and that can be imported early; None if empty."""
    path = folder / IMPORTS
    try:
        lines = path.read_text().splitlines()
        names = repeatable(lines)
        if names == lines:
            return path if names else None
        path = folder / f"{IMPORTS}.repeat"
        path.write_text("".join(f"{name}\n" for name in names))
    except (OSError, UnicodeDecodeError):
        return None
    return path if names else None


def repeatable(lines: Sequence[str]) -> list[str]:
    """Returns those lines of the list (holdfast_shim_imports.py) whose modules may be imported early without
    side effects.

    A library that is imported after the script changed the environment may read the change, so that library
    and all later ones are left to the script. If a library opened a GPU, only torch is imported.
    """
    names = list(takewhile(lambda line: not line.startswith("env:"), lines))
    if DEVICE in lines:
        names = [name for name in names if name.partition(".")[0] == TORCH]
    return names
