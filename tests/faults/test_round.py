"""Tests one real fault of the benchmark: a killed rank under torchrun.

torchrun looks at its ranks every 0.1 s. If the other rank has failed as well by then, it may name that one. So the test
compares the judgement with what torchrun named.
"""

from pathlib import Path

from bench.faults.draw import Case
from bench.faults.judge import judged
from bench.faults.run import Setup, run_case
from bench.faults.systems.registry import system
from bench.job.trial import Result

RANKS, STEPS = 2, 40


def test_a_killed_rank_is_judged_and_the_training_completes(tmp_path: Path):
    setup = Setup(RANKS, STEPS, 0.0, 60.0)
    unknown = (Result(STEPS, 0.0), 1.0)
    run, printed = run_case(system("torchrun", RANKS), Case(0, "sigkill", 25, 1), setup, tmp_path, unknown)
    row = judged(run, RANKS)
    assert row.struck and not row.person and not row.orphans, "".join(printed)
    assert row.named in ((0,), (1,)), "".join(printed)
    assert row.cause_right is row.culprit_right is (row.named == (1,))
    assert row.steps_lost == 5
    assert run.result is not None and run.result.step == STEPS
