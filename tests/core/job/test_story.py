"""The story that is told of a job: its lines, and what is true after them."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.core.job.decide import decide
from holdfast.core.job.story import KINDS, Story
from holdfast.core.job.wording import culprit_words
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    ControllerResumed,
    DeviceFaulted,
    DeviceHealed,
    FindingNoted,
    HangFound,
    JobMoved,
    JobSubmitted,
    NodeIsolated,
    NodeLost,
    NodeReleased,
    Placed,
    PlacementFailed,
    RankExited,
    RankStarted,
    StepReached,
    StopRequested,
    Tick,
    VerdictReached,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import UNKNOWN, Culprit, Verdict

POLICY = Policy(max_restarts=8, unconditional_restart=True, hang_restart=True)
BUG = Verdict(category="user_code", class_="code", title="KeyError: 'x'", confidence=0.9)
START = (
    JobSubmitted(at_s=0.0, job="llama", workers=1, command=("train",)),
    WorkersPlaced(at_s=1.0, attempt=1, placed=(Placed(0, "n0"),)),
    AttemptStarted(at_s=2.0, attempt=1),
    RankStarted(at_s=3.0, attempt=1, worker=0, rank=0, pid=41),
)


def told(*events, policy=POLICY):
    """The story after these events, and all its lines."""
    story, state, lines = Story(policy), State(), []
    for event in events:
        decision = decide(state, event, policy)
        state = decision.state
        lines += story.hear(event, decision)
    return story, lines


def texts(lines, kind):
    return [line.text for line in lines if line.kind == kind]


def test_the_start():
    story, lines = told(*START, StepReached(at_s=9.0, attempt=1, step=7))
    assert [line.text for line in lines] == ["job llama submitted: train", "attempt 1 runs on n0"]
    summary = story.summary()
    assert (summary.job, summary.phase, summary.phase_words) == ("llama", "running", "training, step 7")
    assert (summary.submitted_at_s, summary.last_at_s) == (0.0, 9.0)
    assert [(rank.rank, rank.pid) for rank in summary.ranks] == [(0, 41)]


def test_steps_made_while_a_fault_is_looked_at_are_no_recovery():
    story, lines = told(
        *START,
        StepReached(at_s=9.0, attempt=1, step=100),
        RankExited(at_s=10.0, attempt=1, worker=0, rank=3, code=-9),
        StepReached(at_s=10.1, attempt=1, step=101),
        VerdictReached(at_s=11.0, incident=1, verdict=BUG),
        AttemptStopped(at_s=12.0, attempt=1),
        WorkersPlaced(at_s=13.0, attempt=2, placed=(Placed(0, "n1"),)),
        AttemptStarted(at_s=14.0, attempt=2),
        StepReached(at_s=20.0, attempt=2, step=91),
    )
    (incident,) = story.summary().incidents
    assert incident.found == "rank 3 on worker 0 failed: killed by signal 9"
    assert (incident.step_before, incident.step_resumed, incident.steps_lost) == (100, 91, 10)
    assert (incident.over, incident.took_s) == (True, 10.0)
    assert [rung.rung for rung in incident.rungs] == ["reschedule-unconditional"]
    assert texts(lines, "recovered") == [
        "incident 1 over: training again at step 91, 10.0 s after it was found"
    ]
    assert [attempt.ended_at_s for attempt in story.summary().attempts] == [12.0, None]
    assert story.summary().ranks == ()


def test_without_steps_nothing_is_said_of_losses():
    story, _ = told(
        *START,
        WorkerExited(at_s=10.0, attempt=1, worker=0, code=1),
        VerdictReached(at_s=11.0, incident=1, verdict=BUG),
        AttemptStopped(at_s=12.0, attempt=1),
        WorkersPlaced(at_s=13.0, attempt=2, placed=(Placed(0, "n1"),)),
        AttemptStarted(at_s=14.0, attempt=2),
    )
    (incident,) = story.summary().incidents
    assert (incident.steps_lost, incident.took_s, incident.over) == (None, None, False)
    assert story.summary().phase_words == "started again after incident 1, no step yet"


def test_a_second_controller_tells_no_start_twice():
    _, lines = told(*START, ControllerResumed(at_s=5.0), AttemptStarted(at_s=6.0, attempt=1))
    assert texts(lines, "attempt") == ["attempt 1 runs on n0"]
    assert texts(lines, "news") == ["the controller resumed from its journal"]


def test_a_verdict_that_never_came_is_shown_as_unknown():
    _, lines = told(*START, WorkerExited(at_s=10.0, attempt=1, worker=0, code=1), Tick(at_s=99.0))
    assert texts(lines, "verdict") == ["incident 1: verdict: nothing explains it (unknown, 0% sure)"]


def test_a_dead_rank_whose_launcher_goes_on_is_news():
    policy = Policy(launcher_restarts=True)
    _, lines = told(*START, RankExited(at_s=9.0, attempt=1, worker=0, rank=0, code=1), policy=policy)
    assert texts(lines, "news") == ["rank 0 ended with 1"]


def test_a_finding_of_steps_is_shown_with_what_made_it():
    numbers = {"before_s": 0.2, "after_s": 0.3, "step": 120, "recent_s": [0.3, 0.31]}
    slow = FindingNoted(at_s=9.0, finding="slowdown", text="slower", attempt=1, numbers=numbers)
    _, lines = told(*START, slow)
    assert (lines[-1].kind, lines[-1].finding, lines[-1].numbers) == ("news", "slowdown", numbers)


def test_a_finding_written_before_there_were_numbers_is_read():
    old = b'{"kind":"finding-noted","at_s":9.0,"finding":"slowdown","text":"slower","attempt":1}'
    assert msgspec.json.decode(old, type=AnyEvent).numbers == {}


def test_a_failure_ends_with_its_reason_and_code():
    story, lines = told(
        *START,
        WorkerExited(at_s=10.0, attempt=1, worker=0, code=3),
        VerdictReached(at_s=11.0, incident=1, verdict=BUG),
        AttemptStopped(at_s=12.0, attempt=1),
        policy=Policy(),
    )
    assert story.ended
    assert texts(lines, "end")[0].startswith(
        "the job failed with exit code 3: KeyError: 'x', and automatic restart is off"
    )
    assert (story.summary().outcome, story.summary().code) == ("failed", 3)


def test_many_nodes_are_counted_not_listed():
    places = tuple(Placed(index, f"n{index}") for index in range(512))
    _, lines = told(
        JobSubmitted(at_s=0.0, job="llama", workers=512),
        WorkersPlaced(at_s=1.0, attempt=1, placed=places),
        AttemptStarted(at_s=2.0, attempt=1),
    )
    assert texts(lines, "attempt") == ["attempt 1 runs on n0, n1, n2, n3 and 508 more"]


def test_a_culprit_of_whom_little_is_known():
    assert culprit_words(Culprit(rank=5, host="gpu-03")) == "rank 5, gpu-03"
    assert culprit_words(Culprit()) == "unknown"


def _many():
    """Events of every kind about a job of two workers in its first attempts, right and wrong ones."""
    verdict, rank, worker = (BUG, UNKNOWN), range(3), range(2)
    for attempt in range(4):
        for nodes in (("n0", "n1"), ("n2", "n1"), ("n2", "n2")):
            yield WorkersPlaced(at_s=0.0, attempt=attempt, placed=tuple(map(Placed, worker, nodes)))
        yield AttemptStarted(at_s=0.0, attempt=attempt)
        yield AttemptStopped(at_s=0.0, attempt=attempt)
        yield PlacementFailed(at_s=0.0, attempt=attempt, reason="full")
        yield HangFound(at_s=0.0, attempt=attempt, hang="quiet", culprits=(1,), reason="no sign of life")
        yield from (StepReached(at_s=0.0, attempt=attempt, step=step) for step in (1, 20, 40))
        yield from (RankStarted(at_s=0.0, attempt=attempt, worker=0, rank=one, pid=7) for one in rank)
        yield from (RankExited(at_s=0.0, attempt=attempt, worker=0, rank=one, code=one - 1) for one in rank)
        yield from (WorkerExited(at_s=0.0, attempt=attempt, worker=one, code=one) for one in worker)
        yield from (VerdictReached(at_s=0.0, incident=attempt, verdict=one) for one in verdict)
    for node in ("n0", "n1", "n2"):
        yield DeviceFaulted(at_s=0.0, node=node, device="0", code="79")
        yield from (DeviceHealed(at_s=0.0, node=node, device="0", healed=healed) for healed in (True, False))
        yield NodeLost(at_s=0.0, node=node, reason="gone")
        yield NodeIsolated(at_s=0.0, node=node)
        yield NodeReleased(at_s=0.0, node=node)
    yield ControllerResumed(at_s=0.0)
    yield JobMoved(at_s=0.0, reason="requeued")
    yield FindingNoted(at_s=0.0, finding="slowdown", text="slow")
    yield StopRequested(at_s=0.0, reason="asked")
    yield from (Tick(at_s=0.0) for _ in range(8))


SUBMITTED = JobSubmitted(at_s=0.0, job="llama", workers=2)
PLACED = WorkersPlaced(at_s=0.0, attempt=1, placed=(Placed(0, "n0"), Placed(1, "n1")))
# Facts of their own, told even where they change nothing for the job.
TOLD_ALWAYS = (FindingNoted, AttemptStarted, NodeReleased, DeviceHealed, RankExited, WorkerExited)


@given(st.lists(st.sampled_from(list(_many())), max_size=40))
def test_whatever_happens_the_story_says_what_the_state_is(events):
    story, state, rungs = Story(POLICY), State(), 0
    for number, plain in enumerate((SUBMITTED, PLACED, *events)):
        event = replace(plain, at_s=number * 7.0)
        before, decision = state, decide(state, event, POLICY)
        state = decision.state
        lines = story.hear(event, decision)
        assert all(line.kind in KINDS and line.text and line.at_s == event.at_s for line in lines)
        assert decision.choice is None or [line.kind for line in lines].count("rung") == 1
        assert state != before or not lines or decision.why or type(event) in TOLD_ALWAYS
        rungs += decision.choice is not None
    summary = story.summary()
    assert (summary.restarts, summary.step, summary.attempt) == (
        state.job.restarts,
        state.job.step,
        state.job.attempt,
    )
    assert len(summary.incidents) == state.job.incidents
    assert sum(len(incident.rungs) for incident in summary.incidents) == rungs
    assert sum(not incident.over for incident in summary.incidents) == (state.job.incident is not None)
    assert summary.phase_words
