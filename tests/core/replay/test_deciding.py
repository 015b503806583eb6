"""A job decided again: under its own policy all its own decisions, under another one what that would have done."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.costs.journal_kit import happenings, journal_of, killed, start, steps, submitted
from holdfast.core.job.decide import decide
from holdfast.core.replay.deciding import UnknownSetting, changed, decided_twice, first_choices
from holdfast.core.replay.score import card, score
from holdfast.model import events as ev
from holdfast.model.policy import Policy
from holdfast.model.state import State

RESTARTS = Policy(max_restarts=8, unconditional_restart=True, hang_restart=True)
NOTHING = Policy()
policies = st.builds(
    Policy,
    max_restarts=st.sampled_from([None, 1, 3, 128]),
    unconditional_restart=st.booleans(),
    hang_restart=st.booleans(),
    replace_workers=st.sampled_from([None, 2]),
    shadow=st.booleans(),
    keep_on_failure_s=st.sampled_from([0.0, 600.0]),
    boot_check=st.sampled_from(["off", "quick"]),
    device_repeats_max=st.sampled_from([1, 3]),
    verdict_wait_s=st.sampled_from([1.0, 30.0]),
    node_wait_s=st.sampled_from([10.0, 604800.0]),
)


def decided(events, policy):
    state = State()
    for event in events:
        decision = decide(state, event, policy)
        state = decision.state
        yield decision


@given(happenings, policies)
def test_under_its_own_policy_a_job_decides_all_that_it_did(what, policy):
    events = journal_of(what)
    twice = list(decided_twice(events, policy, policy))
    assert [both.event for both in twice] == events
    own = list(decided(events, policy))
    assert [both.was for both in twice] == own
    assert [both.other for both in twice] == own
    scored = score(events, policy, policy, gpus=8)
    assert (scored.same, scored.differences, scored.saved_s) == (scored.decisions, (), {})
    assert scored.ends_at_s is None and not scored.would_go_on


@given(happenings, policies, policies)
def test_another_policy_never_fails_and_never_changes_what_was(what, own, other):
    events = journal_of(what)
    twice = list(decided_twice(events, own, other))
    assert [both.was for both in twice if both.was is not None] == list(decided(events, own))
    scored = score(events, own, other)
    assert 0 <= scored.same <= scored.decisions


KILLED = [*submitted(), *steps(10, 1, 1, 91), *killed(101, 1), *start(110, 2), *steps(131, 2, 72, 120)]


def test_without_restarts_the_job_would_have_ended_there():
    scored = score(KILLED, RESTARTS, NOTHING)
    (row,) = scored.differences
    assert (row.what, row.was, row.would_be, row.saved_s) == (
        "would-end", "reschedule-unconditional", "fail", None,
    )  # fmt: skip
    assert (scored.ends_at_s, scored.after_end_s, scored.unknown) == (103.0, 76.0, 1)


def test_a_job_that_failed_would_have_gone_on_with_restarts():
    scored = score([*submitted(), *steps(10, 1, 1, 91), *killed(101, 1)], NOTHING, RESTARTS)
    assert scored.would_go_on and scored.ends_at_s is None
    assert scored.differences[0].what == "would-go-on"


def test_budgets_of_the_other_policy_are_counted_along():
    events, at_s = [*submitted()], 10
    for number in (1, 2, 3):
        events += [*steps(at_s, number, 20 * number, 20 * number + 15), *killed(at_s + 20, number, number)]
        events += start(at_s + 30, number + 1)
        at_s += 40
    scored = score([*events, *steps(at_s, 4, 80, 90)], RESTARTS, changed(RESTARTS, {"max_restarts": 2}))
    assert [row.incident for row in scored.differences] == [3]
    assert scored.same == 2 and scored.ends_at_s == 112.0


def hang(timeout_s):
    policy = changed(RESTARTS, {"hang_timeout_s": timeout_s})
    at_s = 50.0 + timeout_s
    found = ev.HangFound(at_s=at_s, attempt=1, hang="quiet", culprits=(0,), reason="it stands")
    end = [*killed(at_s, 1)[1:], *start(at_s + 10, 2), *steps(at_s + 30, 2, 41, 60)]
    return [*submitted(), *steps(10, 1, 1, 41), found, *end], policy


def test_a_shorter_hang_timeout_saves_its_time_and_nothing_else():
    events, policy = hang(1800.0)
    scored = score(events, policy, changed(policy, {"hang_timeout_s": 60.0}), gpus=8)
    assert scored.saved_s == {"detection": 1740.0} and scored.saved_gpu_hours == 1740.0 * 8 / 3600
    assert (scored.same, scored.unknown) == (1, 0)
    longer = score(events, policy, changed(policy, {"hang_timeout_s": 3600.0}))
    assert longer.saved_s == {"detection": -1800.0}


def test_a_gap_between_steps_would_have_been_taken_for_a_hang():
    events, policy = hang(1800.0)
    checkpoint = [*submitted(), *steps(10, 1, 1, 5), *steps(100, 1, 6, 9)]
    other = changed(policy, {"hang_timeout_s": 60.0})
    (row,) = score(checkpoint, policy, other).differences
    assert (row.what, row.at_s, row.saved_s) == ("false-hang", 74.0, None)
    scored = [score(events, policy, other), score(checkpoint, policy, other)]
    assert (card(scored).false_hangs, card(scored).jobs, card(scored).unknown) == (1, 2, 1)


def test_a_wait_that_would_have_ended_earlier_is_decided_then():
    lost = ev.NodeLost(at_s=60.0, node="n0", reason="it is silent")
    verdict = killed(60, 1)[1]
    gone = [
        ev.NodeIsolated(at_s=63.0, node="n0"),
        ev.AttemptStopped(at_s=64.0, attempt=1),
        ev.PlacementFailed(at_s=65.0, attempt=2, reason="no node is free"),
        ev.NodeReturned(at_s=5_000.0, node="n1"),
        *start(5_001.0, 2, "n1"),
        *steps(5_010.0, 2, 30, 40),
    ]
    events = [*submitted(), *steps(10, 1, 1, 41), lost, verdict, *gone]
    scored = score(events, RESTARTS, changed(RESTARTS, {"node_wait_s": 600.0}))
    assert 665.0 < scored.ends_at_s < 666.0


def test_the_first_choice_of_an_incident_under_both():
    pair = first_choices(KILLED, RESTARTS, NOTHING)[1]
    assert [choice.rung for choice in pair] == ["reschedule-unconditional", "fail"]


def test_unknown_settings_and_values_are_refused():
    with pytest.raises(UnknownSetting, match="there is no setting 'max_restart'"):
        changed(RESTARTS, {"max_restart": 3})
    with pytest.raises(UnknownSetting, match="max_restarts"):
        changed(RESTARTS, {"max_restarts": 4_000})
