"""Every second of a job has one cause, and no counter ever falls."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.job.decide import decide
from holdfast.core.metrics.ledger import Ledger
from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    HangFound,
    JobSubmitted,
    Placed,
    RankExited,
    RankStarted,
    StepReached,
    Tick,
    VerdictReached,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import Verdict

POLICY = Policy(max_restarts=8, unconditional_restart=True, hang_restart=True)
XID = Verdict(category="xid_79", class_="hardware", title="GPU 3 fell off the bus", confidence=0.9)
START = (
    JobSubmitted(at_s=100.0, job="llama", workers=1, command=("train",)),
    WorkersPlaced(at_s=101.0, attempt=1, placed=(Placed(0, "n0"),)),
    AttemptStarted(at_s=102.0, attempt=1),
    RankStarted(at_s=103.0, attempt=1, worker=0, rank=0, pid=41),
    StepReached(at_s=110.0, attempt=1, step=0),
    StepReached(at_s=120.0, attempt=1, step=10),
)
FAILURE = (
    RankExited(at_s=125.0, attempt=1, worker=0, rank=0, code=-9),
    VerdictReached(at_s=127.0, incident=1, verdict=XID),
    AttemptStopped(at_s=130.0, attempt=1),
    WorkersPlaced(at_s=131.0, attempt=2, placed=(Placed(0, "n1"),)),
    AttemptStarted(at_s=132.0, attempt=2),
    RankStarted(at_s=132.0, attempt=2, worker=0, rank=0, pid=42),
    StepReached(at_s=140.0, attempt=2, step=6),
    StepReached(at_s=145.0, attempt=2, step=11),
    StepReached(at_s=150.0, attempt=2, step=15),
)


def heard(*events, policy=POLICY):
    ledger, state = Ledger(policy), State()
    for event in events:
        decision = decide(state, event, policy)
        state = decision.state
        ledger.hear(event, decision)
    return ledger


def test_a_start_and_steady_steps():
    now = heard(*START).now(120.0)
    assert now.productive_s == pytest.approx(10.0)
    assert sum(now.lost_s.values()) == pytest.approx(10.0)
    assert {stage for _, stage in now.lost_s} == {"placing", "start"}
    assert {category for category, _ in now.lost_s} == {"none"}
    assert now.goodput == pytest.approx(0.5)
    assert (now.ranks_running, now.ranks_ended, now.attempts) == (1, 0, 1)
    assert now.last_step_s == 120.0


def test_an_incident_takes_all_time_since_the_last_step():
    now = heard(*START, *FAILURE).now(150.0)
    by_stage = {stage: lost_s for (category, stage), lost_s in now.lost_s.items() if category == "xid_79"}
    assert by_stage["stalled"] == pytest.approx(5.0)
    assert by_stage["diagnosing"] == pytest.approx(2.0)
    assert by_stage["start"] == pytest.approx(9.0)
    assert by_stage["repeated"] == pytest.approx(5.0)
    assert now.productive_s == pytest.approx(10.0 + 5.0)
    assert now.productive_s + sum(now.lost_s.values()) == pytest.approx(50.0)
    assert now.steps_repeated == 5
    assert now.recoveries.sum_s == pytest.approx(15.0)
    assert sum(now.recoveries.counts) == 1
    ((place, (count, example)),) = now.incidents.items()
    assert place[0] == "xid_79"
    assert count == 1
    assert example.labels == (("incident", "1"),)


def test_time_before_the_verdict_waits_for_its_category():
    ledger = heard(*START, FAILURE[0], Tick(at_s=126.0))
    assert "unknown" not in {category for category, _ in ledger.now(126.0).lost_s}
    ended = heard(*START, *FAILURE[:2])
    assert ended.now(127.0).lost_s["xid_79", "stalled"] == pytest.approx(5.0)


def test_a_hang_loses_the_time_in_which_nothing_moved():
    hang = HangFound(at_s=180.0, attempt=1, hang="stopped", culprits=(0,), reason="rank 0 is stopped")
    now = heard(*START, hang, VerdictReached(at_s=181.0, incident=1, verdict=XID)).now(181.0)
    assert now.lost_s["xid_79", "stalled"] == pytest.approx(60.0)


def test_a_log_without_steps_counts_as_training_after_a_while():
    ticks = [Tick(at_s=102.0 + n) for n in range(200)]
    now = heard(*START[:4], *ticks).now(301.0)
    assert now.productive_s > 190.0
    assert now.goodput > 0.9


def test_a_job_that_ends_well_keeps_its_last_seconds():
    ended = (WorkerExited(at_s=125.0, attempt=1, worker=0, code=0), AttemptStopped(at_s=126.0, attempt=1))
    now = heard(*START, *ended).now(500.0)
    assert now.productive_s == pytest.approx(15.0)
    assert sum(now.lost_s.values()) == pytest.approx(10.0)


def test_before_anything_there_is_nothing():
    now = Ledger(POLICY).now(5.0)
    assert (now.goodput, now.submitted_s, now.lost_s) == (None, None, {})


EVENTS = st.one_of(
    st.just(lambda at_s, attempt: Tick(at_s=at_s)),
    st.integers(0, 40).map(
        lambda step: lambda at_s, attempt: StepReached(at_s=at_s, attempt=attempt, step=step)
    ),
    st.just(lambda at_s, attempt: RankExited(at_s=at_s, attempt=attempt, worker=0, rank=0, code=-9)),
    st.just(lambda at_s, attempt: AttemptStopped(at_s=at_s, attempt=attempt)),
    st.just(lambda at_s, attempt: AttemptStarted(at_s=at_s, attempt=attempt)),
    st.just(lambda at_s, attempt: WorkersPlaced(at_s=at_s, attempt=attempt, placed=(Placed(0, "n0"),))),
    st.integers(1, 4).map(
        lambda incident: lambda at_s, attempt: VerdictReached(at_s=at_s, incident=incident, verdict=XID)
    ),
)


@given(st.lists(st.tuples(EVENTS, st.floats(0.0, 100.0)), max_size=40))
def test_no_counter_falls_and_no_second_counts_twice(events):
    ledger, state, at_s = Ledger(POLICY), State(), 100.0
    made = [lambda at_s, attempt: START[0], *(make for make, _ in events)]
    waits = [0.0, *(wait_s for _, wait_s in events)]
    before = None
    for make, wait_s in zip(made, waits, strict=True):
        at_s += wait_s
        event = make(at_s, max(1, state.job.attempt))
        decision = decide(state, event, POLICY)
        state = decision.state
        ledger.hear(event, decision)
        now = ledger.now(at_s)
        assert now.productive_s + sum(now.lost_s.values()) <= at_s - 100.0 + 1e-6
        assert now.goodput is None or 0.0 <= now.goodput <= 1.0
        if before is not None:
            assert now.productive_s >= before.productive_s
            assert now.steps_repeated >= before.steps_repeated
            assert all(now.lost_s.get(place, 0.0) >= lost_s for place, lost_s in before.lost_s.items())
            assert all(now.incidents[place][0] >= count for place, (count, _) in before.incidents.items())
        before = now
