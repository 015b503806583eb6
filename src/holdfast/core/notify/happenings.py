"""Finds in each event and decision of a job what users may want to be notified of. Pure.

Each happening names the notification that it belongs to; all happenings of one incident update one notification.
"""

from msgspec import Struct

from holdfast.core.job.decision import Decision
from holdfast.model.documents.notices import NoticeEvent, Severity
from holdfast.model.events import (
    AnyEvent,
    FindingNoted,
    JobSubmitted,
    NodeIsolated,
    PlacementFailed,
)
from holdfast.model.policy import Policy
from holdfast.model.state import Ended, HangFault, Incident, State, Waiting

# By kind of a finding that never blocks (model.steps.FindingKind). "X-over" ends the notice that "X" opened.
FINDINGS: dict[str, tuple[NoticeEvent, Severity]] = {
    "slowdown": ("slowdown", "warning"),
    "platform-slowdown": ("slowdown", "warning"),
    "throughput-drop": ("slowdown", "warning"),
    "slowdown-over": ("slowdown", "info"),
    "straggler": ("straggler", "warning"),
    "straggler-over": ("straggler", "info"),
    "loss-nan": ("loss", "critical"),
    "loss-diverged": ("loss", "critical"),
    "loss-spike": ("loss", "warning"),
    "step-stands": ("log-silence", "warning"),
    "checkpoint-old": ("checkpoint-old", "warning"),
}
OVER = "-over"
BUDGET_LEFT = 1  # restarts: people are notified when no more than this are left


class Happening(Struct, frozen=True, kw_only=True):
    """Something in a job that users may be notified of: an incident opened, a slowdown, the end of the job.

    `key`: identifies the notification within the job ("incident-3", "slowdown-1", "job"). `text`: the text of the
    finding. `is_milestone`: channels that cannot update a message send a new one for it. `is_over`: no update of this
    notification follows.
    """

    key: str
    event: NoticeEvent
    severity: Severity
    at_s: float
    incident: int | None = None
    text: str = ""
    text_zh: str = ""
    is_milestone: bool = True
    is_over: bool = False


def happenings(before: State, event: AnyEvent, decision: Decision, policy: Policy) -> list[Happening]:
    """Returns what people may be notified of because of one event and its decision; mostly nothing.

    `before`: the state before the event.
    """
    found = [*_of_incident(before, event, decision), *_of_event(before, event, decision)]
    found += _of_phase(before, event, decision.state)
    found += _of_budget(before, event, decision.state, policy)
    return found


def _of_incident(before: State, event: AnyEvent, decision: Decision) -> list[Happening]:
    old, new = before.job.incident, decision.state.job.incident
    found: list[Happening] = []
    is_end = isinstance(decision.state.phase, Ended)
    if new is not None and (old is None or old.number != new.number):
        found.append(_incident(new, _opened(new), "warning", event.at_s))
    if new is not None and new.verdict is not None:
        known = old.verdict if old is not None and old.number == new.number else None
        if known != new.verdict:
            found.append(_incident(new, "verdict", "warning", event.at_s))
    if old is not None and new is None and not is_end:
        found.append(_incident(old, "recovered", "info", event.at_s, is_over=True))
    if decision.choice is not None and new is not None and not is_end:
        name = "verdict" if new.verdict is not None else _opened(new)
        found.append(_incident(new, name, "warning", event.at_s, is_milestone=False))
    return found


def _opened(incident: Incident) -> NoticeEvent:
    return "hang" if any(isinstance(fault, HangFault) for fault in incident.faults) else "incident"


def _incident(
    incident: Incident,
    event: NoticeEvent,
    severity: Severity,
    at_s: float,
    *,
    is_milestone: bool = True,
    is_over: bool = False,
) -> Happening:
    return Happening(
        key=f"incident-{incident.number}",
        event=event,
        severity=severity,
        at_s=at_s,
        incident=incident.number,
        is_milestone=is_milestone,
        is_over=is_over,
    )


def _of_event(before: State, event: AnyEvent, decision: Decision) -> list[Happening]:
    match event:
        case JobSubmitted() if not before.job.name:
            return [Happening(key="job", event="job-started", severity="info", at_s=event.at_s)]
        case FindingNoted(finding=finding) if finding in FINDINGS:
            name, severity = FINDINGS[finding]
            return [
                Happening(
                    key=f"{finding.removesuffix(OVER)}-{event.attempt or 0}",
                    event=name,
                    severity=severity,
                    at_s=event.at_s,
                    text=event.text,
                    is_over=finding.endswith(OVER),
                )
            ]
        case NodeIsolated(node=node) if node in before.job.to_isolate:
            return [
                Happening(
                    key=f"isolation-{node}",
                    event="isolation",
                    severity="warning",
                    at_s=event.at_s,
                    text=node,
                    is_over=True,
                )
            ]
        case PlacementFailed(hopeless=True):
            return [
                Happening(
                    key="place", event="no-spare", severity="critical", at_s=event.at_s, text=event.reason
                )
            ]
        case _:
            return []


def _of_phase(before: State, event: AnyEvent, after: State) -> list[Happening]:
    found: list[Happening] = []
    is_waiting, was_waiting = isinstance(after.phase, Waiting), isinstance(before.phase, Waiting)
    if is_waiting and not was_waiting:
        found.append(Happening(key="place", event="waiting-for-node", severity="critical", at_s=event.at_s))
    if was_waiting and not is_waiting and not isinstance(after.phase, Ended):
        found.append(
            Happening(key="place", event="waiting-for-node", severity="info", at_s=event.at_s, is_over=True)
        )
    if isinstance(after.phase, Ended) and not isinstance(before.phase, Ended):
        found += _end(before.job.incident or after.job.incident, event.at_s, after.phase)
    return found


def _end(incident: Incident | None, at_s: float, phase: Ended) -> list[Happening]:
    """Returns the happenings of a job's end.

    An incident that is open then ends with the job, in failure or in success.
    """
    if phase.outcome == "failed":
        if incident is not None:
            return [_incident(incident, "failed", "critical", at_s, is_over=True)]
        return [Happening(key="job", event="failed", severity="critical", at_s=at_s, is_over=True)]
    done = Happening(key="job", event="job-done", severity="info", at_s=at_s, is_over=True)
    if incident is None:
        return [done]
    return [_incident(incident, "job-done", "info", at_s, is_over=True), done]


def _of_budget(before: State, event: AnyEvent, after: State, policy: Policy) -> list[Happening]:
    allowed = policy.max_restarts
    if allowed is None or after.job.restarts == before.job.restarts:
        return []
    if allowed - after.job.restarts > BUDGET_LEFT:
        return []
    return [
        Happening(
            key="budget",
            event="budget-low",
            severity="critical" if after.job.restarts >= allowed else "warning",
            at_s=event.at_s,
            text=f"{after.job.restarts} of {allowed}",
        )
    ]
