"""Adds to a diagnosis what Prometheus recorded about a job's devices around its incident."""

from collections.abc import Sequence
from contextlib import suppress

from holdfast.core.metrics.device_evidence import facts, with_device_metrics
from holdfast.jobs.record import RecordUnreadable, open_record
from holdfast.journal.jobdir import JobDir
from holdfast.metrics.device_history import device_history
from holdfast.metrics.prometheus import Prometheus
from holdfast.metrics.rule_store import package_rules
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.matches import Search
from holdfast.model.signatures import Words

_NO_TIME = Words(
    en=(
        "Prometheus was not queried: the time of the failure is unknown; give the name of a Holdfast job, "
        "or logs with timestamps"
    ),
    zh="未查询 Prometheus：日志中没有时间；请提供 Holdfast 的作业名或带时间戳的日志",
)


def with_prometheus(answer: Diagnosis, found: Search, jobs: Sequence[JobDir], url: str) -> Diagnosis:
    """Returns the diagnosis with findings from device metrics.

    Never raises; a note says what could not be queried.
    """
    nodes, at_s = _of_jobs(jobs)
    at_s = at_s if at_s is not None else _time_of(answer)
    if at_s is None:
        return with_device_metrics(answer, (), _NO_TIME)
    history = device_history(Prometheus(url), package_rules(), nodes or _hosts(answer, found), at_s)
    return with_device_metrics(answer, facts(history.readings, at_s), history.note)


def _of_jobs(jobs: Sequence[JobDir]) -> tuple[list[str], float | None]:
    """Returns the nodes of the jobs, and the time at which their newest incident was found."""
    nodes: dict[str, None] = {}
    at_s: float | None = None
    for job in jobs:
        with suppress(RecordUnreadable):
            record = open_record(job)
            try:
                record.all_lines()
            finally:
                record.close()
            state, summary = record.story.state, record.story.summary()
            nodes |= {worker.node: None for worker in state.job.workers if worker.node}
            nodes |= dict.fromkeys((*summary.lost, *summary.isolated))
            if summary.incidents:
                at_s = summary.incidents[-1].found_at_s
    return list(nodes), at_s


def _time_of(answer: Diagnosis) -> float | None:
    first = answer.first_error.at_s if answer.first_error is not None else None
    return (
        first if first is not None else max((one.at_s for one in answer.evidence if one.at_s), default=None)
    )


def _hosts(answer: Diagnosis, found: Search) -> list[str]:
    """Returns all hosts that wrote logs, those at fault first, because their metrics are compared."""
    named = [one.host for one in answer.culprits]
    wrote = [source.writer.host for source in found.sources]
    matched = [match.writer.host for match in found.matches]
    return list(dict.fromkeys(host for host in (*named, *wrote, *matched) if host))
