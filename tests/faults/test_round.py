"""Tests a round of the fault benchmark: one real fault, a killed rank under torchrun, and a round that is continued.

torchrun looks at its ranks every 0.1 s. If the other rank has failed as well by then, it may name that one. So the test
compares the judgement with what torchrun named.
"""

from pathlib import Path

import msgspec
import pytest

from bench.faults.__main__ import check_round, rows_before
from bench.faults.draw import Case
from bench.faults.judge import Run, judged
from bench.faults.run import Setup, run_case
from bench.faults.systems.registry import system
from bench.job.trial import Result

RANKS, STEPS = 2, 40


def test_a_killed_rank_is_judged_and_the_training_completes(tmp_path: Path):
    setup = Setup(RANKS, STEPS, 0.0, 300.0, sums=True)
    unknown = (Result(STEPS, 0.0), 1.0)
    run, printed = run_case(system("torchrun", RANKS), Case(0, "sigkill", 25, 1), setup, tmp_path, unknown)
    row = judged(run, RANKS)
    assert row.struck and not row.person and not row.orphans, "".join(printed)
    assert row.named in ((0,), (1,)), "".join(printed)
    assert row.cause_right is row.culprit_right is (row.named == (1,))
    assert row.steps_lost == 5
    assert run.result is not None and run.result.step == STEPS


def test_a_round_continues_with_what_its_folder_holds(tmp_path: Path):
    setup = Setup(RANKS, STEPS, 0.0, 300.0)
    assert not rows_before(tmp_path)
    check_round(tmp_path, setup, seed=1)
    case = Case(3, "sigkill", 25, 1)
    row = judged(run_of(case), RANKS)
    (tmp_path / "results.jsonl").write_bytes(msgspec.json.encode(row) + b"\n")
    check_round(tmp_path, setup, seed=1)
    assert rows_before(tmp_path) == {("torchrun", case): row}


def test_a_folder_with_another_round_is_refused(tmp_path: Path):
    check_round(tmp_path, Setup(RANKS, STEPS, 0.0, 300.0), seed=1)
    with pytest.raises(SystemExit, match="another folder with --out"):
        check_round(tmp_path, Setup(RANKS, STEPS, 0.0, 300.0), seed=2)


def run_of(case: Case) -> Run:
    return Run(
        system="torchrun",
        case=case,
        moments=(),
        found=(),
        ended=False,
        code=None,
        left=0,
        took_s=90.0,
        result=None,
        expected=Result(STEPS, 0.0),
        expected_s=1.0,
    )
