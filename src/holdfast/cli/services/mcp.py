"""Implements `holdfast mcp`: runs an MCP server for AI agents over stdin and stdout. Only reads."""

import importlib
import os
from typing import Annotated

from holdfast.cli.line.flags import App, Exit, Option
from holdfast.cli.line.output import say
from holdfast.journal.jobdir import StateDir
from holdfast.settings.read import SettingsRefused, state_root

REFUSED = 2
EXTRA = "this command needs an optional dependency: pip install 'holdfast[mcp]'"

app = App()


@app.command()
def mcp(
    state_dir: Annotated[str | None, Option("--state-dir", metavar="DIR", help="Folder of all jobs.")] = None,
) -> None:
    """Runs an MCP server (stdio) for AI agents: why, evidence, compare, what-if."""
    try:
        root = state_root(state_dir, os.environ)
    except SettingsRefused as error:
        say(str(error))
        raise Exit(REFUSED) from error
    try:
        module = importlib.import_module("holdfast.mcp.server")
    except ModuleNotFoundError as error:
        say(f"{EXTRA} ({error})")
        raise Exit(REFUSED) from error
    module.serve(StateDir(root))
