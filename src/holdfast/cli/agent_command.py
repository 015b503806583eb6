"""`holdfast agent`: one node's end of a job on many; started by whoever runs the controller, seldom by hand."""

import os
import sys

import typer

from holdfast.cli.agent_place import AgentRefused, agent_place
from holdfast.cli.agent_wheel import run_agent

REFUSED = 2
app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def agent() -> None:
    """Watches over one node of a job: starts what the job's controller says, and tells it what becomes of it."""
    try:
        place = agent_place(os.environ)
    except AgentRefused as error:
        sys.stderr.write(f"holdfast agent: {error}\n")
        raise typer.Exit(REFUSED) from error
    raise typer.Exit(run_agent(place, os.environ))
