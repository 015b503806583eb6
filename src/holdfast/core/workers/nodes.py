"""Describes the nodes of a job, and chooses nodes for workers. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from holdfast.core.nodes.watch import IN_CONTACT, Contact

# Why a returned node is not in use yet. hold: its worker belongs to the running attempt; stop: old processes
# are being ended; check: a check of it is running; refused: the check found it broken.
Return = Literal["", "hold", "stop", "check", "refused"]


class Node(Struct):
    """A node of a job, with its agent and what runs there.

    `known`: the engine lists it. `attempt`, `worker`: what runs there as far as known; 0 and None for
    nothing. `lost`: reported to the core as lost, and not as returned; `with_job`: lost with all nodes of the
    job. `down`: the reason why the engine reports it as down; empty if it does not. `returns`: number of its
    returns. `gone_s`: when a new agent there first reported that it does not know the earlier worker.
    """

    name: str
    known: bool = True
    address: str = ""
    instance: str = ""
    joined: bool = False
    contact: Contact = IN_CONTACT
    lost: bool = False
    lost_s: float = 0.0
    with_job: bool = False
    isolated: bool = False
    aside: bool = False  # the core avoids it only because it was lost: a passed check releases it
    down: str = ""
    attempt: int = 0
    worker: int | None = None
    returning: Return = ""
    returns: int = 0
    asked_s: float = 0.0  # when `returning` began to wait for an answer
    gone_s: float | None = None

    @property
    def is_reachable(self) -> bool:
        """Returns whether the node's agent is connected and not silent."""
        return self.joined and self.contact.silent_since_s is None

    @property
    def is_usable(self) -> bool:
        """Returns whether a worker may be placed on the node."""
        return (
            self.known
            and self.is_reachable
            and not (self.lost or self.isolated or self.down or self.returning)
        )

    @property
    def may_become_usable(self) -> bool:
        """Returns whether the node may become usable soon: it is expected to connect, or its agent is silent for the
        moment.
        """
        return self.known and not (self.lost or self.isolated or self.down)


def placed(workers: Sequence[int], former: Mapping[int, str], free: Sequence[str]) -> dict[int, str] | None:
    """Returns a different node for each worker: its former one if that is free, else the first free one.

    None if there are too few nodes.
    """
    left = list(dict.fromkeys(free))
    if len(left) < len(workers):
        return None
    found: dict[int, str] = {}
    for worker in workers:
        node = former.get(worker)
        if node in left:
            found[worker] = node
            left.remove(node)
    for worker in workers:
        if worker not in found:
            found[worker] = left.pop(0)
    return {worker: found[worker] for worker in workers}


def names(nodes: Iterable[str], most: int = 4) -> str:
    """Returns the first names in order, and the number of the others: "n0, n1, n2, n3 and 5 more"."""
    all_ = sorted(nodes)
    more = f" and {len(all_) - most} more" if len(all_) > most else ""
    return ", ".join(all_[:most]) + more
