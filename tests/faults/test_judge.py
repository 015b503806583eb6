"""Tests the judgement of runs against the truth of their case."""

import pytest
from msgspec.structs import replace

from bench.faults.draw import Case
from bench.faults.judge import Run, judged
from bench.faults.report import page
from bench.faults.systems.base import Found, failure_in
from bench.job.trial import Moment, Result

RESULT = Result(step=100, loss=1.5)
MOMENTS = (
    Moment(9.0, "step", 0, 10, step=50),
    Moment(10.0, "struck", 1, 11, step=50),
    Moment(14.0, "resumed", 0, 20, step=40),
    Moment(15.0, "step", 0, 20, step=41),
    Moment(15.5, "step", 1, 21, step=41),
)
RUN = Run(
    system="one", case=Case(0, "sigkill", 50, 1), moments=MOMENTS, found=(Found(10.2, (1,), "process_killed"),),
    ended=True, code=0, left=0, took_s=12.0, result=RESULT, expected=RESULT, expected_s=10.0,
)  # fmt: skip


def test_a_fault_that_is_found_named_and_recovered():
    row = judged(RUN, 2)
    assert (row.found_s, row.cause_right, row.culprit_right) == (0.2, True, True)
    assert (row.steps_lost, row.stepping_s, row.person, row.result_equal, row.ratio) == (
        10,
        5.5,
        False,
        True,
        1.2,
    )


@pytest.mark.parametrize("found", [(), (Found(3.0, (1,), "process_killed"),)])
def test_what_was_said_before_the_fault_does_not_count(found: tuple[Found, ...]):
    row = judged(replace(RUN, found=found), 2)
    assert (row.found_s, row.cause_right, row.culprit_right) == (None, False, False)


@pytest.mark.parametrize("ranks, right", [((1,), True), ((0,), False), ((0, 1), False), ((), False)])
def test_the_culprit_is_this_rank_and_no_other(ranks: tuple[int, ...], right: bool):
    assert judged(replace(RUN, found=(Found(11.0, ranks, "process_killed"),)), 2).culprit_right is right


@pytest.mark.parametrize("ranks, right", [((), True), ((1,), False)])
def test_of_a_cut_connection_nobody_is_the_culprit(ranks: tuple[int, ...], right: bool):
    cut = replace(RUN, case=Case(0, "cut", 50, 1), found=(Found(11.0, ranks, "nccl_network_error"),))
    assert judged(cut, 2).culprit_right is right


@pytest.mark.parametrize("found, right", [((), True), ((Found(3.0, (0,), "straggler"),), False)])
def test_a_pause_is_no_fault(found: tuple[Found, ...], right: bool):
    row = judged(replace(RUN, case=Case(0, "pause", 50, 1), found=found), 2)
    assert (row.cause_right, row.culprit_right) == (right, right)


def test_a_warning_is_no_statement_about_a_failure_but_one_about_a_healthy_run():
    warning = Found(10.1, (0,), "straggler", is_warning=True)
    assert judged(replace(RUN, found=(warning, *RUN.found)), 2).cause_right
    assert judged(replace(RUN, case=Case(0, "undisturbed", 50, 1), found=(warning,)), 2).cause_right is False


def test_a_killed_supervisor_has_no_cause_to_judge():
    row = judged(replace(RUN, case=Case(0, "supervisor", 50, 1), found=()), 2)
    assert (row.cause_right, row.culprit_right) == (None, None)


@pytest.mark.parametrize("change", [{"ended": False, "code": None}, {"code": 1}, {"result": None}])
def test_a_run_that_does_not_complete_needs_a_person(change: dict[str, object]):
    assert judged(replace(RUN, **change), 2).person


@pytest.mark.parametrize("result", [None, Result(90, 1.5), Result(100, 1.6)])
def test_another_result_is_not_equal(result: Result | None):
    assert not judged(replace(RUN, result=result), 2).result_equal


def test_lines_of_elastic_agents():
    line = "E1126 02:00:00 71 api.py:1000] failed (exitcode: -9) local_rank: 2 (pid: 71) of binary: python"
    assert failure_in(1.0, line) == Found(1.0, (2,), "process_killed")
    assert failure_in(1.0, line.replace("-9", "7")) == Found(1.0, (2,), "unknown")
    assert failure_in(1.0, "step 10/200 loss 2.2") is None


def test_the_page_has_a_row_for_each_class_and_system():
    rows = [judged(RUN, 2), judged(replace(RUN, system="two", found=(), ended=False), 2)]
    written = page(rows, "about", ["three: not installed"])
    assert "| crash | one | 1 | 0.20 s | 1/1 | 1/1 | 10 | 5.50 s | 0 | 0 | 1/1 | 1.20 × |" in written
    assert "| crash | two | 1 | – | 0/1 | 0/1 |" in written
    assert written.endswith("Left out:\n- three: not installed\n")
