"""Describes verdicts, checks, phases and outcomes of a job in words for people. Pure."""

from collections.abc import Iterable
from typing import assert_never

from holdfast.model.checks import FAIL, IDLE, ON_FAILURE
from holdfast.model.events import (
    IncidentAcknowledged,
    NodesChecked,
    RestartRequested,
    StopRequested,
    VerdictCorrected,
)
from holdfast.model.state import (
    AnyPhase,
    Checking,
    Choice,
    Diagnosing,
    Ended,
    Finishing,
    Healing,
    Holding,
    Isolating,
    Job,
    New,
    Placing,
    Running,
    Stopping,
    Waiting,
)
from holdfast.model.verdicts import Culprit, Verdict

LOOK_AT = "to look at"  # start of a line about a check that warns
NAMES_MAX = 4  # names in one line


def listed(nodes: Iterable[str]) -> str:
    """Returns the names, each once, at most `NAMES_MAX` of them: "n0, n1, n2, n3 and 508 more"."""
    names = list(dict.fromkeys(nodes))
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def action_words(choice: Choice) -> str:
    """Returns the chosen action with its reason: "reschedule the job (restart 1 of 8), because rank 2 ran out
    of GPU memory".
    """
    return f"fail the job, because {choice.why}" if choice.rung == "fail" else choice.why


def verdict_words(verdict: Verdict) -> str:
    """Returns a verdict on one line: the title, the confidence, the culprits, and the place of the first
    error.
    """
    words = f"{verdict.title} ({verdict.category}, {verdict.confidence:.0%} sure)"
    if verdict.culprits:
        named = "; ".join(culprit_words(culprit) for culprit in verdict.culprits[:NAMES_MAX])
        more = len(verdict.culprits) - NAMES_MAX
        words += f"; culprit: {named}" + (f" and {more} more" if more > 0 else "")
    first = verdict.first_error
    if first is not None and first.file:
        words += f"; first error: {first.file}" + (f":{first.line}" if first.line is not None else "")
    return words


def remark_words(event: IncidentAcknowledged | VerdictCorrected) -> str:
    """Returns a user's remark on an incident as a log line: "incident 3: acknowledged by ana"."""
    done = (
        f"the verdict is corrected to {event.category}"
        if isinstance(event, VerdictCorrected)
        else "acknowledged"
    )
    return f"incident {event.incident}: {done} by {event.by}" + (f": {event.text}" if event.text else "")


def request_words(event: StopRequested | RestartRequested) -> str:
    """Returns a request to stop or restart as a log line: "ana asks for a restart: new data"."""
    if isinstance(event, StopRequested):
        return f"the job is asked to stop{' at once' if event.force else ''}: {event.reason}"
    return f"{event.by} asks for a restart" + (f": {event.reason}" if event.reason else "")


def check_words(event: NodesChecked, *, is_named: bool = False) -> str:
    """Returns the result of a check of nodes on one line: "boot check: 31 passed, 2 to look at, 4 skipped, in
    1.2 s".

    `is_named`: name the node even if the job has only one.
    """
    name = check_name(event)
    is_named = is_named or len(event.nodes) > 1 or event.context == IDLE
    where = f" of {listed(event.nodes)}" if is_named and event.nodes else ""
    where += ", a spare node" if event.context == IDLE else ""
    if event.why_not:
        return f"{name}{where}: nothing was checked: {event.why_not}"
    failed = f"{event.failed} failed, " if event.failed else ""
    return (
        f"{name}{where}: {event.passed} passed, {failed}{event.warned} to look at, {event.skipped} skipped, "
        f"in {event.seconds:.1f} s"
    )


def not_again_words(before: Job, after: Job, at_s: float) -> str:
    """Returns a note that nodes are not checked again because they passed recently; empty if every new node
    is checked.
    """
    pairs = zip(before.workers, after.workers, strict=False)
    fresh = [new for old, new in pairs if old.node is None and new.node is not None]
    passed = {one.node: one.at_s for one in before.passed}
    spared = [new.node for new in fresh if new.node is not None and not new.to_check and new.node in passed]
    if not spared:
        return ""
    ago_s = max(at_s - passed[node] for node in spared)
    ago = f"{ago_s:.0f} s ago" if ago_s < 60 else f"{ago_s / 60:.0f} min ago"
    others = [new.node for new in fresh if new.node is not None and new.to_check]
    if others:
        return f"boot check: only of {listed(others)}; the other new places passed it {ago}"
    who = "all nodes" if len(spared) > 1 else spared[0]
    return f"boot check: not made again, {who} passed it {ago}"


def check_name(event: NodesChecked) -> str:
    """Returns the name of a check of nodes: "boot check" before a start, "troubleshooting" after
    a failure.
    """
    return "troubleshooting" if event.context == ON_FAILURE else "boot check"


def check_lines(event: NodesChecked, *, is_named: bool = False) -> list[str]:
    """Returns a line for each failure and warning of a check of nodes, with advice.

    `is_named`: name the node even if the job has only one.
    """
    several = len(event.nodes) > 1
    if event.why_not and not several:
        return []  # `check_words` says it
    lines = []
    for finding in event.troubles:
        where = f"{finding.node}: " if several or is_named else ""
        word = "failed" if finding.status == FAIL else LOOK_AT
        advice = f" Advice: {finding.advice}" if finding.advice else ""
        lines.append(f"{word}: {where}{finding.text}.{advice}".replace("..", "."))
    return lines


def culprit_words(culprit: Culprit) -> str:
    """Returns a culprit with host, worker, rank and device, as far as known."""
    parts = (
        f"rank {culprit.rank}" if culprit.rank is not None else "",
        f"worker {culprit.worker}" if culprit.worker is not None else "",
        culprit.host or "",
        f"device {culprit.device}" if culprit.device else "",
    )
    return ", ".join(filter(None, parts)) or "unknown"


def ended_words(phase: Ended) -> str:
    """Returns the outcome of a job: "succeeded", "failed with exit code 1", "was stopped with
    exit code 130".
    """
    word = "was stopped" if phase.outcome == "stopped" else phase.outcome
    return word if phase.outcome == "succeeded" else f"{word} with exit code {phase.code}"


def phase_words(job: Job, phase: AnyPhase) -> str:  # noqa: C901 - one case per phase
    """Returns a description of the current phase, such as "checking n0, n1 before attempt 2 starts"."""
    match phase:
        case New():
            return "not submitted yet"
        case Placing():
            return f"placing the workers of attempt {job.attempt + 1}"
        case Waiting():
            return f"waiting for a healthy node for attempt {job.attempt + 1}"
        case Checking():
            nodes = listed(worker.node for worker in job.workers if worker.to_check and worker.node)
            return f"checking {nodes} before attempt {job.attempt + 1} starts"
        case Running():
            return _running_words(job, phase)
        case Diagnosing():
            return f"diagnosing why attempt {job.attempt} failed"
        case Isolating():
            return f"isolating {', '.join(job.to_isolate[:NAMES_MAX])}"
        case Stopping():
            return f"ending what is left of attempt {job.attempt}"
        case Healing():
            return f"giving {', '.join(device.device for device in job.to_heal[:NAMES_MAX])} time to heal"
        case Holding():
            return f"failed: {phase.reason}; the processes are kept for inspection"
        case Finishing():
            return f"ending: {phase.reason}"
        case Ended():
            return f"{ended_words(phase)}: {phase.reason}"
        case never:
            assert_never(never)


def _running_words(job: Job, phase: Running) -> str:
    at = f", step {job.step}" if job.step is not None else ""
    if job.incident is None:
        return f"training{at}" if at or not job.attempt else "running; its log has named no step yet"
    if phase.handled:
        return f"no action taken after incident {job.incident.number} ({job.incident.rung})"
    return f"started again after incident {job.incident.number}, no step yet"
