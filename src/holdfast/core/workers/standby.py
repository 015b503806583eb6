"""Has agents start the next attempt's processes ahead, and tracks which workers have them ready. Pure."""

from collections.abc import Mapping

from holdfast.core.workers.acts import Act, Send, Tell
from holdfast.core.workers.roster import Roster
from holdfast.model.events import FindingNoted
from holdfast.model.nodes.workers import AgentHello, PrepareStandby, StandbyState

STANDBY = "standby"  # kind of the finding that the next attempt's processes are ready


class Standbys:
    """The standby processes of all workers. `asked`: the attempt during which they were last requested."""

    def __init__(self) -> None:
        self.asked = 0
        self._ready: set[int] = set()  # workers whose standby processes are ready
        self._reported = 0  # the attempt last reported as ready
        self._asked_of: dict[str, str] = {}  # agent instance by node: standby processes end with their agent

    def ask(self, roster: Roster) -> list[Act]:
        """Asks the agents of all workers to start standby processes."""
        team = roster.team
        self.asked, self._ready = team.attempt, set()
        self._asked_of = {where: roster[where].instance for where in team.nodes.values()}
        nodes = {worker: where for worker, where in team.nodes.items() if not roster[where].lost}
        return begin(team.attempt + 1, nodes, roster)

    def joined(self, hello: AgentHello, roster: Roster) -> list[Act]:
        """Requests standby processes again from a new agent of a running worker, because they ended with the
        previous agent.
        """
        team, worker = roster.team, hello.worker
        is_new = self._asked_of.get(hello.node, hello.instance) != hello.instance
        if not is_new or worker is None or self.asked != team.attempt or team.nodes.get(worker) != hello.node:
            return []
        self._asked_of[hello.node] = hello.instance
        self._ready.discard(worker)
        return begin(team.attempt + 1, {worker: hello.node}, roster)

    def resumed(self, attempt: int) -> None:
        """Records that this attempt trained before the scheduler ended it, so that standbys start once
        workers are placed.
        """
        self.asked = attempt

    def begin(self, attempt: int, nodes: Mapping[int, str], roster: Roster) -> list[Act]:
        """Requests standby processes on newly placed nodes, where they start while old processes end and
        checks run.
        """
        return begin(attempt, nodes, roster) if self.asked == attempt - 1 > 0 else []

    def hear(self, node: str, report: StandbyState, roster: Roster, at_s: float) -> list[Act]:
        """Processes a report; returns, once per attempt, the finding that standby processes are ready in
        every worker.
        """
        team = roster.team
        if report.attempt != team.attempt + 1 or team.nodes.get(report.worker) != node:
            return []
        (self._ready.add if report.is_ready else self._ready.discard)(report.worker)
        if self._reported == report.attempt or not self._ready >= set(team.nodes):
            return []
        self._reported = report.attempt
        text = "the next attempt's processes are ready in all workers"
        return [Tell(FindingNoted(at_s=at_s, finding=STANDBY, text=text, attempt=team.attempt))]


def begin(attempt: int, nodes: Mapping[int, str], roster: Roster) -> list[Act]:
    """Returns the orders to start standby processes for the attempt on these nodes."""
    workers = len(roster.team.nodes)
    return [
        Send(
            where,
            roster.order_id(f"attempt-{attempt}/standby/{worker}/{where}/{roster[where].instance}"),
            PrepareStandby(attempt=attempt, worker=worker, workers=workers),
        )
        for worker, where in nodes.items()
    ]
