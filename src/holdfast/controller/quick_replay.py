"""Replays a journal quickly: consecutive step events, most entries of a long journal, are processed in one
batch.

Without an open incident, a step event only raises the job's step number, so consecutive ones need one new
state. The result equals that of `decisions` and `Story.hear`, as tests/controller/test_quick_replay.py
verifies.
"""

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from holdfast.core.job.decide import decide
from holdfast.core.job.story import Line, Story
from holdfast.journal.rows import RawEntry, SealedEntry
from holdfast.model.events import AnyEvent, StepReached
from holdfast.model.policy import Policy
from holdfast.model.state import Running, State

_EVENTS: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_STEP = msgspec.json.Decoder(StepReached)
_STEP_KIND = str(StepReached.__struct_config__.tag)
_RUN_MAX = 4096  # steps per batch


class QuickReplay:
    """Replays journal entries into `story`. `on_line`: receives each log line with the number of its journal
    entry.
    """

    def __init__(
        self,
        policy: Policy,
        story: Story | None = None,
        on_line: Callable[[int, Line], None] = lambda seq, line: None,
    ) -> None:
        self.policy = policy
        self._on_line = on_line
        self.story = story if story is not None else Story(policy)

    def hear(self, entries: Iterable[RawEntry | SealedEntry]) -> None:
        attempt, run = self._only_counts_steps_of(), list[StepReached]()
        for entry in entries:
            if attempt and entry[1] == _STEP_KIND:
                step = _step(entry[2])
                if step is not None and step.attempt == attempt:
                    run.append(step)
                    if len(run) >= _RUN_MAX:
                        self._take(run)
                        run = []
                    continue
            if run:
                self._take(run)
                run = []
            self._hear_one(entry[5], entry[2])
            attempt = self._only_counts_steps_of()
        if run:
            self._take(run)

    def _hear_one(self, seq: int, body: bytes) -> None:
        try:
            event = _EVENTS.decode(body)
        except msgspec.ValidationError:
            return  # written by a newer version
        for line in self.story.hear(event, decide(self.story.state, event, self.policy)):
            self._on_line(seq, line)

    def _only_counts_steps_of(self) -> int:
        """Returns the attempt whose next steps only raise the job's step; 0 if there is none."""
        job, phase = self.story.state.job, self.story.state.phase
        if not isinstance(phase, Running) or job.incident is not None:
            return 0
        if job.hangs_in_a_row or job.problems_in_a_row or self.story.awaits_step:
            return 0
        return job.attempt

    def _take(self, run: list[StepReached]) -> None:
        state = self.story.state
        best = max(step.step for step in run)
        if state.job.step is None or best > state.job.step:
            state = State(replace(state.job, step=best), state.phase)
        self.story.hear_steps(run, state)


def _step(body: bytes) -> StepReached | None:
    """Returns the step event of an entry; None if it is an event of another kind."""
    try:
        return _STEP.decode(body)
    except msgspec.ValidationError:
        return None
