"""The fault-tolerance log as a plain file."""

import os

from holdfast.core.job.decide import decide
from holdfast.core.job.story import Line
from holdfast.model.events import (
    AttemptStarted,
    AttemptStopped,
    JobSubmitted,
    Placed,
    RankExited,
    StepReached,
    VerdictReached,
    WorkersPlaced,
)
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import Verdict
from holdfast.views.log import NAME, PlainLog, printed, restarts_allowed

POLICY = Policy(max_restarts=3, unconditional_restart=True)
KILLED = Verdict(category="process_killed", class_="process", title="rank 2 was killed", confidence=0.9)
EVENTS = (
    JobSubmitted(at_s=1000.0, job="a", workers=1, command=("train",)),
    WorkersPlaced(at_s=1000.0, attempt=1, placed=(Placed(0, "here"),)),
    AttemptStarted(at_s=1000.1, attempt=1),
    StepReached(at_s=1001.0, attempt=1, step=5),
    RankExited(at_s=1002.0, attempt=1, worker=0, rank=2, code=-9),
    VerdictReached(at_s=1002.1, incident=1, verdict=KILLED, problem="killed"),
    AttemptStopped(at_s=1002.2, attempt=1),
)


def told(log, events=EVENTS, state=None, how="decided"):
    state = state or State()
    for event in events:
        decision = decide(state, event, POLICY)
        getattr(log, how)(event, decision)
        state = decision.state
    return state


def test_the_file_says_what_happened_and_what_it_cost(tmp_path):
    told(PlainLog(tmp_path, POLICY))
    text = (tmp_path / NAME).read_text()
    assert "rank 2 on worker 0 failed: killed by signal 9" in text
    assert "action: reschedule the job (restart 1 of 3)" in text
    assert "maximum restarts: 3; restarts so far: 1; reschedules caused by hardware: 0" in text


def test_a_process_that_takes_a_job_up_writes_nothing_twice(tmp_path):
    state = told(PlainLog(tmp_path, POLICY), EVENTS[:4])
    again = PlainLog(tmp_path, POLICY)
    told(again, EVENTS[:4], how="remember")
    told(again, EVENTS[4:], state)
    whole = PlainLog(tmp_path / "whole", POLICY)
    os.mkdir(tmp_path / "whole")
    told(whole)
    assert (tmp_path / NAME).read_text() == (tmp_path / "whole" / NAME).read_text()


def test_a_folder_that_is_gone_costs_nothing(tmp_path):
    told(PlainLog(tmp_path / "gone", POLICY))
    assert not (tmp_path / "gone").exists()


def test_the_environment_is_one_short_line():
    given = "environment given: A_B=1 FLAGS=--x_y=1 --z=2 C=; left as you set them: PATH"
    line = Line(at_s=1000.0, attempt=1, incident=None, kind="finding", text=given, finding="environment")
    assert printed(line).endswith(
        " environment: 3 variables set (holdfast log --json lists them); left as you set them: PATH"
    )


def test_no_automatic_restarts_only_where_no_other_setting_restarts_either():
    assert restarts_allowed(POLICY) == "3"
    assert restarts_allowed(Policy()) == "none (no automatic restarts)"
    assert restarts_allowed(Policy(hang_restart=True)) == "none"
