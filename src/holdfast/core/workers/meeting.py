"""Stores the rendezvous (address, port and name at which ranks connect) of an attempt, from its start until the next
attempt. Pure.

The launcher of the first worker runs the store through which all launchers exchange their data. Standby ranks are
held before they connect to it, so the port is free until the start.
"""

from holdfast.core.workers.memory import Memory, Rendezvous
from holdfast.core.workers.roster import Roster


class MeetingPlace:
    """The rendezvous of the last attempt, chosen by this controller or an earlier one."""

    def __init__(self, memory: Memory) -> None:
        self._meets = memory.rendezvous
        # Without a recorded start, it is unknown which agents received this address.
        self._is_doubtful = self._meets is not None and self._meets.attempt > memory.started

    @property
    def port(self) -> int:
        """Returns the port of the rendezvous; 0 if none was chosen yet."""
        return 0 if self._meets is None else self._meets.port

    def take(self, meets: Rendezvous) -> Rendezvous:
        """Sets the address of a new rendezvous, and returns it."""
        self._meets, self._is_doubtful = meets, False
        return meets

    def of(self, attempt: int, roster: Roster) -> Rendezvous | None:
        """Returns the rendezvous of the attempt; None if one must be chosen, as there is none or the first
        worker has moved.
        """
        meets = self._meets
        if meets is None or meets.attempt != attempt:
            return None
        runs = any(node.attempt == attempt for node in roster.nodes.values())
        if self._is_doubtful and not runs:
            return None
        return meets if meets.address == roster[roster.team.nodes[0]].address else None
