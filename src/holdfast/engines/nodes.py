"""Defines the interface of a multi-node engine, which provides nodes, starts agents on them and reports their
state.

It does not place workers on nodes: core/workers/group.py does, among the connected agents.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from holdfast.model.nodes.workers import AnyNews

IN_USE = 4  # exit code of an agent that finds another agent of the job on its node


class EngineRefused(Exception):
    """Raised when the engine cannot do what was requested. The message says why, and what would work."""


class JobPlace(Struct, frozen=True, kw_only=True):
    """What an agent needs to find its controller.

    `folder`: the job's folder, with `controller.json` (the controller's address) and `secret` (mode 600).
    `addresses`: of the controller, "host:port", for nodes that do not see the folder. `fingerprint`: SHA-256 of the
    controller's TLS certificate; empty means no TLS.
    """

    job: str
    folder: Path
    addresses: tuple[str, ...]
    secret_file: Path
    fingerprint: str = ""


class FixedNodes:
    """Default methods for engines whose job folder outlives the controller, and whose nodes are not created again."""

    copied_files: tuple[str, ...] | None = None

    def remake(self, attempt: int) -> bool:
        return False

    def joined(self, node: str) -> None:
        """Does nothing: these engines do not probe agents."""


class NodeEngine(Protocol):
    """Interface of a multi-node engine. No method blocks: results and reports about nodes come later, from `turn`.

    Calls may be repeated. A scheduler that does not respond never fails the job: the engine reports an EngineNote and
    asks again.
    """

    port: int  # at which the controller listens; 0: any free one
    # Files of the job's folder that agents keep with copies of the journal; None: the folder outlives the controller.
    copied_files: tuple[str, ...] | None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Returns all nodes of the job, including spares, by their agents' names."""

    def listen(self, folder: Path) -> Sequence[str]:
        """Returns the addresses of this machine at which nodes reach the controller of the job with this
        folder.

        Called once, before `begin`, whose `place` then has the ports. Raises EngineRefused.
        """

    def begin(self, place: JobPlace) -> None:
        """Starts an agent on every node that does not run one yet. Raises EngineRefused."""

    def turn(self) -> Sequence[AnyNews]:
        """Returns the reports about nodes since the last call. Called ten times a second; never blocks."""

    def channels(self) -> list[int]:
        """Returns file descriptors that become readable when `turn` has reports; may be empty."""

    def agent_again(self, node: str) -> None:
        """Starts another agent on a node whose agent is gone. The new agent reattaches to processes that still run
        there.
        """

    def joined(self, node: str) -> None:
        """Takes note that the agent of a node has connected to the controller."""

    def ask(self, node: str) -> None:
        """Queries the state of a node.

        The answer comes as NodeAlive or NodeDown; there is none while the scheduler does not know.
        """

    def lost(self, node: str, reason: str) -> None:
        """Tells the engine that the controller counts the node as lost, and that its worker runs elsewhere.

        The engine may have the node replaced.
        """

    def returned(self, node: str) -> None:
        """Tells the engine that the controller uses a lost node again."""

    def isolate(self, node: str, reason: str) -> None:
        """Keeps the node from being used. The answer comes as SetAside."""

    def more_nodes(self, workers: int, without: Sequence[str]) -> None:
        """Requests nodes, because too few healthy ones are left for `workers`; may move the whole job to other nodes.

        The answer comes as NodeReady for each new node, EndAsked if the whole job moves, or NoMoreNodes.
        """

    def remake(self, attempt: int) -> bool:
        """Recreates all nodes if the engine does so when the whole job is rescheduled.

        `attempt`: the attempt that ends.

        Returns True if it does; EndAsked or NotRemade follows. False: workers are placed on the existing
        nodes.
        """

    def signalled(self, number: int) -> bool:
        """Handles a signal to the controller's process. Returns True if the engine can find the reason.

        EndAsked then follows within 3 s.
        """

    def is_to_end(self) -> bool:
        """Handles a signal to end that a process of the job received on its node.

        Returns True if the engine can find whether the scheduler sent it: EndAsked or JobGoesOn then follows,
        within 3 s if the scheduler responds.
        """

    def agents_end_with(self, code: int) -> int:
        """Returns the exit code with which agents end when the job ends with `code`, because a scheduler may restart
        agents with a code other than 0.
        """

    def end(self, code: int) -> None:
        """Cleans up after the job: ends remaining agents and releases what the engine holds for it."""
