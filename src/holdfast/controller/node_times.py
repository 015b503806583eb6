"""Converts times of nodes to the job's clock; wall clocks of nodes may differ by hours.

Converted times are never in the future, and the events of a job never go back in time.
"""

from collections.abc import Callable

from msgspec.structs import replace

from holdfast.model.events import AnyEvent
from holdfast.model.failures import ErrorRecord, Failure, RankExit
from holdfast.model.nodes.workers import RecordsReport, Sampled, WorkerEvidence
from holdfast.model.samples import Hang

SAME_S = 0.005  # smaller offsets count as zero: the link measures no better


class NodeTimes:
    """Converts times of nodes. `clock`: the job's clock.

    `offset_s`: returns a node's clock minus this machine's in seconds; None if unknown yet.
    """

    def __init__(self, clock: Callable[[], float], offset_s: Callable[[str], float | None]) -> None:
        self._clock = clock
        self._offset_s = offset_s
        self._last_s = float("-inf")

    def of_event(self, node: str, event: AnyEvent) -> AnyEvent:
        """Returns the event with its time converted to the job's clock, no earlier than that of any previous
        event.
        """
        at_s = min(self._clock(), event.at_s - self._of(node, event.at_s))
        self._last_s = max(self._last_s, at_s)
        return replace(event, at_s=self._last_s)

    def not_before(self, at_s: float) -> None:
        """Sets a minimum time for later events."""
        self._last_s = max(self._last_s, at_s)

    def of_samples(self, node: str, report: Sampled) -> Sampled:
        ahead_s, now_s = self._of(node, report.at_s), self._clock()
        if not ahead_s and report.at_s <= now_s:
            return report
        busy_s = report.node_busy_s
        return replace(
            report,
            at_s=min(now_s, report.at_s - ahead_s),
            node_busy_s=None if busy_s is None else busy_s - ahead_s,
            ranks=tuple(replace(one, at_s=min(now_s, one.at_s - ahead_s)) for one in report.ranks),
            used=tuple(replace(one, at_s=min(now_s, one.at_s - ahead_s)) for one in report.used),
            trends=tuple(
                replace(one, from_s=one.from_s - ahead_s, to_s=one.to_s - ahead_s) for one in report.trends
            ),
        )

    def of_records(self, node: str, report: RecordsReport) -> RecordsReport | None:
        """Returns flight records with their times converted to the job's clock.

        Returns None if the offset of the node's clock is unknown, so that the times cannot be compared.
        """
        ahead_s = self._offset_s(node)
        if ahead_s is None:
            return None
        entered = tuple(replace(one, at_s=tuple(at - ahead_s for at in one.at_s)) for one in report.entered)
        return replace(report, entered=entered)

    def of_evidence(self, node: str, report: WorkerEvidence) -> WorkerEvidence:
        latest_s = max((one.at_s for one in report.failure.exits), default=self._clock())
        ahead_s = self._of(node, latest_s)
        return replace(report, failure=_failure(report.failure, ahead_s)) if ahead_s else report

    def _of(self, node: str, reported_s: float) -> float:
        """Returns by how many seconds a node's clock is ahead; if unknown, as if the report were from now."""
        offset_s = self._offset_s(node)
        if offset_s is None:
            return reported_s - self._clock()
        return 0.0 if abs(offset_s) < SAME_S else offset_s


def _failure(failure: Failure, ahead_s: float) -> Failure:
    return replace(
        failure,
        exits=tuple(_exit(one, ahead_s) for one in failure.exits),
        elastic=tuple(_exit(one, ahead_s) for one in failure.elastic),
        left=tuple(_exit(one, ahead_s) for one in failure.left),
        errors=tuple(_error(one, ahead_s) for one in failure.errors),
        tracebacks=tuple(_error(one, ahead_s) for one in failure.tracebacks),
        hang=None if failure.hang is None else _hang(failure.hang, ahead_s),
    )


def _exit(one: RankExit, ahead_s: float) -> RankExit:
    return replace(one, at_s=one.at_s - ahead_s)


def _error(one: ErrorRecord, ahead_s: float) -> ErrorRecord:
    return one if one.at_s is None else replace(one, at_s=one.at_s - ahead_s)


def _hang(hang: Hang, ahead_s: float) -> Hang:
    return replace(hang, since_s=hang.since_s - ahead_s)
