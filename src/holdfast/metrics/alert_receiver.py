"""Receives webhooks of Alertmanager: alerts become evidence for jobs on the affected nodes."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from holdfast.core.metrics.alerts import evidence
from holdfast.model.monitoring.alerts import AlertEvidence, ReceivedAlert
from holdfast.model.monitoring.metrics import Sample

KNOWN_MAX = 10_000
STATUSES = ("firing", "resolved")


class NotRecorded(Exception):
    """Raised when evidence from alerts could not be recorded now, and the sender should retry. The message is
    one line.
    """


class Received(Struct, frozen=True, kw_only=True):
    """Result of recording the alerts of a webhook.

    `new`: number of recorded alerts. `failed`: why others were not recorded, one line per job.
    """

    new: int
    failed: tuple[str, ...] = ()


class AlertReceiver:
    """Records alerts of Alertmanager as evidence for jobs on the affected nodes. Not thread-safe.

    `jobs`: returns the nodes of each running job. `note`: receives the evidence about an alert, once when it
    fires and once when it is resolved.
    """

    def __init__(
        self,
        jobs: Callable[[], Mapping[str, Sequence[str]]],
        note: Callable[[str, Sequence[AlertEvidence]], None],
    ) -> None:
        self._jobs, self._note = jobs, note
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._counts = dict.fromkeys(STATUSES, 0)

    def new(self, alerts: Sequence[ReceivedAlert]) -> dict[str, list[AlertEvidence]]:
        """Returns the evidence in these alerts that is not recorded yet, by job. Also counts the alerts for
        samples().

        raises: what `jobs` raises
        """
        for alert in alerts:
            if alert.status in self._counts:
                self._counts[alert.status] += 1
        found: dict[str, list[AlertEvidence]] = {}
        for one in evidence(alerts, self._jobs(), self._known):
            found.setdefault(one.job, []).append(one)
        return found

    def record(self, found: Mapping[str, Sequence[AlertEvidence]]) -> Received:
        """Records the evidence of each job. Returns how much was recorded, and what failed."""
        count, failed = 0, []
        for job, of_job in found.items():
            try:
                self._note(job, of_job)
            except NotRecorded as error:
                failed.append(str(error))
                continue
            count += len(of_job)
            self._known.update(((job, one.key), None) for one in of_job)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return Received(new=count, failed=tuple(failed))

    def samples(self) -> list[Sample]:
        """Returns the number of alerts received, as metrics."""
        return [
            Sample("holdfast_alerts_received_total", (status,), count)
            for status, count in self._counts.items()
        ]
