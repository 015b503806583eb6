"""Keeps a standby controller on another node, which takes over if the first node and its controller are lost.

Under --no-kill Slurm keeps such a job, without its batch script, and nothing else would end it.
"""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from holdfast.engines.slurm.agent_steps import AgentStep
from holdfast.parsers.slurm import SlurmStep

STANDBY_NAME = "holdfast-deputy"
AGAIN_S = 10.0


class StandbyController:
    """Keeps a standby controller running, on the last remaining node other than the controller's own."""

    def __init__(
        self,
        words: Sequence[str],
        nodes: Sequence[str],
        here: str,
        start: Callable[[str, Sequence[str]], AgentStep],
    ) -> None:
        self._words, self._start = tuple(words), start
        self._nodes = [node for node in reversed(nodes) if node != here]
        self._node = ""
        self._step: AgentStep | None = None
        self._due_s: float | None = None

    def heard(self, steps: Sequence[SlurmStep], now_s: float) -> None:
        """Processes the job's steps as Slurm lists them."""
        if self._step is not None:
            return
        at = [node for step in steps if step.name == STANDBY_NAME for node in step.nodes]
        self._node = at[0] if at else ""
        if not at and self._due_s is None:
            self._due_s = now_s

    def turn(self, now_s: float, gone: Collection[str]) -> None:
        """Starts the standby controller if none runs. Raises OSError if srun cannot be started."""
        over = self._step is not None and self._step.code() is not None
        if self._node and (over or self._node in gone):
            if self._step is not None and not over:
                self._step.end()
            self._node, self._step, self._due_s = "", None, now_s + AGAIN_S
        if self._due_s is None or now_s < self._due_s or self._node:
            return
        node = next((node for node in self._nodes if node not in gone), None)
        self._due_s = now_s + AGAIN_S
        if node is not None:
            self._step = self._start(node, self._words)
            self._node, self._due_s = node, None

    @property
    def step(self) -> AgentStep | None:
        return self._step


def standby_log(folder: Path, node: str) -> Path:
    return folder / "nodes" / node / "deputy.log"
