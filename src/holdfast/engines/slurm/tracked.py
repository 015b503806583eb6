"""Holds what the engine knows of each agent, and of each query about a node."""

from msgspec import Struct

from holdfast.engines.slurm.agent_steps import AgentStep
from holdfast.engines.slurm.probe import Probe
from holdfast.parsers.slurm import SlurmNode


class Look(Struct):
    """A query about a node. `wanted`: the controller asked for it. `code`: exit code of its step, which has ended.

    `heard`: Slurm has answered, or will not.
    """

    wanted: bool = False
    code: int | None = None
    node: SlurmNode | None = None
    heard: bool = False
    probe: Probe | None = None


class Agent(Struct):
    """`step`: None if another controller started it. `lives`: as far as is known. `sure_s`: when to verify that such an
    agent lives."""

    step: AgentStep | None = None
    lives: bool = False
    begun_s: float = 0.0
    wait_s: float = 0.0
    due_s: float | None = None
    sure_s: float = 0.0
