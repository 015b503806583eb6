"""Which workers are to have the next attempt's processes ready, and which have. Pure."""

from collections.abc import Mapping

from holdfast.core.workers.acts import Act, Send, Tell
from holdfast.core.workers.roster import Roster
from holdfast.model.events import FindingNoted
from holdfast.model.nodes.workers import AgentHello, PrepareStandby, StandbyState

STANDBY = "standby"  # the kind of the finding that says that the next attempt's processes stand ready


class Standbys:
    """`asked`: the attempt during which the next one's processes were asked for last."""

    def __init__(self) -> None:
        self.asked = 0
        self._ready: set[int] = set()  # the workers that have them ready
        self._told = 0  # of which attempt that was said
        self._asked_of: dict[str, str] = {}  # by node, the agent: what it has begun ends with it

    def ask(self, roster: Roster) -> list[Act]:
        """Of all workers: they train."""
        team = roster.team
        self.asked, self._ready = team.attempt, set()
        self._asked_of = {where: roster[where].instance for where in team.nodes.values()}
        nodes = {worker: where for worker, where in team.nodes.items() if not roster[where].lost}
        return begin(team.attempt + 1, nodes, roster)

    def joined(self, hello: AgentHello, roster: Roster) -> list[Act]:
        """An agent that was not asked has taken up a worker: what stood by beside it went with the one before."""
        team, worker = roster.team, hello.worker
        is_new = self._asked_of.get(hello.node, hello.instance) != hello.instance
        if not is_new or worker is None or self.asked != team.attempt or team.nodes.get(worker) != hello.node:
            return []
        self._asked_of[hello.node] = hello.instance
        self._ready.discard(worker)
        return begin(team.attempt + 1, {worker: hello.node}, roster)

    def resumed(self, attempt: int) -> None:
        """This attempt has trained, and the scheduler has ended all its processes: the next one's begin once placed."""
        self.asked = attempt

    def begin(self, attempt: int, nodes: Mapping[int, str], roster: Roster) -> list[Act]:
        """Also on a node that has just got a worker: until all old is gone and it is checked, it can have begun."""
        return begin(attempt, nodes, roster) if self.asked == attempt - 1 > 0 else []

    def hear(self, node: str, report: StandbyState, roster: Roster, at_s: float) -> list[Act]:
        """Said once of each attempt, when the next one's processes have been made ready in full, in every worker."""
        team = roster.team
        if report.attempt != team.attempt + 1 or team.nodes.get(report.worker) != node:
            return []
        (self._ready.add if report.is_ready else self._ready.discard)(report.worker)
        if self._told == report.attempt or not self._ready >= set(team.nodes):
            return []
        self._told = report.attempt
        text = "the next attempt's processes stand ready in all workers"
        return [Tell(FindingNoted(at_s=at_s, finding=STANDBY, text=text, attempt=team.attempt))]


def begin(attempt: int, nodes: Mapping[int, str], roster: Roster) -> list[Act]:
    workers = len(roster.team.nodes)
    return [
        Send(
            where,
            roster.order_id(f"attempt-{attempt}/standby/{worker}/{where}/{roster[where].instance}"),
            PrepareStandby(attempt=attempt, worker=worker, workers=workers),
        )
        for worker, where in nodes.items()
    ]
