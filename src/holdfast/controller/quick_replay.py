"""Replays a journal into a story, with runs of steps taken together: most entries of a long journal are steps.

A step of a job that trains without an open incident only raises the job's step. Such a run needs one new state instead of
one for each entry. Gives the same story as `decisions` and `Story.hear`; tests/controller/test_quick_replay.py proves it.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.core.job.decide import decide
from holdfast.core.job.decision import Decision
from holdfast.core.job.story import Story
from holdfast.journal.rows import RawEntry, SealedEntry
from holdfast.model.events import AnyEvent, StepReached
from holdfast.model.policy import Policy
from holdfast.model.state import Running, State

_EVENTS: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_STEP = msgspec.json.Decoder(StepReached)
_STEP_KIND = str(StepReached.__struct_config__.tag)

# Called with the state before, the event and the decision; not for steps that are taken together.
Listener: TypeAlias = Callable[[State, AnyEvent, Decision], None]


def _ignore(before: State, event: AnyEvent, decision: Decision) -> None:
    """Nobody listens."""


class QuickReplay:
    """`story` has heard every entry that was passed to `hear`."""

    def __init__(self, policy: Policy, story: Story | None = None, listener: Listener = _ignore) -> None:
        self.policy = policy
        self.story = story if story is not None else Story(policy)
        self._listener = listener

    def hear(self, entries: Iterable[RawEntry | SealedEntry]) -> None:
        attempt, best, last = self._only_counts_steps_of(), self.story.state.job.step, None
        for entry in entries:
            if attempt and entry[1] == _STEP_KIND:
                event = _step(entry[2])
                if event is not None and event.attempt == attempt:
                    best = event.step if best is None or event.step > best else best
                    last = event
                    continue
            if last is not None:
                self._take_steps(best, last.at_s)
                last = None
            self._hear_one(entry[2])
            attempt, best = self._only_counts_steps_of(), self.story.state.job.step
        if last is not None:
            self._take_steps(best, last.at_s)

    def _hear_one(self, body: bytes) -> None:
        try:
            event = _EVENTS.decode(body)
        except msgspec.ValidationError:
            return  # a newer version wrote it
        before = self.story.state
        decision = decide(before, event, self.policy)
        self.story.hear(event, decision)
        self._listener(before, event, decision)

    def _only_counts_steps_of(self) -> int:
        """The attempt whose next steps change nothing but the job's step and the time of the last event; 0: none."""
        job, phase = self.story.state.job, self.story.state.phase
        if not isinstance(phase, Running) or job.incident is not None:
            return 0
        if job.hangs_in_a_row or job.problems_in_a_row or self.story.awaits_step:
            return 0
        return job.attempt

    def _take_steps(self, best: int | None, at_s: float) -> None:
        state = self.story.state
        if best != state.job.step:
            state = State(replace(state.job, step=best), state.phase)
        self.story.hear_steps(state, at_s)


def _step(body: bytes) -> StepReached | None:
    """None: an event of another kind than its column says."""
    try:
        return _STEP.decode(body)
    except msgspec.ValidationError:
        return None
