"""Builds the response to GET /metrics for a server with its own HTTP stack: metrics of its jobs and its
fleet.
"""

import platform
from collections.abc import Sequence

from holdfast import __version__
from holdfast.core.metrics.exposition import (
    OPEN_METRICS,
    TEXT,
    bounded,
    wants_open_metrics,
    written,
)
from holdfast.core.metrics.node_samples import OwnFacts, own_samples
from holdfast.metrics.exporter import own_facts
from holdfast.metrics.http_endpoint import Answer
from holdfast.model.monitoring.metrics import AnySample

SERVER_SERIES_MAX = 5_000  # of all jobs together
JOBS_MAX = 500  # running jobs with series of their own, the newest ones


def answered(
    accept: str,
    samples: Sequence[AnySample],
    own: OwnFacts,
    *,
    age_s: float = 0.0,
    took_s: float = 0.0,
    series_max: int = SERVER_SERIES_MAX,
) -> Answer:
    """Returns the response to a request for metrics.

    `accept`: the request's Accept header. `samples`: metrics of each job, the fleet and others. `age_s`,
    `took_s`: age of the samples, and the time that collecting them took.
    """
    kept, dropped = bounded(samples, series_max)
    found = (*kept, *own_samples(own, snapshot_age_s=age_s, exposition_s=took_s, dropped=dropped))
    is_open = wants_open_metrics(accept)
    return Answer(written(found, open_metrics=is_open), OPEN_METRICS if is_open else TEXT)


def server_facts(started_s: float, faults: int = 0) -> OwnFacts:
    """Returns version, start time, CPU use and faults of the server process, for its own metrics."""
    return own_facts("server", (__version__, platform.python_version()), started_s, faults=faults)
