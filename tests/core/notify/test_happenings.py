"""What people are told of, from the events of a job: every kind, and nothing else."""

import pytest
from msgspec.structs import replace

from holdfast.core.notify.happenings import FINDINGS
from holdfast.model.documents.notices import NOTICE_EVENTS
from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    FindingNoted,
    HangFound,
    NodeIsolated,
    NodeReturned,
    Placed,
    PlacementFailed,
    RankExited,
    StepReached,
    StopRequested,
    Tick,
    VerdictReached,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import Ended, Job, Running, State, Waiting, Worker
from notices_kit import BUG, POLICY, START, said

KILLED = RankExited(at_s=10.0, attempt=1, worker=0, rank=0, code=-9)
VERDICT = VerdictReached(at_s=11.0, incident=1, verdict=BUG)
RESTARTED = (
    AttemptStopped(at_s=12.0, attempt=1),
    WorkersPlaced(at_s=13.0, attempt=2, placed=(Placed(0, "n0"),)),
    AttemptStarted(at_s=14.0, attempt=2),
    StepReached(at_s=20.0, attempt=2, step=90),
)
RUNNING = Running(since_s=4.0)
# Seen from outside of the journal: tests/notify/test_watching.py has these.
FROM_OUTSIDE = {"unsupervised", "log-silence", "checkpoint-old"}


def names(found):
    return [(one.key, one.event, one.severity, one.is_over) for one in found]


def test_a_start_and_a_good_end():
    found = said(
        *START, WorkerExited(at_s=10.0, attempt=1, worker=0, code=0), AttemptStopped(at_s=11.0, attempt=1)
    )
    assert names(found) == [("job", "job-started", "info", False), ("job", "job-done", "info", True)]


def test_an_incident_is_one_notice_from_its_opening_to_its_recovery():
    found = said(*START, KILLED, VERDICT, *RESTARTED)[1:]
    assert {one.key for one in found} == {"incident-1"}
    assert {one.incident for one in found} == {1}
    events = [one.event for one in found if one.is_milestone]
    assert events == ["incident", "verdict", "recovered"]
    assert [one.severity for one in found if one.is_milestone] == ["warning", "warning", "info"]
    assert [one.is_over for one in found] == [False] * (len(found) - 1) + [True]


def test_a_hang_is_named_as_one():
    hang = HangFound(at_s=10.0, attempt=1, hang="spinning", culprits=(0,), reason="rank 0 spins")
    assert ("incident-1", "hang", "warning", False) in names(said(*START, hang))


def test_a_failure_is_the_last_word_of_its_incident():
    policy = Policy()  # restarts nothing
    found = said(*START, KILLED, VERDICT, AttemptStopped(at_s=12.0, attempt=1), policy=policy)
    assert names(found)[-1] == ("incident-1", "failed", "critical", True)
    assert not [one for one in found if one.event == "job-done"]


def test_a_job_that_is_stopped_during_an_incident_leaves_no_incident_open():
    stop = StopRequested(at_s=11.5, reason="a person asked")
    found = said(*START, KILLED, stop, AttemptStopped(at_s=12.0, attempt=1))
    ends = [one for one in found if one.is_over]
    assert {one.key for one in ends} >= {"incident-1"}
    assert all(one.severity in ("info", "critical") for one in ends)


def test_waiting_for_a_node_begins_and_ends():
    job = Job(name="j", workers=(Worker(),), attempt=1, isolated=("n0",))
    waiting = State(job, Waiting(since_s=90.0, asked_s=95.0))
    placing = said(PlacementFailed(at_s=91.0, attempt=2, reason="none"), state=waiting)
    assert placing == []  # it waits already
    over = said(
        NodeReturned(at_s=99.0, node="n9"),
        WorkersPlaced(at_s=99.5, attempt=2, placed=(Placed(0, "n9"),)),
        state=waiting,
    )
    assert ("place", "waiting-for-node", "info", True) in names(over)
    found = said(
        *START,
        KILLED,
        VERDICT,
        AttemptStopped(at_s=12.0, attempt=1),
        PlacementFailed(at_s=13.0, attempt=2, reason="no node is left"),
    )
    assert ("place", "waiting-for-node", "critical", False) in names(found)


def test_no_spare_is_said_with_its_reason():
    found = said(
        *START,
        KILLED,
        VERDICT,
        AttemptStopped(at_s=12.0, attempt=1),
        PlacementFailed(at_s=13.0, attempt=2, reason="all spares are used", hopeless=True),
    )
    spare = next(one for one in found if one.event == "no-spare")
    assert (spare.severity, spare.text) == ("critical", "all spares are used")
    assert found[-1].event == "failed"


def test_an_isolation_is_said_once():
    job = Job(name="j", workers=(Worker(),), attempt=1, to_isolate=("n0",))
    from_order = said(NodeIsolated(at_s=5.0, node="n0"), state=State(job, RUNNING))
    assert [(one.key, one.event, one.text) for one in from_order] == [("isolation-n0", "isolation", "n0")]
    assert said(NodeIsolated(at_s=5.0, node="n1"), state=State(job, RUNNING)) == []


@pytest.mark.parametrize(("allowed", "severity"), [(1, "critical"), (2, "warning"), (3, None), (None, None)])
def test_a_budget_that_is_nearly_used_up_is_said(allowed, severity):
    policy = replace(POLICY, max_restarts=allowed)
    found = [
        one for one in said(*START, KILLED, VERDICT, *RESTARTED, policy=policy) if one.event == "budget-low"
    ]
    assert [one.severity for one in found] == ([severity] if severity else [])


@pytest.mark.parametrize("finding", FINDINGS)
def test_each_finding_has_a_notice(finding):
    event, severity = FINDINGS[finding]
    noted = FindingNoted(at_s=30.0, finding=finding, text="steps are 13 % slower", attempt=1)
    (found,) = said(*START, noted)[1:]
    assert (found.event, found.severity, found.text) == (event, severity, "steps are 13 % slower")
    assert found.is_over == finding.endswith("-over")
    assert found.key == f"{finding.removesuffix('-over')}-1"


def test_what_is_over_ends_the_notice_of_what_began():
    begin, end = (
        said(*START, FindingNoted(at_s=30.0, finding=name, text="x", attempt=1))[-1]
        for name in ("slowdown", "slowdown-over")
    )
    assert begin.key == end.key


def test_other_findings_and_time_are_no_news():
    quiet = FindingNoted(at_s=30.0, finding="check-slow", text="x", attempt=1)
    assert said(*START, quiet, Tick(at_s=31.0), StepReached(at_s=32.0, attempt=1, step=101))[1:] == []


def test_every_event_has_a_test_here_or_in_those_of_what_lies_outside():
    seen = {
        *(event for event, _ in FINDINGS.values()),
        *("incident", "hang", "verdict", "recovered", "failed", "waiting-for-node", "no-spare"),
        *("isolation", "budget-low", "job-started", "job-done"),
    }
    assert seen | FROM_OUTSIDE == set(NOTICE_EVENTS)


def test_an_ended_job_says_nothing_more():
    ended = State(Job(name="j", workers=(Worker(),), attempt=1), Ended(outcome="failed", code=1, reason="x"))
    assert said(Tick(at_s=99.0), KILLED, state=ended) == []
