"""Keeps the next attempt's processes ready, so that a restart need not wait for imports.

A standby is the same command, started in the next attempt's folder and held at a gate before the
script's first line: the launcher has met its ranks, each rank has Python and the modules that the
first attempt was seen to import. It does nothing the script would do. Never becomes the attempt by
itself: it is released by `take`, or thrown away.
"""

import shutil
from collections.abc import Callable, Mapping
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

GATE = "gate"
IMPORTS = "imports"


class Standby:
    """One prepared attempt. `facts` keeps what its reaper told until somebody takes it over."""

    def __init__(
        self, number: int, spec: LaunchSpec, start: Callable[[LaunchSpec], Running] = launch
    ) -> None:
        self.number = number
        self.folder = spec.folder
        self.running = start(spec)
        self.facts: list[AnyFact] = []
        self.broken = False
        self.over = False  # nothing of it is left
        self._thrown_away = False

    def read(self) -> None:
        new = self.running.read()
        self.facts += new
        self.broken = self.broken or any(
            isinstance(fact, CommandGone | StartFailed | ReaperLost) for fact in new
        )
        self.over = self.over or any(isinstance(fact, StartFailed | ReaperLost | Stopped) for fact in new)

    def take(self, env: Mapping[str, str]) -> tuple[Running, list[AnyFact]]:
        """Opens the gate. `env`: what is known only now, the counters."""
        self.running.go(env)
        return self.running, self.facts

    def throw_away(self) -> None:
        if not self._thrown_away:
            self._thrown_away = True
            self.running.kill("the standby is not needed")

    def clear(self) -> None:
        """Removes what a standby that is over has left: it never was an attempt."""
        self.running.bye()
        shutil.rmtree(self.folder.parent, ignore_errors=True)


def gated(env: Mapping[str, str], folder: Path, imports: Path | None) -> dict[str, str]:
    """The environment that makes the ranks of a standby wait; `imports`: what they may import meanwhile."""
    held = dict(env) | {"HOLDFAST_GATE": str(folder / GATE)}
    if imports is not None:
        held["HOLDFAST_PRELOAD"] = str(imports)
    return held


def imports_to_repeat(folder: Path) -> Path | None:
    """The list of what rank 0 imported in that folder; None where importing early could change its meaning.

    A script that changes the environment before it imports torch (which reads some of it then) has torch
    imported by itself, at its own moment.
    """
    path = folder / IMPORTS
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    if not lines or any(line.startswith("env:") for line in lines):
        return None
    return path
