"""Answers GET /metrics.

The data is collected at most every FRESH_S seconds, whatever the number of scrapers.
"""

import threading
import time
from collections.abc import Callable, Sequence

from holdfast.core.metrics.fleet_samples import fleet_samples
from holdfast.metrics.http_endpoint import Answer
from holdfast.metrics.mounted import JOBS_MAX, answered, server_facts
from holdfast.model.monitoring.metrics import AnySample, Sample
from holdfast.web.data import Data
from holdfast.web.refusals import Refusal

FRESH_S = 5.0


class ServerMetrics:
    """Collects the metrics of one server. Thread-safe.

    `more`: returns further samples, which take little time and are taken at every scrape. `faults`: returns the
    number of failed requests. `clock`: monotonic.
    """

    def __init__(
        self,
        data: Data,
        more: Callable[[], Sequence[AnySample]],
        faults: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._data, self._more, self._faults, self._clock = data, more, faults, clock
        self._started_s = wall()
        self._lock = threading.Lock()
        self._samples: tuple[AnySample, ...] = ()
        self._at_s = float("-inf")
        self._took_s = 0.0

    def answer(self, accept: str) -> Answer:
        """Returns the metrics in the text format that the request header `accept` prefers."""
        with self._lock:  # a second scraper waits for the facts of the first
            if self._clock() - self._at_s >= FRESH_S:
                self._collect()
            samples, age_s, took_s = self._samples, self._clock() - self._at_s, self._took_s
        own = server_facts(self._started_s, self._faults())
        return answered(accept, (*samples, *self._more()), own, age_s=age_s, took_s=took_s)

    def _collect(self) -> None:
        """Collects the data.

        Without an index, only metrics of the server itself remain, and a counter of warnings increases.
        """
        begun_s = self._clock()
        _, warnings = self._data.health()
        samples: list[AnySample] = [Sample("holdfast_server_warnings", (), len(warnings))]
        try:
            samples += fleet_samples(self._data.fleet(JOBS_MAX))
        except Refusal:
            samples[0] = Sample("holdfast_server_warnings", (), max(1, len(warnings)))
        self._samples, self._at_s = tuple(samples), self._clock()
        self._took_s = self._at_s - begun_s
