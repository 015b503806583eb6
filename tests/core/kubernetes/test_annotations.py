"""Annotations of platforms: taken, or refused with the range."""

import pytest

from holdfast.core.kubernetes.annotations import applied
from holdfast.core.kubernetes.pods import PodBook, Rules
from holdfast.model.kubernetes import OwnerState
from holdfast.model.policy import Policy


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


def test_a_change_while_the_job_runs_is_noted_once():
    book = PodBook(Rules())
    owner = OwnerState(kind="Job", name="t")
    book.saw_owner(owner, 0.0)
    changed = OwnerState(kind="Job", name="t", annotations={"fault-tolerance/job-retry-num": "200"})
    for at_s in (1.0, 2.0):
        book.saw_owner(changed, at_s)
    (note,), _ = book.turn(3.0)
    assert "refused" in note.text and "from the next start of the job on" in note.text
