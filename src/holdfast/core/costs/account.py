"""Divides the wall-clock time of a job into cost classes, from its journal and its step times. Pure.

The journal assigns every second to a class; step times then divide the computing time further. The classes
always add up to the wall-clock time.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.costs.classes import (
    CHECKPOINTING,
    COMPUTING,
    ENDING,
    EVALUATION,
    NAMES,
    OTHER,
    SLOW,
    STRAGGLERS,
)
from holdfast.core.job.decision import Decision
from holdfast.core.job.spent import STARTING, Spending
from holdfast.model.events import (
    AnyEvent,
    HangFound,
    IncidentAcknowledged,
    RankStarted,
    VerdictCorrected,
)
from holdfast.model.state import State
from holdfast.model.steps import StepReport

INCIDENTS_MAX = 1_000  # listed separately; the seconds of older ones are only in the totals
RANKS_MAX = 1 << 20
SHARE_MAX = 0.95  # maximum share of the computing time for pauses and slow steps


class IncidentCost(Struct, frozen=True, kw_only=True):
    """The time that one incident cost, in seconds by class.

    `hang`: kind of the hang, if it began with one. `category`, `rung`: the latest; empty without any.
    """

    number: int
    at_s: float
    by_class: dict[str, float]
    hang: str = ""
    category: str = ""
    rung: str = ""


class JobCost(Struct, frozen=True, kw_only=True):
    """The wall-clock time of a job, divided into cost classes.

    `by_class`: seconds; they add up to `wall_s`. `gpus`: 0 if unknown. `since_s`, `until_s`: the counted
    period. `has_steps`: whether the log contains steps; without them, repeated and slow steps are unknown.
    `has_no_gpu`: a boot check looked at the nodes and named no GPU, and each rank counts as one.
    """

    job: str
    wall_s: float
    since_s: float | None
    until_s: float | None
    gpus: int
    gpus_from: str
    by_class: dict[str, float]
    incidents: tuple[IncidentCost, ...] = ()
    has_steps: bool = True
    notes: tuple[str, ...] = ()
    has_no_gpu: bool = False

    @property
    def gpu_hours(self) -> float:
        """Returns the GPU-hours of the whole job."""
        return self.wall_s * self.gpus / 3600.0

    def hours_of(self, name: str) -> float:
        """Returns the GPU-hours of one cost class."""
        return self.by_class.get(name, 0.0) * self.gpus / 3600.0


class _Met(Struct, frozen=True):
    at_s: float
    hang: str = ""
    category: str = ""
    rung: str = ""


class Account:
    """Divides the time of a job into cost classes, from its events and decisions in order.

    `since_s`: count only the time after it; None for all.
    """

    def __init__(self, since_s: float | None = None) -> None:
        self.state = State()
        self._asked_s = since_s
        self._spending = Spending()
        self._first_s: float | None = None
        self._last_s: float | None = None
        self._base: dict[str, float] = {}  # what had been spent when the counting began
        self._old: dict[str, float] = {}  # of incidents that are not listed any more
        self._met: dict[int, _Met] = {}
        self._ranks: set[int] = set()
        self._has_steps = False

    def hear(self, event: AnyEvent, decision: Decision) -> None:
        """Adds one event of a job, with the decision on it, to the costs."""
        if isinstance(event, IncidentAcknowledged | VerdictCorrected):
            return  # a user's remark on a job that may have ended long ago
        if self._last_s is not None and event.at_s < self._last_s:
            event = replace(event, at_s=self._last_s)  # a journal of two clocks: no second counts twice
        before, self.state = self.state, decision.state
        was_over = before.phase.__struct_config__.tag == "ended"
        self._spending.hear(before, event, decision.state)
        if not was_over:
            self._last_s = max(event.at_s, self._last_s if self._last_s is not None else event.at_s)
        self._has_steps = self._has_steps or decision.state.job.step is not None
        if isinstance(event, RankStarted) and len(self._ranks) < RANKS_MAX:
            self._ranks.add(event.rank)
        self._note(before, event, decision)
        self._begin(event.at_s)

    def cost(self, gpus: int = 0, gpus_from: str = "") -> JobCost:
        """Returns the job's time by cost class. `gpus`: number of its GPUs; 0: count its ranks instead."""
        job = self.state.job
        if not gpus:
            gpus, gpus_from = (
                (len(self._ranks), "ranks")
                if self._ranks
                else (len(job.workers), "workers: no rank was seen")
            )
        total = self._total()
        first_s, last_s = self._first_s, self._last_s
        counted = () if first_s is None else NAMES
        by_class = {
            name: max(0.0, total[name] - self._base.get(name, 0.0)) for name in counted if name in total
        }
        wall_s = last_s - first_s if first_s is not None and last_s is not None else 0.0
        return JobCost(
            job=job.name,
            wall_s=wall_s,
            since_s=first_s,
            until_s=last_s,
            gpus=gpus,
            gpus_from=gpus_from,
            by_class={name: seconds for name, seconds in by_class.items() if seconds > 0.0},
            incidents=tuple(self._incident(number) for number in self._met),
            has_steps=self._has_steps,
        )

    def _begin(self, at_s: float) -> None:
        """Starts counting with the first event after `since_s` at which no step is in progress."""
        if self._first_s is not None:
            return
        if self._asked_s is None:
            self._first_s = at_s
        elif at_s >= self._asked_s and self._spending.is_settled:
            self._first_s, self._base = at_s, self._total()
            self._met = {}

    def _note(self, before: State, event: AnyEvent, decision: Decision) -> None:
        incident = decision.state.job.incident or before.job.incident
        if incident is None:
            return
        met = self._met.get(incident.number)
        if met is None:
            met = _Met(event.at_s, hang=event.hang if isinstance(event, HangFound) else "")
            if len(self._met) >= INCIDENTS_MAX:
                self._fold(next(iter(self._met)))
        rung = decision.choice.rung if decision.choice is not None else met.rung
        category = incident.verdict.category if incident.verdict is not None else met.category
        self._met[incident.number] = replace(met, rung=rung, category=category)

    def _fold(self, number: int) -> None:
        del self._met[number]
        for part in self._spending.parts(number):
            self._old[part.what] = self._old.get(part.what, 0.0) + part.seconds
        self._spending.forget(number)

    def _incident(self, number: int) -> IncidentCost:
        met, by_class = self._met[number], dict[str, float]()
        for part in self._spending.parts(number):
            by_class[_known(part.what)] = by_class.get(_known(part.what), 0.0) + part.seconds
        return IncidentCost(
            number=number,
            at_s=met.at_s,
            by_class=by_class,
            hang=met.hang,
            category=met.category,
            rung=met.rung,
        )

    def _total(self) -> dict[str, float]:
        spent = self._spending.spent
        total = {COMPUTING: spent.useful_s, STARTING: spent.started_s, ENDING: spent.ending_s}
        for what, seconds in self._old.items():
            total[_known(what)] = total.get(_known(what), 0.0) + seconds
        for number in self._spending.incidents:
            for part in self._spending.parts(number):
                total[_known(part.what)] = total.get(_known(part.what), 0.0) + part.seconds
        return total


def _known(what: str) -> str:
    return what if what in NAMES else OTHER


def with_steps(cost: JobCost, report: StepReport | None) -> JobCost:
    """Returns the cost with its computing time divided further: checkpoints, evaluation, slow steps, stragglers.

    The step times of the report cover all attempts and include repeated steps, so the shares are those of all
    recorded steps.
    """
    computing_s = cost.by_class.get(COMPUTING, 0.0)
    if report is None or not report.iteration_lines or computing_s <= 0.0:
        return cost
    found = _found_in_steps(report)
    asked_s = sum(found.values())
    allowed_s = computing_s * SHARE_MAX
    share = min(1.0, allowed_s / asked_s) if asked_s > 0.0 else 1.0
    taken = {name: seconds * share for name, seconds in found.items() if seconds > 0.0}
    by_class = dict(cost.by_class)
    by_class[COMPUTING] = computing_s - sum(taken.values())
    for name, seconds in taken.items():
        by_class[name] = by_class.get(name, 0.0) + seconds
    ordered = {name: by_class[name] for name in NAMES if by_class.get(name, 0.0) > 0.0}
    notes = cost.notes
    if share < 1.0:
        notes = (*notes, "the pauses in the step times exceed the time with steps: they are scaled down")
    return replace(cost, by_class=ordered, notes=notes)


def _found_in_steps(report: StepReport) -> Mapping[str, float]:
    """Returns the seconds beyond the usual step time, by class. A pause is not counted as a slow step too."""
    usual_s = report.median_step_time_s or 0.0
    found = {CHECKPOINTING: 0.0, EVALUATION: 0.0, SLOW: 0.0, STRAGGLERS: 0.0}
    for phase in report.phases:
        name = {"checkpoint": CHECKPOINTING, "evaluation": EVALUATION}.get(phase.kind)
        if name is not None:
            found[name] += phase.count * max(0.0, phase.median_s - usual_s)
    for slow in report.slowdowns:
        last = slow.last_step if slow.last_step is not None else report.last.step
        if slow.first_step is None or last is None or slow.before_s <= 0.0:
            continue
        excess_s = max(0.0, slow.after_s - slow.before_s) * max(0, last - slow.first_step + 1)
        found[STRAGGLERS if slow.what.startswith("rank") else SLOW] += excess_s
    return found
