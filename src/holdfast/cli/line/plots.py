"""Checks the flag --plot of commands that draw a chart."""

from collections.abc import Collection
from pathlib import Path

from holdfast.cli.line.flags import BadParameter

ENDINGS = (".html", ".png")


def check_plot(name: str | None, endings: Collection[str] = ENDINGS) -> None:
    """Raises BadParameter if no chart can be written under this file name. None: none was requested."""
    if name is not None and Path(name).suffix.lower() not in endings:
        raise BadParameter(f"the file name {name!r} must end in .html or .png", param_hint="--plot")
