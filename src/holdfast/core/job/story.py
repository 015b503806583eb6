"""Builds the fault-tolerance log and the summary of a job from its events and decisions. Pure.

The result depends only on the journal: equal events produce equal logs and summaries. Times come from the events.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.checkpoints.words import KIND as RAM_CHECKPOINT
from holdfast.core.checkpoints.words import graver
from holdfast.core.compare.resume import KIND as RESUME_CHECK
from holdfast.core.job.decision import Decision
from holdfast.core.job.policy_change import in_force
from holdfast.core.job.spent import KeptSpending, Part, Spending, Spent
from holdfast.core.job.stops import asked_by
from holdfast.core.job.story_lines import texts
from holdfast.core.job.story_parts import RankEnd, RankKnown, RungTaken
from holdfast.core.job.wording import (
    phase_words,
    remark_words,
)
from holdfast.core.workers.memory import MOVED
from holdfast.model.checks import ON_FAILURE
from holdfast.model.documents.incidents import Correction
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    CheckFinding,
    ControllerResumed,
    FindingNoted,
    IncidentAcknowledged,
    JobMoved,
    JobSubmitted,
    NodesChecked,
    Numbers,
    RankExited,
    RankStarted,
    StepReached,
    StopRequested,
    VerdictCorrected,
    WorkerExited,
)
from holdfast.model.policy import Policy
from holdfast.model.state import (
    AnyFault,
    Choice,
    Ended,
    Finishing,
    Holding,
    Incident,
    Job,
    Running,
    State,
)
from holdfast.model.verdicts import Verdict

INCIDENTS_MAX = 1_000  # with details; older ones keep only their log lines
CORRECTIONS_MAX = 20  # per incident: the newest
RUNGS_MAX, TROUBLES_MAX, EXITS_MAX = 32, 64, 64  # per incident
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
    """One line of the fault-tolerance log. `kind`: one of KINDS. `finding`, `numbers`: only of a finding."""

    at_s: float
    attempt: int
    incident: int | None
    kind: str
    text: str
    finding: str = ""
    numbers: Numbers = {}


class IncidentStory(Struct, frozen=True, kw_only=True):
    """The history of one incident: its faults, verdict, recovery actions (rungs), and how it ended.

    `took_s`: seconds from detection until training resumes; None while it is open or if the job ended in it. `step_before`:
    the best step of the failed attempt; `step_resumed`: the first one after the recovery. `steps_lost`: steps to repeat;
    None if unknown. `corrections`: users' corrections of the verdict. `nodes`, `nodes_after`: node by worker, of the failed
    and of the resumed attempt. `troubles`: failed checks. `ended`: the job ended in it. `resume`: how the losses of repeated
    steps compare (core/compare/resume.py). `checkpoint`: what became of its checkpoint (core/checkpoints/words.py).
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
    problem: str = ""
    faults: tuple[AnyFault, ...] = ()
    nodes: dict[int, str] = {}
    nodes_after: dict[int, str] = {}
    spent: tuple[Part, ...] = ()
    troubles: tuple[CheckFinding, ...] = ()
    exits: tuple[RankEnd, ...] = ()
    ended: bool = False
    resume: Numbers = {}
    checkpoint: Numbers = {}


class AttemptStory(Struct, frozen=True, kw_only=True):
    """The history of an attempt. `nodes`: node by worker. Steps: None if its log contains none."""

    number: int
    started_at_s: float
    ended_at_s: float | None = None
    nodes: dict[int, str] = {}
    first_step: int | None = None
    last_step: int | None = None
    last_step_at_s: float | None = None


class Summary(Struct, frozen=True, kw_only=True):
    """The state and the history of a job after its last event.

    `outcome`: empty until the job has ended. `reason`: why it ended or is ending. `ended_by`: as in
    StopRequested. `moved`: why the scheduler ended all processes; empty if it did not, or has restarted them.
    `nodes`: node by worker. `devices`: number of devices on these nodes, from the boot check.
    """

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
    workers: int = 0
    nodes: dict[int, str] = {}
    devices: int = 0
    phase_since_s: float | None = None
    reason: str = ""
    ended_by: str = ""
    moved: str = ""
    spent: Spent = Spent()


class KeptStory(Struct, frozen=True, kw_only=True):
    """The stored state of a Story (a job's log and summary), from which another Story continues."""

    state: State
    submitted_at_s: float | None
    last_at_s: float | None
    incidents: tuple[IncidentStory, ...]
    attempts: tuple[AttemptStory, ...]
    ranks: tuple[RankKnown, ...]
    spending: KeptSpending
    phase_since_s: float | None
    ended_by: str
    moved: str
    devices: dict[str, int]


class Story:
    """Builds the log and the summary of a job from its events and decisions, in order."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.state = State()
        self._submitted_at_s: float | None = None
        self._last_at_s: float | None = None
        self._incidents: dict[int, IncidentStory] = {}
        self._attempts: dict[int, AttemptStory] = {}
        self._ranks: dict[int, RankKnown] = {}
        self._spending = Spending()
        self._phase_since_s: float | None = None
        self._ended_by = ""
        self._moved = ""
        self._devices: dict[str, int] = {}  # by node

    def hear(self, event: AnyEvent, decision: Decision) -> list[Line]:
        """Processes one event with its decision, and returns the log lines for it."""
        if isinstance(event, IncidentAcknowledged | VerdictCorrected):
            return [self._note_remark(event)]
        before, self.state = self.state, decision.state
        self._last_at_s = event.at_s
        again = isinstance(event, AttemptStarted) and event.attempt in self._attempts
        self._spending.hear(before, event, decision.state)
        if type(before.phase) is not type(decision.state.phase) or self._phase_since_s is None:
            self._phase_since_s = event.at_s
        self._note(before, event, decision)
        job = decision.state.job
        # A line belongs to the open incident, or to the one that this event closed.
        incident = job.incident or before.job.incident
        number = incident.number if incident else None
        lines = [
            Line(at_s=event.at_s, attempt=job.attempt, incident=number, kind=kind, text=text)
            for kind, text in texts(before, event, decision)
            if not again  # a resumed controller repeats its order
        ]
        if isinstance(event, FindingNoted):
            return [replace(line, finding=event.finding, numbers=event.numbers) for line in lines]
        return lines

    def hear_steps(self, steps: Sequence[StepReached], state: State) -> None:
        """Processes several step events at once, which makes replay fast.

        Allowed only if the steps change nothing but the job's step number, and no incident waits for a step (`awaits_step`).
        """
        self.state = state
        self._last_at_s = steps[-1].at_s
        self._spending.hear_steps(steps)
        for step in (steps[0], max(steps, key=lambda step: step.step), steps[-1]):
            self._note_step(step)

    @property
    def awaits_step(self) -> bool:
        """Returns whether an incident is open whose recovery ends with the next training step."""
        last = next(reversed(self._incidents.values()), None)
        return last is not None and last.step_resumed is None

    @property
    def ended(self) -> bool:
        """Returns whether the job has ended."""
        return isinstance(self.state.phase, Ended)

    def summary(self) -> Summary:
        """Returns the current state of the job and its history for display."""
        job, phase = self.state.job, self.state.phase
        ended = phase if isinstance(phase, Ended) else None
        return Summary(
            job=job.name,
            phase=str(type(phase).__struct_config__.tag),
            phase_words=phase_words(job, phase),
            outcome=ended.outcome if ended else "",
            code=ended.code if ended else None,
            max_restarts=in_force(job, self._policy).max_restarts,
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
            incidents=tuple(
                replace(one, spent=self._spending.parts(one.number)) for one in self._incidents.values()
            ),
            ranks=tuple(self._ranks[rank] for rank in sorted(self._ranks)),
            workers=len(job.workers),
            nodes=placed_nodes(job),
            devices=sum(self._devices.get(node, 0) for node in set(placed_nodes(job).values())),
            phase_since_s=self._phase_since_s,
            reason=phase.reason if isinstance(phase, Ended | Finishing | Holding) else "",
            ended_by=self._ended_by,
            moved=self._moved,
            spent=self._spending.spent,
        )

    def kept(self) -> KeptStory:
        return KeptStory(
            state=self.state,
            submitted_at_s=self._submitted_at_s,
            last_at_s=self._last_at_s,
            incidents=tuple(self._incidents.values()),
            attempts=tuple(self._attempts.values()),
            ranks=tuple(self._ranks.values()),
            spending=self._spending.kept(),
            phase_since_s=self._phase_since_s,
            ended_by=self._ended_by,
            moved=self._moved,
            devices=self._devices,
        )

    @staticmethod
    def restored(policy: Policy, kept: KeptStory) -> "Story":
        story = Story(policy)
        story.state = kept.state
        story._submitted_at_s, story._last_at_s = kept.submitted_at_s, kept.last_at_s
        story._incidents = {one.number: one for one in kept.incidents}
        story._attempts = {one.number: one for one in kept.attempts}
        story._ranks = {one.rank: one for one in kept.ranks}
        story._spending.restore(kept.spending)
        story._phase_since_s, story._ended_by, story._moved = kept.phase_since_s, kept.ended_by, kept.moved
        story._devices = dict(kept.devices)
        return story

    # Records -----------------------------------------------------------------------------------------------

    def _note(self, before: State, event: AnyEvent, decision: Decision) -> None:
        match event:
            case JobSubmitted():
                if self._submitted_at_s is None:
                    self._submitted_at_s = event.at_s
            case RankStarted() | RankExited():
                self._note_rank(event)
            case AttemptStarted(attempt=number):
                if number not in self._attempts:
                    nodes = placed_nodes(decision.state.job)
                    self._attempts[number] = AttemptStory(number=number, started_at_s=event.at_s, nodes=nodes)
            case AttemptStopped(attempt=number) if number in self._attempts and not event.left:
                self._attempts[number] = replace(self._attempts[number], ended_at_s=event.at_s)
            case StepReached():
                self._note_step(event)
                self._note_resumed(event)
            case _:
                self._note_surroundings(before, event, decision)
        if decision.state.job.attempt != before.job.attempt:
            self._ranks.clear()
        self._note_incident(before, event, decision)

    def _note_surroundings(self, before: State, event: AnyEvent, decision: Decision) -> None:
        """Records who stops the job, and which nodes it runs on."""
        match event:
            case StopRequested() if decision.state != before:
                self._ended_by = event.by or asked_by(event.reason)
            case NodesChecked():
                for device in event.devices:
                    self._devices[device.node] = sum(one.node == device.node for one in event.devices)
            case FindingNoted(finding=finding) if finding == MOVED:
                self._moved = event.text
            case FindingNoted(finding=finding) if finding == RESUME_CHECK and self._incidents:
                last = next(reversed(self._incidents.values()))
                self._incidents[last.number] = replace(last, resume=last.resume or event.numbers)
            case FindingNoted(finding=finding) if finding == RAM_CHECKPOINT and self._incidents:
                last = next(reversed(self._incidents.values()))
                if not last.over:
                    self._incidents[last.number] = replace(
                        last, checkpoint=graver(last.checkpoint, event.numbers)
                    )
            case JobMoved() | ControllerResumed():
                self._moved = ""
            case _:
                pass

    def _note_rank(self, event: RankStarted | RankExited) -> None:
        if event.attempt != self.state.job.attempt:
            return
        known = self._ranks.get(event.rank)
        if isinstance(event, RankStarted):
            self._ranks[event.rank] = RankKnown(rank=event.rank, worker=event.worker, pid=event.pid)
        elif known is not None:
            self._ranks[event.rank] = replace(known, code=event.code, ended=True)

    def _note_step(self, event: StepReached) -> None:
        known = self._attempts.get(event.attempt)
        if known is not None:
            first = event.step if known.first_step is None else known.first_step
            last = max(event.step, known.last_step or event.step)
            self._attempts[event.attempt] = replace(
                known, first_step=first, last_step=last, last_step_at_s=event.at_s
            )

    def _note_resumed(self, event: StepReached) -> None:
        """Computes the lost steps from the first step after the recovery, not from ones before it."""
        last = next(reversed(self._incidents.values()), None)
        if last is None or last.step_resumed is not None or event.attempt != self.state.job.attempt:
            return
        if not isinstance(self.state.phase, Running):
            return
        lost = None
        if last.step_before is not None:
            lost = max(0, last.step_before - event.step + 1) if event.attempt != last.attempt else 0
        after = placed_nodes(self.state.job)
        self._incidents[last.number] = replace(
            last, step_resumed=event.step, steps_lost=lost, nodes_after=after
        )

    def _note_remark(self, event: IncidentAcknowledged | VerdictCorrected) -> Line:
        """Records a user's remark on an incident. The remark may come long after the job has ended."""
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
        story = self._incidents[incident.number]
        if new is not None:
            story = replace(
                story, verdict=new.verdict or story.verdict, faults=new.faults, problem=new.problem
            )
        if decision.choice is not None and decision.choice.incident == story.number:
            rung = _rung(decision.choice, event.at_s, decision.state.job)
            story = replace(story, rungs=(*story.rungs, rung)[-RUNGS_MAX:])
        if new is None and old is not None:
            story = replace(story, over=True, took_s=event.at_s - story.found_at_s)
        if isinstance(decision.state.phase, Ended) and new is not None:
            story = replace(story, ended=True)
        self._incidents[story.number] = _with_seen(story, event)

    def _open(self, incident: Incident, job: Job, found: str) -> None:
        self._incidents[incident.number] = IncidentStory(
            number=incident.number,
            attempt=incident.attempt,
            found_at_s=incident.since_s,
            found=found,
            step_before=job.step,
            nodes=placed_nodes(job),
        )
        if len(self._incidents) > INCIDENTS_MAX:
            oldest = next(iter(self._incidents))
            del self._incidents[oldest]
            self._spending.forget(oldest)


def placed_nodes(job: Job) -> dict[int, str]:
    """Returns the node of each worker, without workers that have no node."""
    return {number: worker.node for number, worker in enumerate(job.workers) if worker.node}


def _rung(choice: Choice, at_s: float, job: Job) -> RungTaken:
    return RungTaken(
        at_s=at_s,
        rung=choice.rung,
        why=choice.why,
        shadow=choice.shadow,
        isolate=choice.isolate,
        restarts=job.restarts,
        replacements=job.replacements,
    )


def _with_seen(story: IncidentStory, event: AnyEvent) -> IncidentStory:
    """Returns the incident with the failed checks and ended processes of the event added."""
    if isinstance(event, NodesChecked) and event.context == ON_FAILURE:
        return replace(story, troubles=(*story.troubles, *event.troubles)[:TROUBLES_MAX])
    if isinstance(event, RankExited | WorkerExited) and event.attempt == story.attempt:
        return replace(story, exits=(*story.exits, _end(event))[:EXITS_MAX])
    return story


def _end(event: RankExited | WorkerExited) -> RankEnd:
    if isinstance(event, WorkerExited):
        return RankEnd(at_s=event.at_s, worker=event.worker, code=event.code)
    return RankEnd(
        at_s=event.at_s, worker=event.worker, code=event.code, rank=event.rank, reason=event.reason
    )
