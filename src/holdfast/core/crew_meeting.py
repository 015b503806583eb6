"""Where the workers of an attempt meet: kept until the next one, and for a standby only while that stands by. Pure.

The launcher of the first worker holds the store in which the others' launchers have told each other what they know. With
the first one's standby gone, those that are released would wait for one that has met them already.
"""

from holdfast.core.crew_memory import Memory, Rendezvous
from holdfast.core.crew_roster import Roster
from holdfast.model.nodes import StandbyState


class MeetingPlace:
    """The last one that was chosen, by this controller or one before. One that no attempt is known to have met at was
    made for a standby."""

    def __init__(self, memory: Memory) -> None:
        self._meets = memory.rendezvous
        self._for_standby = self._meets is not None and self._meets.attempt > memory.started
        self._ready = (0, "")  # which attempt's the first worker's agent has ready, and which agent that is

    @property
    def port(self) -> int:
        """0: there was none yet."""
        return 0 if self._meets is None else self._meets.port

    def take(self, meets: Rendezvous, *, for_standby: bool = False) -> Rendezvous:
        self._meets, self._for_standby = meets, for_standby
        return meets

    def stands_by(self, node: str, report: StandbyState, roster: Roster) -> None:
        """An agent says so at each change, and at each connection."""
        if report.worker != 0 or node != roster.team.nodes.get(0):
            return
        if report.is_ready:
            self._ready = (report.attempt, roster[node].instance)
        elif self._ready[0] == report.attempt:
            self._ready = (0, "")

    def of(self, attempt: int, roster: Roster) -> Rendezvous | None:
        """None: one is to be chosen, since there is none, the first worker has moved, or what stood by there is gone."""
        meets = self._meets
        if meets is None or meets.attempt != attempt:
            return None
        first = roster[roster.team.nodes[0]]
        runs = any(node.attempt == attempt for node in roster.nodes.values())
        if self._for_standby and not runs and self._ready != (attempt, first.instance):
            return None
        return meets if meets.address == first.address else None
