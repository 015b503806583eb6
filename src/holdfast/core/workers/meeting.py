"""Where the workers of an attempt meet: chosen when it is to start, and kept until the next one. Pure.

The launcher of the first worker holds the store in which the others' launchers tell each other what they know. Those
that stand by are held before they meet anybody, so that the place is nobody's before the start.
"""

from holdfast.core.workers.memory import Memory, Rendezvous
from holdfast.core.workers.roster import Roster


class MeetingPlace:
    """The last one that was chosen, by this controller or one before."""

    def __init__(self, memory: Memory) -> None:
        self._meets = memory.rendezvous
        # Of one whose start nobody has told of it is not known who has been told to meet there.
        self._is_doubtful = self._meets is not None and self._meets.attempt > memory.started

    @property
    def port(self) -> int:
        """0: there was none yet."""
        return 0 if self._meets is None else self._meets.port

    def take(self, meets: Rendezvous) -> Rendezvous:
        self._meets, self._is_doubtful = meets, False
        return meets

    def of(self, attempt: int, roster: Roster) -> Rendezvous | None:
        """None: one is to be chosen, since there is none, or the first worker has moved."""
        meets = self._meets
        if meets is None or meets.attempt != attempt:
            return None
        runs = any(node.attempt == attempt for node in roster.nodes.values())
        if self._is_doubtful and not runs:
            return None
        return meets if meets.address == roster[roster.team.nodes[0]].address else None
