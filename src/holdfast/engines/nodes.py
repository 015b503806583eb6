"""The interface of a multi-node engine: provides nodes, starts agents on them, reports their state.

Which worker runs where is not its matter: that is chosen among the agents that are there (core/workers/group.py).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from holdfast.model.nodes.workers import AnyNews

IN_USE = 4  # what an agent exits with where another one of the job has the node


class EngineRefused(Exception):
    """The engine cannot do at all what was asked of it. The text says what, and what would do."""


class JobPlace(Struct, frozen=True, kw_only=True):
    """What an agent needs to find its controller.

    `folder`: the job's; `controller.json` (where the controller listens) and `secret` (mode 600) are in it.
    `addresses`: where the controller listens, "host:port", for nodes that do not see the folder. `fingerprint`: of the
    certificate that it shows; empty: it speaks without TLS.
    """

    job: str
    folder: Path
    addresses: tuple[str, ...]
    secret_file: Path
    fingerprint: str = ""


class NodeEngine(Protocol):
    """Nothing here waits: answers and news come with `turn`, later. Every call does no harm when made twice.

    A sick scheduler is never a verdict on the job: what cannot be asked is an EngineNote, and is asked again.
    """

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the job, spares included, by the names that agents give themselves."""

    def listen(self, folder: Path) -> Sequence[str]:
        """The addresses of this machine at which nodes reach a controller of the job with this folder.

        Called once, before `begin`, which is then told at which ports it listens there. raises: EngineRefused
        """

    def begin(self, place: JobPlace) -> None:
        """Brings an agent up on every node; on those where one lives already, none. raises: EngineRefused"""

    def turn(self) -> Sequence[AnyNews]:
        """What is new; called ten times a second, never blocks."""

    def channels(self) -> list[int]:
        """Descriptors that are readable when `turn` has something to say; may be empty."""

    def agent_again(self, node: str) -> None:
        """The agent there is gone: start it again. It takes up what still runs on the node."""

    def ask(self, node: str) -> None:
        """How is this node? Answer: NodeAlive or NodeDown; none while the scheduler does not know."""

    def isolate(self, node: str, reason: str) -> None:
        """Answer: SetAside."""

    def more_nodes(self, workers: int, without: Sequence[str]) -> None:
        """Too few healthy nodes are left for the job's so many workers: get others, all of it elsewhere if need be.

        Answers: NodeReady for each that comes, EndAsked where the whole job is moved, or NoMoreNodes.
        """

    def signalled(self, number: int) -> bool:
        """The controller's process was told to end. Whether the engine can say why: EndAsked then follows within 3 s."""

    def is_to_end(self) -> bool:
        """Something of the job was told to end on its node. Whether the engine can say if that is the scheduler's doing:
        EndAsked or JobGoesOn then follows, within 3 s where the scheduler answers."""

    def end(self, code: int) -> None:
        """The job is over: no agent is left, and what the engine holds for the job is given back."""
