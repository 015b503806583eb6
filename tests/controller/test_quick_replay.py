"""The quick replay gives the same story as the full one, whatever the journal holds."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core.job.test_decide import EVENTS, POLICIES
from holdfast.controller.loop import decisions, row_of
from holdfast.controller.quick_replay import QuickReplay
from holdfast.core.job.decide import decide
from holdfast.core.job.story import KeptStory, Story
from holdfast.model import events as ev
from holdfast.model.state import State
from holdfast.model.verdicts import UNKNOWN

BEGINNING = (
    ev.JobSubmitted(at_s=0.0, job="j", workers=2, command=("train",)),
    ev.WorkersPlaced(at_s=0.0, attempt=1, placed=(ev.Placed(0, "n0"), ev.Placed(1, "n1"))),
    ev.AttemptStarted(at_s=0.0, attempt=1),
)


def failure(attempt: int) -> list[ev.AnyEvent]:
    """A rank dies, and the job is started again where the policy allows it."""
    placed = (ev.Placed(0, "n2"), ev.Placed(1, "n3"))
    return [
        ev.RankExited(at_s=0.0, attempt=attempt, worker=0, rank=0, code=-9),
        ev.VerdictReached(at_s=0.0, incident=attempt, verdict=UNKNOWN, environment=True, problem="p"),
        ev.AttemptStopped(at_s=0.0, attempt=attempt),
        ev.WorkersPlaced(at_s=0.0, attempt=attempt + 1, placed=placed),
        ev.AttemptStarted(at_s=0.0, attempt=attempt + 1),
    ]


STEPS = st.builds(
    lambda attempt, steps: [ev.StepReached(at_s=0.0, attempt=attempt, step=step) for step in steps],
    st.sampled_from((1, 1, 2, 3)),
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
)
TALES = st.lists(
    st.one_of(
        STEPS, STEPS, st.integers(1, 3).map(failure), st.sampled_from(EVENTS).map(lambda event: [event])
    ),
    max_size=30,
)
CUTS = st.lists(st.integers(1, 9), max_size=12)


def journal(events, policy):
    """The rows as a controller writes them, ticks that change nothing and all."""
    state, rows = State(), []
    for number, event in enumerate(events, 1):
        event = replace(event, at_s=float(number))
        decision = decide(state, event, policy)
        state = decision.state
        row = row_of(event, decision)
        rows.append((row.at_s, row.kind, row.event, row.orders, row.why, number))
    return rows


def full(rows, policy):
    story = Story(policy)
    for event, decision in decisions(rows, policy):
        story.hear(event, decision)
    return story


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@settings(max_examples=60)
@given(tale=TALES, cuts=CUTS)
def test_it_gives_the_same_story(policy, tale, cuts):
    rows = journal([*BEGINNING, *(event for events in tale for event in events)], policy)
    story, quick, rest = full(rows, policy), QuickReplay(policy), rows
    for cut in cuts:  # as it grows
        quick.hear(rest[:cut])
        rest = rest[cut:]
    quick.hear(rest)
    assert quick.story.summary() == story.summary()
    assert quick.story.state == story.state


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@settings(max_examples=40)
@given(tale=TALES, cut=st.integers(0, 40))
def test_a_story_that_was_stored_goes_on_as_if_it_had_not_been(policy, tale, cut):
    rows = journal([*BEGINNING, *(event for events in tale for event in events)], policy)
    first = QuickReplay(policy)
    first.hear(rows[:cut])
    stored = msgspec.msgpack.encode(first.story.kept())
    kept = msgspec.msgpack.decode(stored, type=KeptStory)
    second = QuickReplay(policy, Story.restored(policy, kept))
    second.hear(rows[cut:])
    assert second.story.summary() == full(rows, policy).summary()
    assert second.story.kept() == full(rows, policy).kept()


def test_rows_of_another_kind_than_their_column_says_are_read_as_what_they_are():
    policy = POLICIES["restarts"]
    rows = journal([*BEGINNING, *(ev.StepReached(at_s=0.0, attempt=1, step=n) for n in range(5))], policy)
    killed = journal([*BEGINNING, *failure(1)], policy)[3]
    rows.append((9.0, "step-reached", killed[2], killed[3], killed[4], 9))
    rows.append((10.0, "step-reached", b'{"kind":"from-a-later-version","at_s":10.0}', b"[]", "", 10))
    quick = QuickReplay(policy)
    quick.hear(rows)
    assert quick.story.summary() == full(rows, policy).summary()
    assert quick.story.state.job.incidents == 1


class CountingStory(Story):
    heard = 0

    def hear(self, event, decision):
        self.heard += 1
        return super().hear(event, decision)


def test_steps_are_taken_together():
    """What makes it quick: a job that trains hears no single step."""
    policy = POLICIES["restarts"]
    rows = journal([*BEGINNING, *(ev.StepReached(at_s=0.0, attempt=1, step=n) for n in range(5000))], policy)
    quick = QuickReplay(policy, CountingStory(policy))
    quick.hear(rows)
    assert quick.story.heard == len(BEGINNING)
    assert quick.story.summary() == full(rows, policy).summary()
