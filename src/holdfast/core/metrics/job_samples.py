"""Converts the state of a job into metric samples. Pure."""

from collections.abc import Iterator, Sequence
from typing import get_args

from msgspec import Struct

from holdfast.core.metrics.ledger import Accounts, Recoveries
from holdfast.model.monitoring.metrics import AnySample, Distribution, Sample
from holdfast.model.state import AnyPhase, Ended, HangFault, Job, State
from holdfast.model.steps import StepNow, Straggler

PHASES = tuple(str(phase.__struct_config__.tag) for phase in get_args(AnyPhase))
OUTCOMES = ("succeeded", "failed", "stopped")
FINDINGS = ("slowdown", "straggler", "step-stands", "loss-nan", "loss-diverged")
AT_FAULT_MAX = 16
STRAGGLER = "straggler"


class Rates(Struct, frozen=True):
    """Training throughput per second. None: the log has no batch size or no sequence length."""

    samples: float | None = None
    tokens: float | None = None


class JobFacts(Struct, frozen=True, kw_only=True):
    """Values for a job's metrics that its journal does not contain.

    `steps`, `rates`: None and empty if no log contains steps. `findings`: kinds of current findings. `last_output_s`:
    time of the last output on the job's clock; None without output so far. `agents`: number of connected agents; None
    if agent and controller are one process.
    """

    engine: str
    version: str
    max_restarts: int | None = None
    steps: StepNow | None = None
    rates: Rates = Rates()
    findings: frozenset[str] = frozenset()
    stragglers: Sequence[Straggler] = ()
    last_output_s: float | None = None
    agents: int | None = None


def rates_of(batch: float | None, counts: str, sequence: int | None, step_time_s: float | None) -> Rates:
    """Returns the training throughput.

    `batch`: items per step; `counts`: their unit, samples or tokens, else unknown.
    """
    if batch is None or not step_time_s or step_time_s <= 0.0 or counts not in ("samples", "tokens"):
        return Rates()
    rate = batch / step_time_s
    if counts == "tokens":
        return Rates(tokens=rate)
    return Rates(samples=rate, tokens=rate * sequence if sequence else None)


def job_samples(state: State, accounts: Accounts, facts: JobFacts) -> list[AnySample]:
    """Returns the samples of all metrics of a job. `accounts`: the current state of its ledger."""
    job = state.job
    return [
        *_of_the_state(state, facts),
        *_of_the_accounts(job, accounts),
        *_of_steps(job, accounts, facts),
        *_of_the_incident(job, facts),
    ]


def _of_the_state(state: State, facts: JobFacts) -> Iterator[Sample]:
    job, phase = state.job, state.phase
    name = job.name
    tag = str(type(phase).__struct_config__.tag)
    yield Sample("holdfast_job_info", (name, facts.engine, facts.version), 1.0)
    for one in PHASES:
        yield Sample("holdfast_job_phase", (name, one), float(one == tag))
    if isinstance(phase, Ended):
        for one in OUTCOMES:
            yield Sample("holdfast_job_outcome", (name, one), float(one == phase.outcome))
    kinds = {"restart": job.restarts, "hardware": job.hardware_reschedules, "replacement": job.replacements}
    for kind, count in kinds.items():
        yield Sample("holdfast_job_restarts_total", (name, kind), count)
    if facts.max_restarts is not None:
        yield Sample("holdfast_job_restarts_max", (name,), facts.max_restarts)
    working = len({worker.node for worker in job.workers if worker.node})
    nodes = {"working": working, "isolated": len(job.isolated), "lost": len(job.lost)}
    for where, count in nodes.items():
        yield Sample("holdfast_job_nodes", (name, where), count)
    if facts.agents is not None:
        yield Sample("holdfast_job_agents_connected", (name,), facts.agents)


def _of_the_accounts(job: Job, accounts: Accounts) -> Iterator[AnySample]:
    name = job.name
    if accounts.submitted_s is not None:
        yield Sample("holdfast_job_submitted_timestamp_seconds", (name,), accounts.submitted_s)
    yield Sample("holdfast_job_attempts_total", (name,), accounts.attempts)
    yield Sample("holdfast_job_ranks", (name, "running"), accounts.ranks_running)
    yield Sample("holdfast_job_ranks", (name, "ended"), accounts.ranks_ended)
    yield Sample("holdfast_job_productive_seconds_total", (name,), accounts.productive_s)
    for (category, stage), lost_s in accounts.lost_s.items():
        yield Sample("holdfast_job_lost_seconds_total", (name, category, stage), lost_s)
    if accounts.goodput is not None:
        yield Sample("holdfast_job_goodput_ratio", (name,), accounts.goodput)
    yield Sample("holdfast_job_steps_repeated_total", (name,), accounts.steps_repeated)
    for (category, rung), (count, example) in accounts.incidents.items():
        yield Sample("holdfast_incidents_total", (name, category, rung), count, example)
    yield _recoveries(name, accounts.recoveries)


def _recoveries(name: str, recoveries: Recoveries) -> Distribution:
    return Distribution(
        "holdfast_recovery_seconds", (name,), recoveries.counts, recoveries.sum_s, recoveries.exemplars
    )


def _of_steps(job: Job, accounts: Accounts, facts: JobFacts) -> Iterator[Sample]:
    now = facts.steps or StepNow()
    values = {
        "holdfast_job_step": job.step,
        "holdfast_job_step_target": now.total,
        "holdfast_job_step_time_seconds": now.now_s,
        "holdfast_job_step_time_median_seconds": now.median_s,
        "holdfast_job_step_time_best_seconds": now.best_s,
        "holdfast_job_samples_per_second": facts.rates.samples,
        "holdfast_job_tokens_per_second": facts.rates.tokens,
        "holdfast_job_loss": now.loss,
        "holdfast_job_last_step_timestamp_seconds": accounts.last_step_s,
        "holdfast_job_last_output_timestamp_seconds": facts.last_output_s,
    }
    for metric, value in values.items():
        if value is not None:
            yield Sample(metric, (job.name,), value)
    open_ = facts.findings | ({STRAGGLER} if facts.stragglers else frozenset())
    for kind in FINDINGS:
        yield Sample("holdfast_job_finding_open", (job.name, kind), float(kind in open_))


def _of_the_incident(job: Job, facts: JobFacts) -> Iterator[Sample]:
    incident, name = job.incident, job.name
    hangs = incident is not None and any(isinstance(fault, HangFault) for fault in incident.faults)
    yield Sample("holdfast_incident_open", (name,), float(incident is not None))
    yield Sample("holdfast_job_hang", (name,), float(hangs))
    if incident is not None:
        yield Sample("holdfast_incident_open_since_timestamp_seconds", (name,), incident.since_s)
    counts: dict[str, int] = {}
    listed: dict[tuple[str, str, str], None] = {}
    for node, rank, kind in _at_fault(job, facts.stragglers):
        counts[kind] = counts.get(kind, 0) + 1
        if len(listed) < AT_FAULT_MAX:
            listed[node, str(rank), kind] = None
    for kind, count in counts.items():
        yield Sample("holdfast_ranks_at_fault", (name, kind), count)
    for place in listed:
        yield Sample("holdfast_rank_at_fault", (name, *place), 1.0)


def _at_fault(job: Job, stragglers: Sequence[Straggler]) -> Iterator[tuple[str, int, str]]:
    verdict = job.incident.verdict if job.incident is not None else None
    nodes = {number: worker.node or "" for number, worker in enumerate(job.workers)}
    for one in verdict.culprits if verdict is not None else ():
        if one.rank is not None:
            yield (
                one.host or nodes.get(one.worker if one.worker is not None else -1, ""),
                one.rank,
                (verdict.category if verdict is not None else ""),
            )
    for slow in stragglers:
        for rank in slow.ranks:
            yield slow.node, rank, STRAGGLER
