"""What people say of an incident: it is kept, and changes nothing in the job."""

import itertools

import pytest

from core.job.test_decide import EVENTS, POLICIES, states
from core.job.test_story import BUG, START, texts, told
from holdfast.core.job.decide import decide
from holdfast.core.job.decision import Decision
from holdfast.model import events as ev
from holdfast.model.events import (
    AttemptStopped,
    IncidentAcknowledged,
    RankExited,
    VerdictCorrected,
    VerdictReached,
)
from holdfast.model.policy import Policy


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_what_people_say_of_an_incident_changes_nothing(policy):
    remarks = [event for event in EVENTS if isinstance(event, ev.IncidentAcknowledged | ev.VerdictCorrected)]
    assert len(remarks) == 2
    for state, remark in itertools.product(states(policy), remarks):
        assert decide(state, remark, policy) == Decision(state)


def test_what_people_say_of_an_incident_is_kept_after_the_end_and_is_no_sign_of_life():
    story, lines = told(
        *START,
        RankExited(at_s=10.0, attempt=1, worker=0, rank=0, code=1),
        VerdictReached(at_s=11.0, incident=1, verdict=BUG, user_code=True),
        AttemptStopped(at_s=12.0, attempt=1),
        IncidentAcknowledged(at_s=50.0, incident=1, by="ana"),
        IncidentAcknowledged(at_s=51.0, incident=1, by="bo"),
        VerdictCorrected(at_s=60.0, incident=1, by="bo", category="data_error", text="shard 19 is torn"),
        VerdictCorrected(at_s=61.0, incident=7, by="bo", category="data_error"),
        policy=Policy(),
    )
    assert story.ended
    summary = story.summary()
    assert summary.last_at_s == 12.0
    [incident] = summary.incidents
    assert (incident.acknowledged_by, incident.acknowledged_at_s) == ("ana", 50.0)
    assert incident.verdict == BUG
    assert [(said.category, said.by, said.at_s) for said in incident.corrections] == [
        ("data_error", "bo", 60.0)
    ]
    assert texts(lines, "request")[:3] == [
        "incident 1: acknowledged by ana",
        "incident 1: acknowledged by bo",
        "incident 1: the verdict is corrected to data_error by bo: shard 19 is torn",
    ]
    assert [line.incident for line in lines if line.kind == "request"] == [1, 1, 1, 7]
