"""Has agents prepare the next attempt's processes, and tracks which workers have them ready. Pure."""

from collections.abc import Mapping

from holdfast.core.workers.acts import Act, Send, Tell
from holdfast.core.workers.roster import Roster
from holdfast.model.events import FindingNoted
from holdfast.model.nodes.workers import AgentHello, PrepareStandby, StandbyState

STANDBY = "standby"  # the kind of the finding that says that the next attempt's processes stand ready


class Standbys:
    """`asked`: the attempt during which standby processes were last requested."""

    def __init__(self) -> None:
        self.asked = 0
        self._ready: set[int] = set()  # the workers that have them ready
        self._told = 0  # the attempt that was last reported ready
        self._asked_of: dict[str, str] = {}  # the agent by node: its standby processes end with it

    def ask(self, roster: Roster) -> list[Act]:
        """Requests standby processes from all workers."""
        team = roster.team
        self.asked, self._ready = team.attempt, set()
        self._asked_of = {where: roster[where].instance for where in team.nodes.values()}
        nodes = {worker: where for worker, where in team.nodes.items() if not roster[where].lost}
        return begin(team.attempt + 1, nodes, roster)

    def joined(self, hello: AgentHello, roster: Roster) -> list[Act]:
        """Requests them again from a new agent that reattached to a worker: they ended with the previous agent."""
        team, worker = roster.team, hello.worker
        is_new = self._asked_of.get(hello.node, hello.instance) != hello.instance
        if not is_new or worker is None or self.asked != team.attempt or team.nodes.get(worker) != hello.node:
            return []
        self._asked_of[hello.node] = hello.instance
        self._ready.discard(worker)
        return begin(team.attempt + 1, {worker: hello.node}, roster)

    def resumed(self, attempt: int) -> None:
        """This attempt trained before the scheduler ended it: the next one's processes start once placed."""
        self.asked = attempt

    def begin(self, attempt: int, nodes: Mapping[int, str], roster: Roster) -> list[Act]:
        """Requests them on newly placed nodes too: they can start while old processes end and checks run."""
        return begin(attempt, nodes, roster) if self.asked == attempt - 1 > 0 else []

    def hear(self, node: str, report: StandbyState, roster: Roster, at_s: float) -> list[Act]:
        """Reports once for each attempt that the next one's processes are ready in every worker."""
        team = roster.team
        if report.attempt != team.attempt + 1 or team.nodes.get(report.worker) != node:
            return []
        (self._ready.add if report.is_ready else self._ready.discard)(report.worker)
        if self._told == report.attempt or not self._ready >= set(team.nodes):
            return []
        self._told = report.attempt
        text = "the next attempt's processes are ready in all workers"
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
