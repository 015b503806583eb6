"""How long a verdict waits."""

import pytest

from holdfast.core.verdict.patience import SURE_S, patience_s
from holdfast.model.policy import Policy
from holdfast.model.verdicts import Verdict

LIMIT_S = 4.0
RESTARTS = [Policy(max_restarts=1), Policy(hang_restart=True), Policy(replace_workers=1)]


def verdict(category, confidence):
    return Verdict(category=category, class_="unknown", title="", confidence=confidence, action="restart")


def waits_s(category, confidence, policy=RESTARTS[0], *, is_certain=True):
    return patience_s(verdict(category, confidence), policy, LIMIT_S, is_certain=is_certain)


@pytest.mark.parametrize("policy", RESTARTS)
def test_who_was_killed_is_seen_at_once_and_what_is_sure_waits_a_moment(policy):
    assert waits_s("process_killed", 0.7, policy) == 0.0
    assert waits_s("python_exception", 0.9, policy) == SURE_S
    assert waits_s("python_exception", 0.7, policy) == LIMIT_S


def test_nothing_is_sooner_than_its_limit_allows():
    assert patience_s(verdict("segfault", 0.9), RESTARTS[0], 1.0, is_certain=True) == 1.0


def test_what_others_may_still_explain_is_waited_for():
    assert waits_s("process_killed", 0.9, is_certain=False) == LIMIT_S


def test_where_nothing_is_started_again_all_that_can_be_known_is_waited_for():
    assert waits_s("process_killed", 0.9, Policy()) == LIMIT_S
