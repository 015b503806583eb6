"""Implements `holdfast agent`: runs the agent of one node of a multi-node job. Slurm, Kubernetes or ssh starts it.

With a command it only supervises that command, without a controller: `srun holdfast agent -- torchrun …`.
"""

import os
import sys
from typing import Annotated

from msgspec.structs import replace

from holdfast.cli.agent_main import REFUSED, agent_of
from holdfast.cli.line.flags import App, Argument, Exit, Option
from holdfast.settings.read import SettingsRefused, settle
from holdfast.supervise.agent_alone import run_alone

DEFAULT = "default"  # as the source of a setting
app = App()


@app.command(context_settings={"allow_interspersed_args": False})
def agent(
    command: Annotated[list[str] | None, Argument("[-- COMMAND...]")] = None,
    job: Annotated[
        str | None, Option("--job", help="Name of the job; it must be the same in all workers.")
    ] = None,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
    quiet: Annotated[bool | None, Option("--quiet", help="Do not print the training's output.")] = None,
) -> None:
    """Runs the agent of one node for its controller; or supervises COMMAND without a controller."""
    if not command:
        raise Exit(agent_of(os.environ))
    try:
        settled = settle({"job": job, "state-dir": state_dir, "quiet": quiet}, os.environ)
        cwd = os.getcwd()
    except (SettingsRefused, OSError) as error:
        sys.stderr.write(f"holdfast agent: {error}\n")
        raise Exit(REFUSED) from error
    settings = replace(settled.run, command=tuple(command))
    if settled.sources["boot-check"] == DEFAULT:  # eight tasks of one node would check it eight times
        settings = replace(settings, policy=replace(settings.policy, boot_check="off"))
    raise Exit(run_alone(settings, os.environ, cwd))
