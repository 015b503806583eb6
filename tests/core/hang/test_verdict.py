"""Which of records, stacks and samples names the culprit of a hang."""

from holdfast.core.hang.verdict import joined
from holdfast.model.flight.digests import Located
from holdfast.model.flight.thread_stacks import RankStacks, ThreadStack
from holdfast.model.samples import Hang
from holdfast.model.signatures import Words

WAITS = ("/x/site-packages/torch/autograd/graph.py:820 _engine_run_backward", "train.py:20 step")
LOCKED = ("/w/fault.py:44 happen", "/w/fault.py:25 step")
FOUND = Hang(kind="quiet", since_s=5.0, why="no step for 6 s", confidence=0.7)


def stacks(rank, frames):
    return RankStacks(rank=rank, pid=rank + 1, threads=(ThreadStack(frames=frames),))


def located(confidence):
    return Located(
        kind="missing",
        category="collective_missing_rank",
        culprits=(0,),
        confidence=confidence,
        why=Words(en="records", zh="记录"),
    )


def test_stacks_win_over_records_that_are_half_sure():
    seen = [stacks(0, WAITS), stacks(1, LOCKED)]
    assert joined(FOUND, located(0.5), seen).culprits == (1,)


def test_records_that_are_surer_win_over_stacks():
    seen = [stacks(0, WAITS), stacks(1, LOCKED)]
    assert joined(FOUND, located(0.8), seen).culprits == (0,)


def test_records_that_are_half_sure_win_where_stacks_tell_nothing():
    assert joined(FOUND, located(0.5), []).culprits == (0,)
