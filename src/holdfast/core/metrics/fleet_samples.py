"""Converts the state of all jobs on a server into metric samples. Pure."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from holdfast.model.documents.jobs import JobRow
from holdfast.model.documents.parts import JOB_STATES
from holdfast.model.monitoring.metrics import AnySample, Sample

CATEGORIES_MAX = 100
NODE_STATES = ("known", "isolated", "lemon")


class FleetFacts(Struct, frozen=True, kw_only=True):
    """The state of all jobs on a server, from which its metrics are made.

    `states`: number of jobs by state. `running`: rows of running jobs, newest first. `open`: ids of running
    jobs with an open incident. `incidents`: number of recorded incidents by category. `nodes`: number of
    nodes by state.
    """

    states: Mapping[str, int]
    running: tuple[JobRow, ...] = ()
    open: frozenset[str] = frozenset()
    incidents: Mapping[str, int] = {}
    nodes: Mapping[str, int] = {}


def fleet_samples(facts: FleetFacts) -> list[AnySample]:
    """Returns the metric samples of the fleet, then those of each running job."""
    categories = sorted(facts.incidents.items(), key=lambda one: (-one[1], one[0]))
    return [
        *(Sample("holdfast_jobs", (state,), facts.states.get(state, 0)) for state in JOB_STATES),
        *(Sample("holdfast_fleet_nodes", (state,), facts.nodes.get(state, 0)) for state in NODE_STATES),
        *(
            Sample("holdfast_fleet_incidents", (category or "unknown",), count)
            for category, count in categories[:CATEGORIES_MAX]
        ),
        *(sample for row in facts.running for sample in _job(row, is_open=row.id in facts.open)),
    ]


def _job(row: JobRow, *, is_open: bool) -> Iterator[Sample]:
    """Yields the metric samples of a running job, labelled with its id, which is unique on the server."""
    values = {
        "holdfast_job_submitted_timestamp_seconds": row.submitted_at_s,
        "holdfast_job_attempts_total": row.attempt,
        "holdfast_job_step": row.step,
        "holdfast_job_step_target": row.total_steps,
        "holdfast_job_step_time_seconds": row.step_s,
        "holdfast_job_goodput_ratio": row.goodput,
        "holdfast_incident_open": float(is_open),
    }
    for metric, value in values.items():
        if value is not None:
            yield Sample(metric, (row.id,), value)
