"""The nodes of a job as the worker_group knows them, and which of them workers are placed on. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from holdfast.core.nodes.watch import IN_CONTACT, Contact

# What stands between a node that was lost and its use. hold: its worker belongs to the attempt that still runs;
# stop: what it runs of an old attempt is being ended; check: it is looked at; refused: the check found it broken.
Return = Literal["", "hold", "stop", "check", "refused"]


class Node(Struct):
    """One node. `known`: the engine lists it. `attempt`, `worker`: what runs there as far as is known; 0, None: nothing.

    `lost`: the core was told so, and not yet that it is back; `with_job`: as all nodes of the job. `down`: the engine's word for why; "": it has none.
    `returns`: how often it has come back. `gone_s`: its agent is a new one and knows nothing of a worker that ran.
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
    aside: bool = (
        False  # the core keeps away from it for its loss alone: what it passes on its return gives it back
    )
    down: str = ""
    attempt: int = 0
    worker: int | None = None
    returning: Return = ""
    returns: int = 0
    asked_s: float = 0.0  # of `returning`: since when its answer is waited for
    gone_s: float | None = None

    @property
    def is_reachable(self) -> bool:
        """Its agent is connected and heard."""
        return self.joined and self.contact.silent_since_s is None

    @property
    def is_usable(self) -> bool:
        """A worker may be placed there."""
        return (
            self.known
            and self.is_reachable
            and not (self.lost or self.isolated or self.down or self.returning)
        )

    @property
    def may_become_usable(self) -> bool:
        """By waiting a little: it is expected, or its agent is away for the moment."""
        return self.known and not (self.lost or self.isolated or self.down)


def placed(workers: Sequence[int], former: Mapping[int, str], free: Sequence[str]) -> dict[int, str] | None:
    """A node for each worker, no node twice: its former one where that is free, else the first free one.

    None where there are too few: never fewer workers than asked for.
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
    """For people: the first few, and how many more."""
    all_ = sorted(nodes)
    more = f" and {len(all_) - most} more" if len(all_) > most else ""
    return ", ".join(all_[:most]) + more
