"""Computes how a job spent its time: on steps that count, and on the parts of each incident. Pure.

Each moment belongs to exactly one part, so the parts sum to the job's total time.
"""

from collections.abc import Iterable
from typing import assert_never

from msgspec import Struct

from holdfast.model.events import AnyEvent, ControllerResumed, HangFound, StepReached
from holdfast.model.state import (
    AnyPhase,
    Checking,
    Diagnosing,
    Ended,
    Finishing,
    Healing,
    Holding,
    Incident,
    Isolating,
    New,
    Placing,
    Running,
    State,
    Stopping,
    Waiting,
)

PARTS_MAX = 64  # per incident; later parts are added to the last one of their kind
DETECTION, REPEATED, STARTING, STANDING = "detection", "repeated-steps", "starting", "standing"
UNSUPERVISED = "unsupervised"  # no controller ran; the job had failed when one started again


class Part(Struct, frozen=True):
    """Time that an incident cost, in seconds, of one kind. `what`: the kind, such as "detection" or "placing"."""

    what: str
    seconds: float


class Spent(Struct, frozen=True, kw_only=True):
    """How a whole job spent its time, in seconds, apart from incidents.

    `useful_s`: on steps that count. `started_s`: before the first step. `ending_s`: from the decision to end
    the job until its end.
    """

    useful_s: float = 0.0
    started_s: float = 0.0
    ending_s: float = 0.0


class KeptSpending(Struct, frozen=True, kw_only=True):
    """The stored state of a Spending (the account of a job's time), from which another Spending continues."""

    useful_s: float
    started_s: float
    ending_s: float
    last_s: float | None
    parts: dict[int, tuple[Part, ...]]
    incident: int
    bar: int | None
    step: int | None
    attempt: int
    since_step_s: float
    alone_s: float


class Spending:
    """Accumulates how a job spends its time, from each event with the states before and after it."""

    def __init__(self) -> None:
        self._useful_s = self._started_s = self._ending_s = 0.0
        self._last_s: float | None = None
        self._parts: dict[int, list[Part]] = {}
        self._incident = 0  # the number of the last incident
        self._bar: int | None = None  # the best step of all previous attempts
        self._step: int | None = None  # the last step of this attempt
        self._attempt = 0
        self._since_step_s = 0.0  # training time not yet known to be useful
        self._alone_s = 0.0  # the part of it without a controller

    def hear(self, before: State, event: AnyEvent, after: State) -> None:
        """Adds the time since the previous event. `before`, `after`: the states around this event."""
        self._pass(before, event.at_s)
        if after.job.attempt != self._attempt:
            self._new_attempt(after.job.attempt)
        if isinstance(event, ControllerResumed):
            self._alone_s, self._since_step_s = self._alone_s + self._since_step_s, 0.0
        if isinstance(event, StepReached) and event.attempt == self._attempt:
            self._reach(event.step)
        incident = after.job.incident
        if incident is not None and incident.number != self._incident:
            self._open(incident, event)

    def hear_steps(self, steps: Iterable[StepReached]) -> None:
        """Processes several steps of the current attempt at once, while the job runs without an open
        incident.
        """
        for step in steps:
            last_s, self._last_s = self._last_s, step.at_s
            passed_s = 0.0 if last_s is None else max(0.0, step.at_s - last_s)
            if passed_s:
                self._train(passed_s)
            self._reach(step.step)

    def kept(self) -> KeptSpending:
        """Returns the accounted time as a value that can be stored and restored."""
        return KeptSpending(
            useful_s=self._useful_s,
            started_s=self._started_s,
            ending_s=self._ending_s,
            last_s=self._last_s,
            parts={number: tuple(parts) for number, parts in self._parts.items()},
            incident=self._incident,
            bar=self._bar,
            step=self._step,
            attempt=self._attempt,
            since_step_s=self._since_step_s,
            alone_s=self._alone_s,
        )

    def restore(self, kept: KeptSpending) -> None:
        """Continues from the result of `kept`."""
        self._useful_s, self._started_s, self._ending_s = kept.useful_s, kept.started_s, kept.ending_s
        self._last_s = kept.last_s
        self._parts = {number: list(parts) for number, parts in kept.parts.items()}
        self._incident, self._bar, self._step = kept.incident, kept.bar, kept.step
        self._attempt, self._since_step_s, self._alone_s = kept.attempt, kept.since_step_s, kept.alone_s

    @property
    def spent(self) -> Spent:
        """Returns how the job spent its time so far, in seconds, apart from incidents."""
        return Spent(
            useful_s=self._useful_s + self._since_step_s + self._alone_s,
            started_s=self._started_s,
            ending_s=self._ending_s,
        )

    @property
    def is_settled(self) -> bool:
        """Returns whether it is already final what every second so far was spent on."""
        return not self._since_step_s and not self._alone_s

    @property
    def incidents(self) -> tuple[int, ...]:
        """Returns the numbers of incidents that cost time. 0: a restart that a user requested before the first
        incident.
        """
        return tuple(self._parts)

    def parts(self, incident: int) -> tuple[Part, ...]:
        """Returns the time that one incident cost, by stage in order, repeated steps last."""
        return tuple(self._parts.get(incident, ()))

    def forget(self, incident: int) -> None:
        """Removes the times of one incident."""
        self._parts.pop(incident, None)

    def _pass(self, before: State, at_s: float) -> None:
        last_s, self._last_s = self._last_s, at_s
        passed_s = 0.0 if last_s is None else max(0.0, at_s - last_s)
        if not passed_s or isinstance(before.phase, Ended):
            return
        incident = before.job.incident
        if incident is not None:
            self._add(incident.number, _part_of(before.phase, incident, before.job.attempt), passed_s)
        elif isinstance(before.phase, Running):
            self._train(passed_s)
        elif isinstance(before.phase, Finishing):
            self._ending_s += passed_s
        elif self._bar is None and self._step is None:
            self._started_s += passed_s
        else:
            self._add(self._incident, STARTING, passed_s)

    def _train(self, passed_s: float) -> None:
        if self._step is not None or self._incident:
            self._since_step_s += passed_s
        else:
            self._started_s += passed_s

    def _new_attempt(self, attempt: int) -> None:
        self._useful_s += self._since_step_s + self._alone_s
        self._since_step_s = self._alone_s = 0.0
        if self._step is not None:
            self._bar = max(self._step, self._bar if self._bar is not None else self._step)
        self._attempt, self._step = attempt, None

    def _reach(self, step: int) -> None:
        """Splits the time since the previous step; the share of repeated steps is assigned to the last
        incident.
        """
        passed_s = self._since_step_s + self._alone_s
        self._since_step_s = self._alone_s = 0.0
        before, self._step = self._step, max(step, self._step or step)
        repeated = 0.0
        if before is not None and step > before and self._bar is not None and before < self._bar:
            repeated = (min(step, self._bar) - before) / (step - before)
        self._useful_s += passed_s * (1.0 - repeated)
        if repeated:
            self._add(self._incident, REPEATED, passed_s * repeated)

    def _open(self, incident: Incident, event: AnyEvent) -> None:
        """Opens an incident. For a hang, the time since the last step is assigned to it as detection."""
        self._incident = incident.number
        if self._alone_s:
            self._add(incident.number, UNSUPERVISED, self._alone_s)
            self._alone_s = 0.0
        if isinstance(event, HangFound) and self._since_step_s:
            self._add(incident.number, DETECTION, self._since_step_s)
        else:
            self._useful_s += self._since_step_s
        self._since_step_s = 0.0

    def _add(self, incident: int, what: str, seconds: float) -> None:
        parts = self._parts.setdefault(incident, [])
        at = next((place for place in reversed(range(len(parts))) if parts[place].what == what), None)
        if at is not None and (at == len(parts) - 1 or what == REPEATED or len(parts) >= PARTS_MAX):
            parts[at] = Part(what, parts[at].seconds + seconds)
        else:
            parts.append(Part(what, seconds))


def _part_of(phase: AnyPhase, incident: Incident, attempt: int) -> str:
    """Returns the kind of part that a phase counts as while an incident is open."""
    match phase:
        case Running():
            return STARTING if attempt > incident.attempt else STANDING
        case Diagnosing():
            return "diagnosis"
        case Isolating():
            return "isolation"
        case Stopping() | Finishing():
            return "stopping"
        case Placing():
            return "placing"
        case Waiting():
            return "waiting"
        case Checking():
            return "checks"
        case Healing():
            return "healing"
        case Holding():
            return "kept"
        case New() | Ended():
            return STARTING
        case never:
            assert_never(never)
