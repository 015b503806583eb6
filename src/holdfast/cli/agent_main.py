"""Runs `holdfast agent` without arguments, as engines start it on every node, without importing the command line.

Importing the command line would take a third of the memory that an agent may use beside the training.
"""

import gc
import os
import sys
from collections.abc import Mapping

from holdfast.cli.line.standard_streams import fill_standard_streams
from holdfast.jobs.agent_place import AgentRefused, agent_place, is_given
from holdfast.supervise.agent import run_agent

REFUSED = 2


def main() -> None:
    gc.freeze()  # what is imported stays until the end: no collection looks at it
    gc.enable()
    fill_standard_streams()
    sys.exit(agent_of(os.environ))


def agent_of(env: Mapping[str, str]) -> int:
    """Runs the agent that the environment variables describe. Returns its exit code.

    Returns 2, with a message on stderr, if they describe no agent.
    """
    try:
        if not is_given(env):
            raise AgentRefused(
                "neither a command nor a controller is given: use srun holdfast agent -- COMMAND to "
                "supervise a command; holdfast run --nnodes N starts agents itself"
            )
        place = agent_place(env)
    except (AgentRefused, OSError) as error:
        sys.stderr.write(f"holdfast agent: {error}\n")
        return REFUSED
    return run_agent(place, env)
