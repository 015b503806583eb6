"""How rivals are weighed: how sure, how grave, how near to the end of the job."""

import pytest

from core.diagnosis.candidate_kit import candidate, signature
from holdfast.core.diagnosis.choice.choose import choose
from holdfast.core.diagnosis.choice.scoring import MARGIN, contenders, strength

HOUR_S = 3600.0
MILD = signature("link-errors", "nvlink_error", severity="error", weight=0.9, area="kernel")
FLAP = signature("flap", "nic_link_flap", severity="error", weight=0.9, area="kernel")
OOM_KILL = signature("oom-kill", "host_oom", severity="fatal", weight=0.95, area="kernel")
LOST = signature("lost-gpu", "xid_79", severity="fatal", weight=0.95, area="kernel")
OOPS = signature("oops", "kernel_bug", severity="fatal", weight=0.9, area="kernel")
OTHER = signature("other", "storage_io", severity="error", weight=0.9, area="kernel")
CRASH = signature("assertion", "segfault", severity="fatal", weight=0.85)
VAGUE = signature("vague", "python_exception", weight=0.6)
ENDED = signature("child-failed", "unknown", role="symptom", severity="fatal")


def chosen(*candidates):
    choice = choose(candidates)
    return choice.root.signature.id if choice.root else None


@pytest.mark.parametrize("grave", [OOM_KILL, LOST, OOPS], ids=lambda one: one.id)
def test_a_mild_event_hours_before_loses_to_a_grave_one_near_the_end(grave):
    mild = candidate(MILD, offset=1, at_s=0.0)
    assert chosen(mild, candidate(grave, offset=9, at_s=3 * HOUR_S)) == grave.id
    assert chosen(mild, candidate(grave, offset=9, at_s=60.0)) == MILD.id  # it may have led to it


def test_the_end_of_a_process_tells_when_the_job_ended():
    early, late = candidate(MILD, offset=1, at_s=0.0), candidate(OOM_KILL, source=1, at_s=2 * HOUR_S)
    end = candidate(ENDED, source=2, at_s=2 * HOUR_S + 5)
    assert chosen(early, late, end) == "oom-kill"
    # Both were long before the end: time tells nothing of them, and the first may have led to the other.
    assert (
        chosen(
            candidate(MILD, offset=1, at_s=0.0),
            candidate(OOM_KILL, source=1, at_s=300.0),
            candidate(ENDED, source=2, at_s=9 * HOUR_S),
        )
        == "link-errors"
    )


def test_of_events_alike_the_first_counts_however_early():
    assert chosen(candidate(MILD, offset=1, at_s=0.0), candidate(OTHER, offset=9, at_s=5 * HOUR_S)) == MILD.id
    assert chosen(candidate(LOST, offset=1, at_s=0.0), candidate(OOPS, offset=9, at_s=5 * HOUR_S)) == LOST.id


def test_without_times_no_event_is_far():
    assert chosen(candidate(MILD, offset=1), candidate(OTHER, offset=9)) == MILD.id


def test_a_link_that_came_back_loses_to_what_failed_for_good():
    assert chosen(candidate(FLAP, offset=1), candidate(LOST, offset=9)) == LOST.id
    assert chosen(candidate(FLAP, offset=1), candidate(OTHER, offset=9)) == FLAP.id


def test_a_program_that_crashed_in_the_log_of_a_kernel_is_not_why_the_kernel_failed():
    assert chosen(candidate(CRASH, offset=1), candidate(OOPS, offset=9)) == OOPS.id
    assert chosen(candidate(CRASH, source=1, at_s=1.0), candidate(OOPS, at_s=9.0)) == CRASH.id  # a rank's log


def test_what_is_vague_gives_way_to_what_is_sure():
    vague, sure = candidate(VAGUE, offset=1), candidate(OTHER, offset=9)
    assert contenders([vague, sure], []) == [sure]
    assert contenders([vague], []) == [vague]


def test_one_row_of_the_table_alone_displaces_no_earlier_rival():
    rows = candidate(MILD).known.rules.weight
    assert rows
    assert all(abs(row.points) < MARGIN for row in rows)
    assert strength(candidate(MILD), [], []) == 0
