"""Builds the rows of job lists and incident lists, each with its one-sentence summary. Pure."""

import shlex
from datetime import tzinfo

from holdfast.core.job.recurrence import cause_key, problem_key
from holdfast.core.job.story import IncidentStory, Summary
from holdfast.model.documents.jobs import IncidentRow, JobRow
from holdfast.model.documents.parts import LIVE_STATES, JobState, Sentence
from holdfast.views.jobs.costs import cost_of, goodput
from holdfast.views.jobs.seen import Seen
from holdfast.views.sentence import About, clean, incident_sentence, whom
from holdfast.views.state_sentence import StateFacts, state_sentence

SPARKLINE_MAX = 30
COMMAND_MAX, CAUSE_MAX, NODES_MAX, WHO_MAX = 2_000, 240, 512, 64
# In these states, the state is more informative than any earlier incident.
STATE_COUNTS: frozenset[JobState] = frozenset(
    {
        "starting",
        "waiting",
        "stopping",
        "succeeded",
        "stopped",
        "preempted",
        "unsupervised",
        "dead",
        "unknown",
    }
)
FAILED: frozenset[JobState] = frozenset({"failed", "kept"})
PACED: frozenset[JobState] = frozenset({"training"})


def job_row(summary: Summary, seen: Seen, zone: tzinfo | None = None) -> JobRow:
    """Returns the list row of a job. Only a job that is training has a step rate and a remaining time."""
    steps = seen.steps
    step = _step(summary, seen)
    is_paced = seen.state in PACED and steps is not None
    last = summary.incidents[-1] if summary.incidents else None
    engine, ranks = _settings(seen).get("engine"), summary.ranks
    return JobRow(
        id=seen.id,
        name=seen.name,
        state=seen.state,
        sentence=job_sentence(summary, seen, zone),
        source=seen.source,
        state_since_s=seen.state_since_s,
        submitted_at_s=summary.submitted_at_s,
        ended_at_s=summary.last_at_s if summary.outcome else None,
        seen_at_s=seen.seen_at_s if seen.seen_at_s is not None else summary.last_at_s,
        step=step,
        total_steps=steps.now.total if steps is not None else None,
        step_s=steps.now.now_s if steps is not None and is_paced else None,
        eta_s=steps.now.eta_s if steps is not None and is_paced else None,
        sparkline=tuple(steps.recent[-SPARKLINE_MAX:]) if steps is not None else (),
        goodput=goodput(summary),
        attempt=summary.attempt,
        restarts=summary.restarts,
        incidents=last.number if last is not None else 0,
        workers=summary.workers,
        ranks=len(ranks),
        nodes=tuple(dict.fromkeys(summary.nodes.values()))[:NODES_MAX],
        engine=engine if isinstance(engine, str) else "",
        user=seen.user,
        command=_command(seen),
        category=last.verdict.category if last is not None and last.verdict is not None else "",
        cause=cause_of(summary, seen.state),
        labels=seen.labels,
    )


def incident_row(
    incident: IncidentStory, summary: Summary, seen: Seen, zone: tzinfo | None = None
) -> IncidentRow:
    """Returns the list row of an incident, with its one-sentence summary."""
    verdict = incident.verdict
    recovered_s = incident.found_at_s + incident.took_s if incident.took_s is not None else None
    return IncidentRow(
        number=incident.number,
        attempt=incident.attempt,
        found_at_s=incident.found_at_s,
        sentence=incident_sentence(incident, about(summary, seen), zone),
        category=verdict.category if verdict is not None else "",
        class_=verdict.class_ if verdict is not None else "",
        confidence=verdict.confidence if verdict is not None else None,
        who=whom(incident)[:WHO_MAX],
        rung=incident.rungs[-1].rung if incident.rungs else "",
        over=incident.over or incident.ended,
        recovered_at_s=recovered_s if not incident.ended else None,
        cost=cost_of(incident, summary.devices),
        acknowledged_by=incident.acknowledged_by,
        cause=_cause_of(incident),
    )


def job_sentence(summary: Summary, seen: Seen, zone: tzinfo | None = None) -> Sentence:
    """Returns the sentence about a job's last incident, or about its state if that is more informative."""
    last = summary.incidents[-1] if summary.incidents else None
    if last is None or seen.state in STATE_COUNTS:
        return state_sentence(_state_facts(summary, seen), zone)
    return incident_sentence(last, about(summary, seen), zone)


def about(summary: Summary, seen: Seen) -> About:
    """Returns the facts about a job that sentences about its incidents need."""
    return About(state=seen.state, max_restarts=summary.max_restarts, workers=summary.workers)


def cause_of(summary: Summary, state: JobState) -> str:
    """Returns a text that is equal for jobs that failed for the same cause; empty for jobs that have not
    failed.
    """
    if state not in FAILED:
        return ""
    last = summary.incidents[-1] if summary.incidents else None
    if last is None or last.verdict is None or not (last.ended or not last.over):
        return clean(f"failed:{cause_key(summary.reason)}", CAUSE_MAX) if summary.reason else ""
    return _cause_of(last)


def _cause_of(incident: IncidentStory) -> str:
    """Returns a text that is equal for incidents of the same cause; empty if the cause is unknown."""
    if incident.verdict is None:
        return ""
    return clean(cause_key(incident.problem or problem_key(incident.verdict)), CAUSE_MAX)


def _state_facts(summary: Summary, seen: Seen) -> StateFacts:
    host = seen.facts.get("host")
    return StateFacts(
        name=seen.name,
        state=seen.state,
        since_s=seen.state_since_s,
        step=_step(summary, seen),
        restarts=summary.restarts,
        reason=summary.moved or summary.reason,
        by=summary.ended_by,
        phase_words=summary.phase_words,
        missing=tuple(number for number in range(summary.workers) if number not in summary.nodes),
        isolated=len(summary.isolated),
        host=host if isinstance(host, str) else "",
        ranks=len(summary.ranks),
        is_being_ended=seen.is_being_ended,
    )


def _step(summary: Summary, seen: Seen) -> int | None:
    """Returns the last step of a job; None if there is none.

    If a job has ended or died and its last attempt made no step, the last step of the attempt before.
    """
    if seen.steps is not None and seen.steps.now.step is not None:
        return seen.steps.now.step
    if summary.step is not None:
        return summary.step
    if seen.state in LIVE_STATES:
        return None
    made = [one.last_step for one in summary.attempts if one.last_step is not None]
    return made[-1] if made else None


def _command(seen: Seen) -> str:
    words = seen.facts.get("command")
    return clean(shlex.join(map(str, words)), COMMAND_MAX) if isinstance(words, list | tuple) else ""


def _settings(seen: Seen) -> dict[str, object]:
    settings = seen.facts.get("settings")
    return settings if isinstance(settings, dict) else {}
