"""Defines what the engine records about each agent, and about each query of a node."""

from msgspec import Struct

from holdfast.engines.slurm.agent_steps import AgentStep
from holdfast.engines.slurm.probe import Probe
from holdfast.parsers.slurm import SlurmNode


class Look(Struct):
    """A query to Slurm about a node. `wanted`: the controller requested this query.

    `code`: exit code of the node's job step, which has ended. `heard`: the query is over: Slurm has responded, or will not.
    """

    wanted: bool = False
    code: int | None = None
    node: SlurmNode | None = None
    heard: bool = False
    probe: Probe | None = None


class Agent(Struct):
    """The agent of a node. `step`: its job step; None if another controller started it.

    `lives`: whether it runs, as far as known. `sure_s`: when to verify that an agent started by another controller
    runs.
    """

    step: AgentStep | None = None
    lives: bool = False
    begun_s: float = 0.0
    wait_s: float = 0.0
    due_s: float | None = None
    sure_s: float = 0.0
