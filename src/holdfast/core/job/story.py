"""Builds the fault-tolerance log and a summary of the job from events and decisions.

It depends on the journal only: the same events give the same story. Reads no clock; times are those of the events. Pure.
"""

import shlex

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job.decision import Decision
from holdfast.core.job.wording import (
    action_words,
    check_lines,
    check_words,
    ended_words,
    listed,
    not_again_words,
    phase_words,
    remark_words,
    request_words,
    verdict_words,
)
from holdfast.model.checks import FAIL, IDLE
from holdfast.model.documents.incidents import Correction
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    DeviceHealed,
    FindingNoted,
    IncidentAcknowledged,
    JobMoved,
    JobSubmitted,
    NodeIsolated,
    NodeReleased,
    NodesChecked,
    Numbers,
    RankExited,
    RankStarted,
    RestartRequested,
    StepReached,
    StopRequested,
    VerdictCorrected,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import (
    Choice,
    Diagnosing,
    Ended,
    Incident,
    Job,
    NodeFault,
    Running,
    State,
)
from holdfast.model.verdicts import Verdict

INCIDENTS_MAX = 1_000  # kept in full; of older ones only the lines of the log remain
CORRECTIONS_MAX = 20  # of one incident, the newest
KINDS = (
    "job",
    "attempt",
    "finding",
    "verdict",
    "rung",
    "recovered",
    "hardware",
    "check",
    "news",
    "request",
    "end",
)


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the fault-tolerance log. `kind`: one of KINDS.

    `finding`, `numbers`: kind and figures of a finding that never blocks.
    """

    at_s: float
    attempt: int
    incident: int | None
    kind: str
    text: str
    finding: str = ""
    numbers: Numbers = {}


class RungTaken(Struct, frozen=True, kw_only=True):
    at_s: float
    rung: str
    why: str
    shadow: bool = False


class IncidentStory(Struct, frozen=True, kw_only=True):
    """`took_s`: seconds from detection until training resumes; None while it is open, and if the job ended in it.

    `step_before`: the best step of the attempt that failed; `step_resumed`: the first step after the recovery.
    `steps_lost`: steps that must be repeated; None if a step is unknown.
    `acknowledged_by`: the person who did it first. `corrections`: what people said against the verdict, the newest last.
    """

    number: int
    attempt: int
    found_at_s: float
    found: str
    verdict: Verdict | None = None
    rungs: tuple[RungTaken, ...] = ()
    over: bool = False
    took_s: float | None = None
    step_before: int | None = None
    step_resumed: int | None = None
    steps_lost: int | None = None
    acknowledged_by: str = ""
    acknowledged_at_s: float | None = None
    corrections: tuple[Correction, ...] = ()


class AttemptStory(Struct, frozen=True, kw_only=True):
    number: int
    started_at_s: float
    ended_at_s: float | None = None


class RankKnown(Struct, frozen=True, kw_only=True):
    """A rank of the present attempt. `code`: its exit code, once it has ended."""

    rank: int
    worker: int
    pid: int
    code: int | None = None
    ended: bool = False


class Summary(Struct, frozen=True, kw_only=True):
    """The job after the last event. `outcome` is empty until the job has ended."""

    job: str
    phase: str
    phase_words: str
    outcome: str
    code: int | None
    max_restarts: int | None
    restarts: int
    hardware_reschedules: int
    replacements: int
    attempt: int
    step: int | None
    submitted_at_s: float | None
    last_at_s: float | None
    isolated: tuple[str, ...]
    lost: tuple[str, ...]
    attempts: tuple[AttemptStory, ...]
    incidents: tuple[IncidentStory, ...]
    ranks: tuple[RankKnown, ...]


class Story:
    """Takes each event with its decision, in order, and returns the lines that it adds to the log."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.state = State()
        self._submitted_at_s: float | None = None
        self._last_at_s: float | None = None
        self._incidents: dict[int, IncidentStory] = {}
        self._attempts: dict[int, AttemptStory] = {}
        self._ranks: dict[int, RankKnown] = {}

    def hear(self, event: AnyEvent, decision: Decision) -> list[Line]:
        if isinstance(event, IncidentAcknowledged | VerdictCorrected):
            return [self._note_remark(event)]
        before, self.state = self.state, decision.state
        self._last_at_s = event.at_s
        again = isinstance(event, AttemptStarted) and event.attempt in self._attempts
        self._note(before, event, decision)
        job = decision.state.job
        # The incident that a line belongs to: the open one, or the one that this event has closed.
        incident = job.incident or before.job.incident
        number = incident.number if incident else None
        lines = [
            Line(at_s=event.at_s, attempt=job.attempt, incident=number, kind=kind, text=text)
            for kind, text in _texts(before, event, decision)
            if not again  # a resumed controller repeats its order
        ]
        if isinstance(event, FindingNoted):
            return [replace(line, finding=event.finding, numbers=event.numbers) for line in lines]
        return lines

    @property
    def ended(self) -> bool:
        return isinstance(self.state.phase, Ended)

    def summary(self) -> Summary:
        job, phase = self.state.job, self.state.phase
        ended = phase if isinstance(phase, Ended) else None
        return Summary(
            job=job.name,
            phase=str(type(phase).__struct_config__.tag),
            phase_words=phase_words(job, phase),
            outcome=ended.outcome if ended else "",
            code=ended.code if ended else None,
            max_restarts=self._policy.max_restarts,
            restarts=job.restarts,
            hardware_reschedules=job.hardware_reschedules,
            replacements=job.replacements,
            attempt=job.attempt,
            step=job.step,
            submitted_at_s=self._submitted_at_s,
            last_at_s=self._last_at_s,
            isolated=job.isolated,
            lost=job.lost,
            attempts=tuple(self._attempts.values()),
            incidents=tuple(self._incidents.values()),
            ranks=tuple(self._ranks[rank] for rank in sorted(self._ranks)),
        )

    # What is remembered -----------------------------------------------------------------------------------

    def _note(self, before: State, event: AnyEvent, decision: Decision) -> None:
        match event:
            case JobSubmitted():
                if self._submitted_at_s is None:
                    self._submitted_at_s = event.at_s
            case RankStarted() | RankExited():
                self._note_rank(event)
            case AttemptStarted(attempt=number):
                if number not in self._attempts:
                    self._attempts[number] = AttemptStory(number=number, started_at_s=event.at_s)
            case AttemptStopped(attempt=number) if number in self._attempts and not event.left:
                self._attempts[number] = replace(self._attempts[number], ended_at_s=event.at_s)
            case StepReached():
                self._note_resumed(event)
            case _:
                pass
        if decision.state.job.attempt != before.job.attempt:
            self._ranks.clear()
        self._note_incident(before, event, decision)

    def _note_rank(self, event: RankStarted | RankExited) -> None:
        if event.attempt != self.state.job.attempt:
            return
        known = self._ranks.get(event.rank)
        if isinstance(event, RankStarted):
            self._ranks[event.rank] = RankKnown(rank=event.rank, worker=event.worker, pid=event.pid)
        elif known is not None:
            self._ranks[event.rank] = replace(known, code=event.code, ended=True)

    def _note_resumed(self, event: StepReached) -> None:
        """Computes the lost steps from the first step after the recovery. Steps during a diagnosis do not count."""
        last = next(reversed(self._incidents.values()), None)
        if last is None or last.step_resumed is not None or event.attempt != self.state.job.attempt:
            return
        if not isinstance(self.state.phase, Running):
            return
        lost = None
        if last.step_before is not None:
            lost = max(0, last.step_before - event.step + 1) if event.attempt != last.attempt else 0
        self._incidents[last.number] = replace(last, step_resumed=event.step, steps_lost=lost)

    def _note_remark(self, event: IncidentAcknowledged | VerdictCorrected) -> Line:
        """What a person says of an incident. It is no sign of life: an ended job can have it."""
        known = self._incidents.get(event.incident)
        if known is not None and isinstance(event, VerdictCorrected):
            said = Correction(category=event.category, text=event.text, by=event.by, at_s=event.at_s)
            known = replace(known, corrections=(*known.corrections, said)[-CORRECTIONS_MAX:])
        elif known is not None and not known.acknowledged_by:
            known = replace(known, acknowledged_by=event.by, acknowledged_at_s=event.at_s)
        if known is not None:
            self._incidents[event.incident] = known
        return Line(
            at_s=event.at_s,
            attempt=known.attempt if known is not None else self.state.job.attempt,
            incident=event.incident,
            kind="request",
            text=remark_words(event),
        )

    def _note_incident(self, before: State, event: AnyEvent, decision: Decision) -> None:
        old, new = before.job.incident, decision.state.job.incident
        if new is not None and new.number not in self._incidents:
            self._open(new, before.job, decision.why)
        incident = new or old
        if incident is None or incident.number not in self._incidents:
            return
        told = self._incidents[incident.number]
        if new is not None and new.verdict is not None:
            told = replace(told, verdict=new.verdict)
        if decision.choice is not None and decision.choice.incident == told.number:
            told = replace(told, rungs=(*told.rungs, _rung(decision.choice, event.at_s)))
        if new is None and old is not None:
            told = replace(told, over=True, took_s=event.at_s - told.found_at_s)
        self._incidents[told.number] = told

    def _open(self, incident: Incident, job: Job, found: str) -> None:
        self._incidents[incident.number] = IncidentStory(
            number=incident.number,
            attempt=incident.attempt,
            found_at_s=incident.since_s,
            found=found,
            step_before=job.step,
        )
        if len(self._incidents) > INCIDENTS_MAX:
            del self._incidents[next(iter(self._incidents))]


def _rung(choice: Choice, at_s: float) -> RungTaken:
    return RungTaken(at_s=at_s, rung=choice.rung, why=choice.why, shadow=choice.shadow)


# Lines ---------------------------------------------------------------------------------------------------


def _texts(before: State, event: AnyEvent, decision: Decision) -> list[tuple[str, str]]:
    """The kinds and texts of the lines for one event, in their order."""
    texts: list[tuple[str, str]] = []
    if told := _of_the_event(before, event, decision):
        texts.append(told)
    if isinstance(event, NodesChecked):
        texts += [("check", line) for line in check_lines(event, is_named=_has_several(before))]
    if isinstance(event, WorkersPlaced) and (
        words := not_again_words(before.job, decision.state.job, event.at_s)
    ):
        texts.append(("check", words))
    incident = decision.state.job.incident
    if incident is not None and incident.verdict is not None and _verdict_of(before) != incident.verdict:
        texts.append(("verdict", f"incident {incident.number}: verdict: {verdict_words(incident.verdict)}"))
    if decision.choice is not None:
        choice = decision.choice
        text = decision.why if choice.shadow else f"action: {action_words(choice)}"
        texts.append(("rung", f"incident {choice.incident}: {text}"))
    phase = decision.state.phase
    if isinstance(phase, Ended) and not isinstance(before.phase, Ended):
        texts.append(("end", f"the job {ended_words(phase)}: {phase.reason}"))
    return texts


def _verdict_of(state: State) -> Verdict | None:
    return state.job.incident.verdict if state.job.incident else None


def _of_the_event(before: State, event: AnyEvent, decision: Decision) -> tuple[str, str] | None:
    """The line of the event itself; None if it changed nothing and has no message."""
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
    """A rank died while its launcher goes on: the launcher handles it, and the log mentions it."""
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
        return None  # the line comes when the attempt runs
    if isinstance(decision.state.phase, Diagnosing) and job.incident is not None:
        return "finding", f"incident {job.incident.number}: {why}"
    if before.job.incident is not None and job.incident is None:
        return "recovered", why
    return "news", why


def _out_of_reach(job: Job) -> str:
    """Names lost nodes, where processes may be left."""
    faults = job.incident.faults if job.incident is not None else ()
    lost = [one.node for one in faults if isinstance(one, NodeFault) and one.node in job.lost]
    return f", but perhaps on {listed(lost)}, out of reach" if lost else ""


def _nodes(job: Job) -> str:
    return listed([worker.node for worker in job.workers if worker.node]) or "no known node"


def _is_no_news(before: State, event: NodesChecked) -> bool:
    """Whether a spare passed its check again."""
    known = {one.node for one in before.job.passed}
    return event.context == IDLE and event.status != FAIL and known.issuperset(event.nodes)


def _has_several(state: State) -> bool:
    """Whether lines must name the node."""
    return len(state.job.workers) > 1
