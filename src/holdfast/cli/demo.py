"""`holdfast demo`: its flags."""

import os
from typing import Annotated

from holdfast.cli.demo_run import run_demo
from holdfast.cli.line.flags import App, Exit, Option
from holdfast.cli.line.output import say
from holdfast.settings.read import SettingsRefused, state_root

REFUSED = 2

app = App()


@app.command()
def demo(
    keep: Annotated[bool, Option("--keep", help="Keep the demo's files.")] = False,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """A small training on this machine, a fault in it, and what Holdfast does about it. Needs no GPU."""
    try:
        root = state_root(state_dir, os.environ)
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error
    raise Exit(run_demo(keep, str(root)))
