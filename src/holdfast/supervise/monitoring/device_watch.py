"""Queries Prometheus for device metrics around each incident of a running job, in a thread.

Findings are recorded as evidence beside the verdict. They never change a decision.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence

from holdfast.core.job.decision import Decision
from holdfast.core.metrics.device_evidence import facts
from holdfast.metrics.device_history import device_history
from holdfast.metrics.prometheus import Prometheus
from holdfast.metrics.rule_store import package_rules
from holdfast.model.events import AnyEvent
from holdfast.observe.clock import JobClock

DELAY_S = 20.0  # until exporters have been scraped again
NEW_S = 60.0  # older incidents of a replayed record are not queried
FINDING = "device-metrics"


class DeviceWatch:
    """Queries device metrics for each incident. `note`: receives findings as kind and text, called from `turn`."""

    def __init__(
        self, url: str, clock: JobClock, note: Callable[[str, str], None], delay_s: float = DELAY_S
    ) -> None:
        self._url, self._clock, self._note, self._delay_s = url, clock, note, delay_s
        self._asked = 0  # the number of the last incident queried
        self._texts: deque[str] = deque()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        job = decision.state.job
        if job.incident is None or job.incident.number <= self._asked:
            return
        self._asked = job.incident.number
        if self._clock() - event.at_s > NEW_S or (self._thread is not None and self._thread.is_alive()):
            return
        nodes = tuple(dict.fromkeys(worker.node for worker in job.workers if worker.node))
        self._thread = threading.Thread(
            target=self._ask,
            args=(job.incident.number, nodes, event.at_s),
            name="holdfast-device-metrics",
            daemon=True,
        )
        self._thread.start()

    def channels(self) -> list[int]:
        return []  # no descriptor wakes the loop

    def turn(self) -> None:
        while self._texts:
            self._note(FINDING, self._texts.popleft())

    def close(self) -> None:
        self._end.set()

    def _ask(self, incident: int, nodes: Sequence[str], at_s: float) -> None:
        if self._end.wait(self._delay_s):
            return
        history = device_history(Prometheus(self._url), package_rules(), nodes, at_s)
        found = facts(history.readings, at_s)
        for one in found:
            self._texts.append(f"incident {incident}: device metrics: {one.text}. {one.says.en}")
        if history.note is not None:
            self._texts.append(f"incident {incident}: {history.note.en}")
        elif not found:
            self._texts.append(f"incident {incident}: the metrics of the devices show nothing unusual")
