"""Starts an attempt in all its workers: ends old processes, agrees on a rendezvous, starts the workers, waits
for them. Pure.
"""

from holdfast.core.workers.acts import Act, Send, Tell
from holdfast.core.workers.meeting import MeetingPlace
from holdfast.core.workers.memory import Memory
from holdfast.core.workers.orders import Starting, meeting, starts
from holdfast.core.workers.roster import Roster
from holdfast.model.events import AttemptStarted, AttemptStartFailed
from holdfast.model.nodes.workers import FindPort, PortFound, StopWorker
from holdfast.model.orders import StartAttempt

NOT_STARTED = 125  # exit code reported for a worker that was never started


class AttemptStart:
    """The order to start an attempt that is in progress, if any.

    `name`: name of the rendezvous, a format string with a field for the attempt's number. `wait_s`: time limit in
    seconds for the agents to start their workers.
    """

    def __init__(self, roster: Roster, memory: Memory, name: str, wait_s: float) -> None:
        self._roster = roster
        self._memory = memory
        self._name = name
        self._wait_s = wait_s
        self._meeting = MeetingPlace(memory)
        self._starting: Starting | None = None

    @property
    def missing(self) -> frozenset[int]:
        """Returns the workers that have not reported their start."""
        return frozenset(self._starting.waits_for) if self._starting is not None else frozenset()

    def begin(self, order: StartAttempt, at_s: float) -> list[Act]:
        """Begins a start: orders the end of everything that still runs of other attempts.

        A repeated order is one start.
        """
        starting = self._starting
        if starting is None or starting.order.attempt != order.attempt:
            waits_for = {start.worker for start in order.workers} - self._roster.team.exited
            self._starting = starting = Starting(order, at_s, waits_for)
            for start in order.workers:
                node = self._roster[start.node]
                if (node.attempt, node.worker) == (order.attempt, start.worker):
                    waits_for.discard(start.worker)
        acts: list[Act] = []
        for node in self._roster.nodes.values():
            if node.attempt not in (0, order.attempt) and not node.lost and node.name not in starting.old:
                starting.old.add(node.name)
                stop = StopWorker(attempt=node.attempt, reason=f"attempt {order.attempt} is to start")
                order_id = self._roster.order_id(f"attempt-{order.attempt}/clear/{node.name}")
                acts.append(Send(node.name, order_id, stop))
        return acts

    def cancel(self) -> None:
        """Cancels the start of the attempt."""
        self._starting = None

    def give_up(self) -> None:
        """Marks the start of the attempt as failed; the failure is already reported to the decision rules (core/job)."""
        if self._starting is not None:
            self._starting.is_over = True

    def nothing_old_on(self, node: str) -> None:
        """Records that no process of an older attempt is left on this node, or that the node is lost."""
        if self._starting is not None:
            self._starting.old.discard(node)

    def runs(self, worker: int, attempt: int) -> None:
        """Records that a worker has started."""
        if self._starting is not None and self._starting.order.attempt == attempt:
            self._starting.waits_for.discard(worker)

    def port_found(self, node: str, report: PortFound, at_s: float) -> list[Act]:
        """Processes the report of a free port for the rendezvous."""
        starting = self._starting
        if starting is None or starting.order.attempt != report.attempt or starting.begun:
            return []
        if self._meeting.of(report.attempt, self._roster) is not None or node != _master(starting):
            return []
        if not 0 < report.port < 65536:
            return self._failed(starting, 0, "no free port was found on its node", at_s)
        meets = self._meeting.take(meeting(self._name, self._roster[node].address, report))
        return [Tell(meets.noted(at_s))]

    def turn(self, at_s: float) -> list[Act]:
        """Returns what to do next (core/workers/acts.py): end all old processes, then find a port, then start the
        workers, then wait until all of them run.
        """
        starting = self._starting
        if starting is None or starting.is_over:
            return []
        attempt = starting.order.attempt
        if not starting.waits_for:
            starting.is_over = True
            self._memory.started = attempt
            return [Tell(AttemptStarted(at_s=at_s, attempt=attempt))]
        is_late = at_s - starting.since_s > self._wait_s
        if starting.begun and not is_late:
            return []  # called for each report of thousands of workers: only the time limit remains
        lost = any(self._roster[start.node].lost for start in starting.order.workers)
        if lost or self._roster.team.stop_asked:
            return []  # the failure is reported, and the core ends the attempt
        if is_late:
            late = min(starting.waits_for)
            where = self._roster.team.nodes[late]
            reason = f"the agent of {where} has not started worker {late} in {self._wait_s:.0f} s"
            return self._failed(starting, late, reason, at_s)
        if starting.old or starting.begun or not self._roster[_master(starting)].address:
            return []
        meets = self._meeting.of(attempt, self._roster)
        if meets is None:
            return self._ask_for_port(starting)
        starting.begun = True
        return [
            Send(start.node, f"attempt-{attempt}/start/{start.worker}", starts(start, meets, starting.order))
            for start in starting.order.workers
            if start.worker in starting.waits_for
        ]

    def _ask_for_port(self, starting: Starting) -> list[Act]:
        if starting.port_asked:
            return []
        starting.port_asked = True
        attempt = starting.order.attempt
        order_id = self._roster.order_id(f"attempt-{attempt}/port/0")
        return [Send(_master(starting), order_id, FindPort(attempt=attempt, besides=self._meeting.port))]

    def _failed(self, starting: Starting, worker: int, reason: str, at_s: float) -> list[Act]:
        starting.is_over = True
        failed = AttemptStartFailed(
            at_s=at_s, attempt=starting.order.attempt, worker=worker, code=NOT_STARTED, reason=reason
        )
        return [Tell(failed)]


def _master(starting: Starting) -> str:
    """Returns the node of the first worker."""
    return min(starting.order.workers, key=lambda start: start.worker).node
