"""Annotations of platforms: taken, or refused with the range."""

import msgspec
import pytest

from holdfast.core.job.decide import decide
from holdfast.core.job.policy_change import in_force, on_changed, wanted
from holdfast.core.kubernetes.annotations import applied, asked
from holdfast.core.kubernetes.known import Rules
from holdfast.core.kubernetes.pods import PodBook
from holdfast.model.events import AnyEvent, PolicyChanged
from holdfast.model.kubernetes import OwnerState
from holdfast.model.policy import Policy, PolicyFields
from holdfast.model.state import Job, State


def test_each_annotation_changes_its_own_field():
    given = {
        "fault-tolerance/job-retry-num": "7",
        "fault-tolerance/job-unconditional-retry": "true",
        "fault-tolerance/hang-retry": "true",
        "fault-tolerance/pod-retry-num": "3",
        "other.io/annotation": "x",
    }
    policy, lines = applied(given, Policy(hang_timeout_s=60.0))
    assert policy == Policy(
        max_restarts=7, unconditional_restart=True, hang_restart=True, replace_workers=3, hang_timeout_s=60.0
    )
    assert len(lines) == 4


@pytest.mark.parametrize("value", ["0", "129", "many", "", "1,2"])
def test_a_number_out_of_range_is_refused_with_the_range_and_changes_nothing(value):
    before = Policy(max_restarts=5)
    policy, (line,) = applied({"fault-tolerance/job-retry-num": value}, before)
    assert policy == before
    assert "fault-tolerance/job-retry-num is refused" in line and "1" in line and "128" in line


def test_an_unknown_one_is_named():
    _, (line,) = applied({"fault-tolerance/job-retries": "3"}, Policy())
    assert "fault-tolerance/job-retries is unknown" in line


def test_a_change_while_the_job_runs_asks_for_a_policy_once():
    book = PodBook(Rules())
    owner = OwnerState(kind="Job", name="t")
    book.saw_owner(owner, 0.0)
    book.turn(0.0)
    changed = OwnerState(
        kind="Job",
        name="t",
        annotations={"fault-tolerance/job-retry-num": "200", "fault-tolerance/hang-retry": "true"},
    )
    for at_s in (1.0, 2.0):
        book.saw_owner(changed, at_s)
    (one,), _ = book.turn(3.0)
    assert one.fields == PolicyFields(hang_restart=True)
    assert one.refused == ("max_restarts",)
    assert "refused" in one.text and "128" in one.text


def test_what_is_refused_keeps_its_value_and_what_is_removed_returns_to_the_start():
    start = Policy(max_restarts=3)
    job = Job(policy_fields=PolicyFields(max_restarts=9, hang_restart=True))
    refused = asked({"fault-tolerance/job-retry-num": "0"}, "Job t")
    change = wanted(job, start, refused, 1.0)
    assert change.fields == PolicyFields(max_restarts=9)
    again = on_changed(State(job), change).state.job
    assert in_force(again, start) == Policy(max_restarts=9)
    assert wanted(again, start, refused, 2.0) is None
    removed = on_changed(State(again), wanted(again, start, asked({}, "Job t"), 3.0)).state.job
    assert in_force(removed, start) == start


def test_a_replayed_journal_has_the_changed_limits():
    change = PolicyChanged(at_s=1.0, fields=PolicyFields(max_restarts=5), text="changed", by="Job t")
    read = msgspec.json.decode(msgspec.json.encode(change), type=AnyEvent)
    assert read == change
    state = decide(State(), read, Policy()).state
    assert in_force(state.job, Policy()).max_restarts == 5
