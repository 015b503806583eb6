"""Assigns every second of a job to one cause, and counts its incidents, from the events of its journal. Pure.

A second is productive or lost to one cause. Its cause is often known only later: time since the last step is
lost once an incident is found, and time in an incident gets its category with the verdict. Until then no
counter includes it, so that no counter ever decreases.
"""

from bisect import bisect_left

from msgspec import Struct

from holdfast.core.job.decision import Decision
from holdfast.core.metrics.table import RECOVERY_BUCKETS_S
from holdfast.model.events import AnyEvent, AttemptStarted, RankExited, RankStarted, StepReached
from holdfast.model.monitoring.metrics import Exemplar
from holdfast.model.policy import Policy
from holdfast.model.state import (
    Checking,
    Diagnosing,
    Healing,
    Incident,
    Isolating,
    Placing,
    Running,
    State,
    Stopping,
    Waiting,
)

CATEGORIES_MAX = 64  # per job; each Xid has its own
NONE, UNKNOWN, OTHER = "none", "unknown", "other"
START, STALLED, REPEATED, WORKS = "start", "stalled", "repeated", "works"
_STAGES = {
    Placing: "placing",
    Waiting: "waiting",
    Checking: "checking",
    Diagnosing: "diagnosing",
    Isolating: "isolating",
    Stopping: "stopping",
    Healing: "healing",
}


class Recoveries(Struct, frozen=True):
    """The histogram of recovery times in seconds. `counts`: by bucket of RECOVERY_BUCKETS_S."""

    counts: tuple[int, ...]
    sum_s: float
    exemplars: tuple[Exemplar | None, ...]


class Accounts(Struct, frozen=True, kw_only=True):
    """The totals of a job's time ledger at one moment: productive and lost time, incidents, recoveries.

    `lost_s`: seconds by category and stage. `incidents`: number by category and recovery action. `goodput`:
    productive time divided by all accounted time; None before any time is accounted.
    """

    productive_s: float
    lost_s: dict[tuple[str, str], float]
    goodput: float | None
    incidents: dict[tuple[str, str], tuple[int, Exemplar]]
    recoveries: Recoveries
    steps_repeated: int
    last_step_s: float | None
    submitted_s: float | None
    attempts: int
    ranks_running: int
    ranks_ended: int


class Ledger:
    """Assigns the time of a job to causes, from its events and decisions in order."""

    def __init__(self, policy: Policy) -> None:
        self.state = State()
        self._settle_s = policy.settle_s
        self._last_s: float | None = None
        self._submitted_s: float | None = None
        self._productive_s = 0.0
        self._lost_s: dict[tuple[str, str], float] = {}
        self._open_s: dict[str, float] = {}  # by stage, of an open incident without a verdict
        self._start_s = 0.0  # of an attempt without a step so far
        self._since_step_s = 0.0
        self._has_stepped = False  # in this attempt
        self._ever_stepped = False
        self._is_stepless = False
        self._best_step = -1
        self._best_before = -1  # in the previous attempts
        self._category: str | None = None  # of the open incident, or the last one
        self._last_step_s: float | None = None
        self._attempts = 0
        self._running: set[int] = set()
        self._ended: set[int] = set()
        self._repeated = 0
        self._categories: set[str] = set()
        self._counted = 0  # the number of the last incident counted with its rung
        self._incidents: dict[tuple[str, str], tuple[int, Exemplar]] = {}
        self._recovered = [0] * (len(RECOVERY_BUCKETS_S) + 1)
        self._recovered_s = 0.0
        self._examples: list[Exemplar | None] = [None] * (len(RECOVERY_BUCKETS_S) + 1)

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        """Accounts the time up to one event of the job, using the decision on it."""
        if self._last_s is None:
            self._submitted_s = event.at_s
        else:
            self._pass(max(0.0, event.at_s - self._last_s))
        before, self.state = self.state, decision.state
        if self._opens(before):
            self._category = None
        self._last_s = max(event.at_s, self._last_s or event.at_s)
        self._note(event, before)
        self._note_incident(event, before, decision)

    def now(self, at_s: float) -> Accounts:
        """Returns the totals at `at_s`.

        Counters contain only time whose cause is final; `goodput` includes all time.
        """
        passed_s = max(0.0, at_s - self._last_s) if self._last_s is not None else 0.0
        stage = self._stage()
        productive_s = self._productive_s + self._since_step_s + (passed_s if stage == WORKS else 0.0)
        lost_s = sum(self._lost_s.values()) + sum(self._open_s.values()) + self._start_s
        lost_s += passed_s if stage not in (WORKS, None) else 0.0
        whole_s = productive_s + lost_s
        return Accounts(
            productive_s=self._productive_s,
            lost_s=dict(self._lost_s),
            goodput=productive_s / whole_s if whole_s > 0.0 else None,
            incidents=dict(self._incidents),
            recoveries=Recoveries(tuple(self._recovered), self._recovered_s, tuple(self._examples)),
            steps_repeated=self._repeated,
            last_step_s=self._last_step_s,
            submitted_s=self._submitted_s,
            attempts=self._attempts,
            ranks_running=len(self._running),
            ranks_ended=len(self._ended),
        )

    # Time -------------------------------------------------------------------------------------------------

    def _stage(self) -> str | None:
        """Returns the stage that passing time belongs to; None before the job and after its outcome, which
        are not counted.
        """
        phase = self.state.phase
        if not isinstance(phase, Running):
            return _STAGES.get(type(phase))
        if not self._has_stepped:
            return WORKS if self._is_stepless else START
        step = self.state.job.step
        return REPEATED if step is not None and step <= self._best_before else WORKS

    def _pass(self, passed_s: float) -> None:
        match self._stage():
            case None:
                pass
            case "start":
                self._start_s += passed_s
                if not self._ever_stepped and self._start_s > self._settle_s:
                    self._is_stepless = True  # its log contains no steps
                    self._productive_s += self._start_s
                    self._start_s = 0.0
            case "works" if self._is_stepless and not self._has_stepped:
                self._productive_s += passed_s
            case "works":
                self._since_step_s += passed_s
            case stage:
                self._lose(stage, passed_s)

    def _lose(self, stage: str, lost_s: float) -> None:
        """Adds lost time to the open incident once it has a verdict, or to the previous incident while none
        is open.
        """
        if lost_s <= 0.0:
            return
        if self.state.job.incident is not None and self._category is None:
            self._open_s[stage] = self._open_s.get(stage, 0.0) + lost_s
        else:
            place = (self._category or NONE, stage)
            self._lost_s[place] = self._lost_s.get(place, 0.0) + lost_s

    def _settle(self) -> None:
        """Assigns lost time without a category to the category of the open incident."""
        for stage, lost_s in self._open_s.items():
            self._lose(stage, lost_s)
        self._open_s.clear()

    # Events -----------------------------------------------------------------------------------------------

    def _note(self, event: AnyEvent, before: State) -> None:
        if self.state.job.attempt != before.job.attempt:
            self._running.clear()
            self._ended.clear()
            self._has_stepped = False
            self._best_before = self._best_step
        match event:
            case AttemptStarted(attempt=number) if number > self._attempts:
                self._attempts = number
            case RankStarted(attempt=number, rank=rank) if number == self.state.job.attempt:
                self._running.add(rank)
                self._ended.discard(rank)
            case RankExited(attempt=number, rank=rank) if number == self.state.job.attempt:
                self._running.discard(rank)
                self._ended.add(rank)
            case StepReached(attempt=number) if number == self.state.job.attempt:
                self._step(event)
            case _:
                pass
        if isinstance(before.phase, Running) and not isinstance(self.state.phase, Running):
            self._leave_running()

    def _step(self, event: StepReached) -> None:
        if not self._has_stepped:
            self._repeated += max(0, self._best_before - event.step + 1)
            self._lose(START, self._start_s)
            self._start_s = 0.0
        self._has_stepped = self._ever_stepped = True
        self._is_stepless = False
        self._productive_s += self._since_step_s
        self._since_step_s = 0.0
        self._best_step = max(self._best_step, event.step)
        self._last_step_s = event.at_s

    def _leave_running(self) -> None:
        """Handles the end of the running phase. In an incident, time after the last step is lost."""
        if self.state.job.incident is None:
            self._productive_s += self._since_step_s
        else:
            self._lose(STALLED, self._since_step_s)
        self._since_step_s = 0.0
        self._lose(START, self._start_s)
        self._start_s = 0.0

    # Incidents --------------------------------------------------------------------------------------------

    def _note_incident(self, event: AnyEvent, before: State, decision: Decision) -> None:
        old, new = before.job.incident, self.state.job.incident
        choice = decision.choice
        if choice is not None and choice.incident > self._counted:
            self._counted = choice.incident
            place = (self._named(new or old), choice.rung)
            count = self._incidents[place][0] if place in self._incidents else 0
            self._incidents[place] = (count + 1, _example(choice.incident, 1.0, event.at_s))
        if new is not None and new.verdict is not None and self._category is None:
            self._category = self._named(new)
            self._settle()
        if old is not None and (new is None or new.number != old.number):
            self._close(old, event.at_s)

    def _opens(self, before: State) -> bool:
        new, old = self.state.job.incident, before.job.incident
        return new is not None and (old is None or new.number != old.number)

    def _close(self, incident: Incident, at_s: float) -> None:
        if self.state.job.incident is None:
            self._category = self._category or self._named(incident)
            self._settle()
        took_s = max(0.0, at_s - incident.since_s)
        place = bisect_left(RECOVERY_BUCKETS_S, took_s)
        self._recovered[place] += 1
        self._recovered_s += took_s
        self._examples[place] = _example(incident.number, took_s, at_s)

    def _named(self, incident: Incident | None) -> str:
        """Returns the category of the verdict. Beyond CATEGORIES_MAX categories, returns "other"."""
        if incident is None or incident.verdict is None:
            return UNKNOWN
        category = incident.verdict.category
        if category not in self._categories and len(self._categories) >= CATEGORIES_MAX:
            return OTHER
        self._categories.add(category)
        return category


def _example(incident: int, value: float, at_s: float) -> Exemplar:
    return Exemplar((("incident", str(incident)),), value, at_s)
