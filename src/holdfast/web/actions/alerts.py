"""Records alerts from Alertmanager's webhook in the journals of running jobs on the affected nodes."""

import time
from collections.abc import Sequence

from holdfast.core.plurals import counted
from holdfast.jobs.call import CallNotMade, made_up
from holdfast.jobs.line import NoLine
from holdfast.jobs.requests import answer
from holdfast.metrics.alert_receiver import AlertReceiver, NotRecorded
from holdfast.model.calls import NOTES_MAX, AlertNote, AskNotes
from holdfast.model.documents.actions import ActionResult, AlertWebhook
from holdfast.model.monitoring.alerts import AlertEvidence
from holdfast.model.monitoring.metrics import Sample
from holdfast.parsers.alertmanager import received
from holdfast.web.actions.audit import Audit
from holdfast.web.actions.doing import by, doing
from holdfast.web.data import Data
from holdfast.web.refusals import Refusal, unavailable
from holdfast.web.server_parts import Caller

TOTAL_S = 30.0  # for all jobs of one webhook; Alertmanager sends what is left again
FAILED_MAX = 5  # jobs that an error names


class Alerts:
    """Records alerts that Alertmanager posts to one server. Not thread-safe."""

    def __init__(self, data: Data, audit: Audit) -> None:
        self._data, self._audit = data, audit
        self._until_s = 0.0
        self._by = ""
        self._receiver = AlertReceiver(data.running_nodes, self._note)

    def receive(self, webhook: AlertWebhook, asking: Caller) -> ActionResult:
        """Records the alerts, and returns what was recorded.

        Raises Refusal; with status 503 if Alertmanager should send the alerts again.
        """
        alerts = received(webhook)
        found = self._receiver.new(alerts)
        received_words = counted(len(alerts), "alert")
        if not found:
            return ActionResult(
                done=False, text=f"{received_words}, none of them new about nodes of running jobs"
            )
        self._until_s, self._by = time.monotonic() + TOTAL_S, by(asking)
        target = "/".join(list(found)[:FAILED_MAX])
        return doing(
            self._audit, asking, "alerts", target, received_words, lambda: self._record(found, received_words)
        )

    def samples(self) -> list[Sample]:
        """Returns the number of received alerts, for /metrics."""
        return self._receiver.samples()

    def _record(self, found: dict[str, list[AlertEvidence]], received_words: str) -> ActionResult:
        done = self._receiver.record(found)
        if done.failed:
            why = "; ".join(done.failed[:FAILED_MAX])
            raise unavailable(f"alerts of {counted(len(done.failed), 'job')} are not recorded yet: {why}")
        jobs = counted(len(found), "job")
        return ActionResult(done=done.new > 0, text=f"{received_words}, {done.new} of them passed to {jobs}")

    def _note(self, job: str, found: Sequence[AlertEvidence]) -> None:
        """Records alerts in a job's journal. Raises NotRecorded."""
        if time.monotonic() > self._until_s:
            raise NotRecorded(f"job {job}: the jobs before it took {TOTAL_S:g} s")
        try:
            line = self._data.line(job)
            try:
                for begin in range(0, len(found), NOTES_MAX):
                    notes = tuple(_note(one) for one in found[begin : begin + NOTES_MAX])
                    answer(line, AskNotes(call=made_up(), by=self._by, notes=notes))
            finally:
                line.close()
        except CallNotMade:
            return  # refused for good: the job has just ended
        except Refusal as error:
            raise NotRecorded(error.text) from error
        except NoLine as error:
            raise NotRecorded(str(error)) from error


def _note(one: AlertEvidence) -> AlertNote:
    return AlertNote(key=one.key, node=one.node, status=one.status, text=one.text, since_s=one.at_s)
