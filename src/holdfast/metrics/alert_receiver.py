"""Receives Alertmanager webhooks for a server: their alerts become evidence for jobs on the affected nodes."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from holdfast.core.metrics.alerts import evidence
from holdfast.model.monitoring.alerts import AlertEvidence
from holdfast.model.monitoring.metrics import Sample
from holdfast.parsers.alertmanager import WebhookUnreadable, received

KNOWN_MAX = 10_000
STATUSES = ("firing", "resolved")
TAKEN, BAD_REQUEST = 200, 400


class AlertReceiver:
    """Receives alerts.

    `jobs`: the nodes of each running job. `note`: receives evidence, once per alert and state. Not thread-safe.
    """

    def __init__(
        self,
        jobs: Callable[[], Mapping[str, Sequence[str]]],
        note: Callable[[AlertEvidence], None],
    ) -> None:
        self._jobs, self._note = jobs, note
        self._known: OrderedDict[str, None] = OrderedDict()
        self._counts = dict.fromkeys(STATUSES, 0)

    def receive(self, body: bytes) -> tuple[int, str]:
        """Handles a webhook. Returns the HTTP status and one line of text. Raises only what `note` raises."""
        try:
            alerts = received(body)
        except WebhookUnreadable as error:
            return BAD_REQUEST, str(error)
        for alert in alerts:
            if alert.status in self._counts:
                self._counts[alert.status] += 1
        found = evidence(alerts, self._jobs(), self._known)
        for one in found:
            self._note(one)
            self._known[one.key] = None
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return TAKEN, f"{len(alerts)} alerts, {len(found)} of them new about nodes of jobs"

    def samples(self) -> list[Sample]:
        """Returns the number of alerts received, for /metrics."""
        return [
            Sample("holdfast_alerts_received_total", (status,), count)
            for status, count in self._counts.items()
        ]
