"""Builds the document of one job. Pure."""

from collections.abc import Sequence
from datetime import tzinfo

import msgspec

from holdfast.core.job.story import Summary
from holdfast.model.documents.jobs import (
    AttemptRow,
    Counters,
    JobDocument,
    LogLine,
    RankRow,
    WorkerRow,
)
from holdfast.views.jobs.costs import cost_of_job
from holdfast.views.jobs.phase import true_words
from holdfast.views.jobs.rows import incident_row, job_row
from holdfast.views.jobs.seen import Seen
from holdfast.views.sentence import whom

INCIDENTS_MAX, ATTEMPTS_MAX, FINDINGS_MAX, ROWS_MAX = 200, 500, 50, 4_096
LOG_FINDING = "log"  # an error line that a signature matches in the live output
CAUSE_S, AFTER_S = 60.0, 5.0  # such a line so long before an incident, or after its detection, belongs to it


def job_document(
    summary: Summary, seen: Seen, findings: Sequence[LogLine] = (), zone: tzinfo | None = None
) -> JobDocument:
    """Returns the document of one job.

    `findings`: log lines of findings that did not block the training, ascending; only the last ones are kept.
    """
    incidents = tuple(incident_row(one, summary, seen, zone) for one in summary.incidents[-INCIDENTS_MAX:])
    return JobDocument(
        row=job_row(summary, seen, zone),
        counters=Counters(
            max_restarts=summary.max_restarts,
            restarts=summary.restarts,
            hardware_reschedules=summary.hardware_reschedules,
            replacements=summary.replacements,
        ),
        phase=summary.phase,
        phase_words=true_words(summary, seen.state, is_being_ended=seen.is_being_ended),
        attempts=_attempts(summary, seen),
        incidents=incidents,
        workers=_workers(summary, seen),
        ranks=_ranks(summary, seen),
        isolated=summary.isolated,
        lost=summary.lost,
        findings=tuple(line for line in findings if _stopped_nothing(line, summary))[-FINDINGS_MAX:],
        cost=cost_of_job(summary),
        policy=msgspec.to_builtins(seen.policy),
        folder=seen.folder,
        supervisor=seen.supervisor,
        version=_text(seen, "version"),
        warnings=seen.warnings,
    )


def _stopped_nothing(line: LogLine, summary: Summary) -> bool:
    """Returns False for an error line shortly before an incident or the end of the job, because it may be
    the cause.
    """
    if line.finding != LOG_FINDING:
        return True
    ends = [one.found_at_s for one in summary.incidents]
    if summary.outcome and summary.phase_since_s is not None:
        ends.append(summary.phase_since_s)
    return not any(end_s - CAUSE_S <= line.at_s <= end_s + AFTER_S for end_s in ends)


def _attempts(summary: Summary, seen: Seen) -> tuple[AttemptRow, ...]:
    rows = [
        AttemptRow(
            number=one.number,
            started_at_s=one.started_at_s,
            ended_at_s=one.ended_at_s,
            first_step=one.first_step,
            last_step=one.last_step,
            nodes=tuple(one.nodes[worker] for worker in sorted(one.nodes)),
        )
        for one in summary.attempts[-ATTEMPTS_MAX:]
    ]
    if rows and seen.state == "dead" and rows[-1].ended_at_s is None:
        rows[-1] = msgspec.structs.replace(rows[-1], ended_at_s=seen.state_since_s)
    return tuple(rows)


def _workers(summary: Summary, seen: Seen) -> tuple[WorkerRow, ...]:
    ranks: dict[int, list[int]] = {}
    for one in summary.ranks:
        ranks.setdefault(one.worker, []).append(one.rank)
    numbers = sorted({*summary.nodes, *ranks, *seen.files, *range(min(summary.workers, ROWS_MAX))})
    is_paced = seen.state == "training"
    rows = []
    for number in numbers[:ROWS_MAX]:
        steps = seen.worker_steps.get(number)
        rows.append(
            WorkerRow(
                worker=number,
                node=summary.nodes.get(number, ""),
                ranks=tuple(ranks.get(number, ())),
                step=steps.now.step if steps is not None else None,
                step_s=steps.now.now_s if steps is not None and is_paced else None,
                files=seen.files.get(number, {}),
            )
        )
    return tuple(rows)


def _ranks(summary: Summary, seen: Seen) -> tuple[RankRow, ...]:
    """Returns the ranks of the current attempt.

    A rank without a process has ended, even if no exit was recorded.
    """
    last = summary.incidents[-1] if summary.incidents else None
    at_fault = (
        {one.rank for one in whom(last)} if last is not None and last.attempt == summary.attempt else set()
    )
    return tuple(
        RankRow(
            rank=one.rank,
            worker=one.worker,
            node=summary.nodes.get(one.worker, ""),
            pid=one.pid,
            ended=one.ended or (seen.living is not None and one.rank not in seen.living),
            code=one.code,
            at_fault=one.rank in at_fault,
        )
        for one in summary.ranks[:ROWS_MAX]
    )


def _text(seen: Seen, key: str) -> str:
    value = seen.facts.get(key)
    return value if isinstance(value, str) else ""
