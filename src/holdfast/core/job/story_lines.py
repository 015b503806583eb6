"""Converts each event with its decision to lines of the fault-tolerance log. Pure."""

import shlex

from holdfast.core.job.decision import Decision
from holdfast.core.job.wording import (
    action_words,
    check_lines,
    check_words,
    ended_words,
    listed,
    not_again_words,
    request_words,
    verdict_words,
)
from holdfast.model.checks import FAIL, IDLE
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    DeviceHealed,
    FindingNoted,
    JobMoved,
    JobSubmitted,
    NodeIsolated,
    NodeReleased,
    NodesChecked,
    RankExited,
    RestartRequested,
    StopRequested,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.state import (
    Diagnosing,
    Ended,
    Job,
    NodeFault,
    Running,
    State,
)
from holdfast.model.verdicts import Verdict

ALERT = "alert"  # the kind of finding for an alert of a monitoring system about a node of the job
# Kinds of findings that are recorded but not shown: too long, or shown elsewhere.
RECORD_ONLY = frozenset({"environment", "command-running", "rendezvous"})


def texts(before: State, event: AnyEvent, decision: Decision) -> list[tuple[str, str]]:
    """Returns the (kind, text) pairs of the log lines for one event, in order."""
    found: list[tuple[str, str]] = []
    if of_event := _of_the_event(before, event, decision):
        found.append(of_event)
    if isinstance(event, NodesChecked):
        found += [("check", line) for line in check_lines(event, is_named=_has_several(before))]
    if isinstance(event, WorkersPlaced) and (
        words := not_again_words(before.job, decision.state.job, event.at_s)
    ):
        found.append(("check", words))
    incident = decision.state.job.incident
    if incident is not None and incident.verdict is not None and _verdict_of(before) != incident.verdict:
        found.append(("verdict", f"incident {incident.number}: verdict: {verdict_words(incident.verdict)}"))
    if decision.choice is not None:
        choice = decision.choice
        text = decision.why if choice.shadow else f"action: {action_words(choice)}"
        found.append(("rung", f"incident {choice.incident}: {text}"))
    phase = decision.state.phase
    if isinstance(phase, Ended) and not isinstance(before.phase, Ended):
        found.append(("end", f"the job {ended_words(phase)}: {phase.reason}"))
    return found


def _verdict_of(state: State) -> Verdict | None:
    return state.job.incident.verdict if state.job.incident else None


def _of_the_event(before: State, event: AnyEvent, decision: Decision) -> tuple[str, str] | None:
    """Returns the line on the event itself; None if it changed nothing and has no message."""
    match event:
        case JobSubmitted():
            command = f": {shlex.join(event.command)}" if event.command else ""
            return ("job", decision.why + command) if decision.why else None
        case FindingNoted():
            return "news", event.text
        case JobMoved() if decision.state != before:
            return "request", event.reason
        case NodesChecked():
            words = check_words(event, is_named=_has_several(before))
            return None if _is_no_news(before, event) else ("check", words)
        case AttemptStarted():
            return "attempt", f"attempt {event.attempt} runs on {_nodes(decision.state.job)}"
        case AttemptStopped() if before.job.alive and not event.left and event.attempt == before.job.attempt:
            return (
                "attempt",
                f"attempt {event.attempt} has ended; nothing of it is left{_out_of_reach(before.job)}",
            )
        case NodeIsolated() if event.node in before.job.to_isolate:
            return "hardware", f"{event.node} is isolated"
        case NodeReleased():
            return "hardware", f"{event.node} was given back"
        case DeviceHealed():
            end = "has healed" if event.healed else "did not heal"
            return "hardware", f"device {event.device} of {event.node} {end}"
        case StopRequested() | RestartRequested() if decision.state != before:
            return "request", request_words(event)
        case RankExited() | WorkerExited() if _is_news(before, event, decision):
            return "news", f"{_who(event)} ended with {event.code}"
        case _:
            return _of_the_decision(before, decision)


def _is_news(before: State, event: RankExited | WorkerExited, decision: Decision) -> bool:
    """Returns whether a rank died while its launcher continues, which deserves a log line but no incident."""
    return (
        isinstance(before.phase, Running)
        and bool(event.code)
        and not decision.why
        and event.attempt == before.job.attempt
    )


def _who(event: RankExited | WorkerExited) -> str:
    return f"rank {event.rank}" if isinstance(event, RankExited) else f"the command of worker {event.worker}"


def _of_the_decision(before: State, decision: Decision) -> tuple[str, str] | None:
    job, why = decision.state.job, decision.why
    if not why or decision.choice is not None or isinstance(decision.state.phase, Ended):
        return None
    if job.attempt != before.job.attempt:
        return None  # the line follows when the attempt runs
    if isinstance(decision.state.phase, Diagnosing) and job.incident is not None:
        return "finding", f"incident {job.incident.number}: {why}"
    if before.job.incident is not None and job.incident is None:
        return "recovered", why
    return "news", why


def _out_of_reach(job: Job) -> str:
    """Returns a note about lost nodes, on which processes may remain; empty if there are none."""
    faults = job.incident.faults if job.incident is not None else ()
    lost = [one.node for one in faults if isinstance(one, NodeFault) and one.node in job.lost]
    return f", but perhaps on {listed(lost)}, out of reach" if lost else ""


def _nodes(job: Job) -> str:
    return listed([worker.node for worker in job.workers if worker.node]) or "no known node"


def _is_no_news(before: State, event: NodesChecked) -> bool:
    """Returns whether a spare passed its check again, which needs no log line."""
    known = {one.node for one in before.job.passed}
    return event.context == IDLE and event.status != FAIL and known.issuperset(event.nodes)


def _has_several(state: State) -> bool:
    """Returns whether the job has several workers, so that lines must name the node."""
    return len(state.job.workers) > 1
