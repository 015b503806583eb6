"""A rank that enters a collective after the others gave up: its own log blames a peer."""

from core.diagnosis.test_communication import seen, timeout
from holdfast.core.diagnosis.compare.late import came_late
from holdfast.model.matches import Source
from known import KNOWN

LOGS = (Source(name="job.log"),)


def raised(rank, seq, at_s):
    text = (
        f"[Rank {rank}] Collective WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, "
        "Timeout(ms)=600000) raised the following async exception: NCCL error: remote process exited"
    )
    return seen(text, id_="torch-collective-raised", rank=rank, offset=50 + rank, at_s=at_s, host=f"n{rank}")


def test_the_rank_that_fails_later_in_the_same_collective_came_late():
    waits = [timeout(rank, 3, at_s=100.0 + rank) for rank in (0, 1)]
    found = came_late([*waits, raised(2, 3, 125.0)], LOGS, KNOWN)
    assert found is not None
    assert [(one.rank, one.host) for one in found.culprits] == [(2, "n2")]
    assert found.first is waits[0]


def test_a_rank_that_fails_with_the_others_or_elsewhere_did_not():
    waits = [timeout(rank, 3, at_s=100.0) for rank in (0, 1)]
    assert came_late([*waits, raised(2, 3, 103.0)], LOGS, KNOWN) is None
    assert came_late([*waits, raised(2, 4, 125.0)], LOGS, KNOWN) is None
    assert came_late([*waits, raised(1, 3, 125.0)], LOGS, KNOWN) is None
    assert came_late([raised(2, 3, 125.0)], LOGS, KNOWN) is None
