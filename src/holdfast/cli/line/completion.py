"""Provides the shell completion script, and its location for each shell.

Installing writes only files with Holdfast's own name into the home folder, and adds one line to the shell's
settings if the shell cannot find scripts otherwise.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import get_completion_class

ENV = "_HOLDFAST_COMPLETE"  # what the script asks by
SHELLS = ("bash", "zsh", "fish")


class UnknownShell(Exception):
    """Raised when there is no completion script for this shell."""


class _Home(NamedTuple):
    """Location of a shell's completion scripts.

    `line`: what the shell's settings file must contain to find the script.
    """

    script: str
    settings: str = ""
    line: str = ""


_HOMES = {
    "bash": _Home(".bash_completions/holdfast.sh", ".bashrc", "source ~/.bash_completions/holdfast.sh"),
    "zsh": _Home(".zfunc/_holdfast", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": _Home(".config/fish/completions/holdfast.fish"),
}


def script(shell: str, env: Mapping[str, str]) -> str:
    """Returns the completion script for a shell; an empty name means the user's shell.

    Raises UnknownShell.
    """
    kind = get_completion_class(_known(shell, env))
    assert kind is not None
    # The commands are asked for only later, by the script.
    return kind(click.Command("holdfast"), {}, "holdfast", ENV).source()


def install(shell: str, env: Mapping[str, str], home: Path) -> tuple[Path, ...]:
    """Installs the completion script for a shell, and returns the files written.

    Raises UnknownShell and OSError.
    """
    place = _HOMES[_known(shell, env)]
    path = home / place.script
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script(shell, env))
    if not place.settings:
        return (path,)
    settings = home / place.settings
    said = settings.read_text(errors="surrogateescape") if settings.exists() else ""
    if place.line in said.splitlines():
        return (path,)
    gap = "" if said.endswith("\n") or not said else "\n"
    with settings.open("a") as file:
        file.write(f"{gap}{place.line}\n")
    return path, settings


def _known(shell: str, env: Mapping[str, str]) -> str:
    name = shell or Path(env.get("SHELL", "")).name
    if name not in _HOMES:
        what = f"{name!r} is not one of {', '.join(SHELLS)}"
        raise UnknownShell(what if name else f"SHELL is not set: name one of {', '.join(SHELLS)}")
    return name
