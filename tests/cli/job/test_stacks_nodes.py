"""`holdfast stacks` of a job on several nodes: the agents look, and equal stacks are one across workers."""

import json

import pytest

from cli.job.test_stacks import HANGS, OTHER
from cli.nodes_kit import rank
from holdfast.core.answer_groups import Answer
from holdfast.jobs.rank_stacks import joined
from holdfast.jobs.running_ranks import RunningRank
from holdfast.model.calls import CallPlace


@pytest.fixture
def job(nodes):
    """Two workers of two ranks; rank 2 is at another place than the others."""
    found = nodes(2)
    folders = [found.job.worker(1, worker) for worker in range(2)]
    ranks = [rank(folders[number // 2], number, OTHER if number == 2 else HANGS) for number in range(4)]
    yield found
    for one in ranks:
        one.kill()
        one.wait()
        one.stdin.close()
        one.stdout.close()


def test_equal_stacks_are_one_across_workers(stacks, job):
    code, out, err = stacks("llama")
    assert (code, err) == (0, "")
    head, _, first, *rest = out.splitlines()
    assert head.startswith("job llama, attempt 1, ") and head.endswith(": 4 ranks in 2 stacks")
    assert first.startswith("rank 2: waits at <string>:6 in hang (S, ")
    assert any(line.startswith("ranks 0-1,3 (3): waits at <string>:4 in hang (S, ") for line in rest)
    assert job.notes == []


def test_ranks_and_workers_are_chosen(stacks, job):
    answer = json.loads(stacks("--json", "--worker", "1", "--all-threads")[1])
    assert [group["ranks"] for group in answer["groups"]] == [[2], [3]]
    assert [thread["main"] for thread in answer["groups"][0]["threads"]] == [True, False]
    answer = json.loads(stacks("--json", "--rank", "1,3,7")[1])
    assert [group["ranks"] for group in answer["groups"]] == [[1, 3]]
    assert answer["missing"] == [{"rank": 7, "why": "job llama has no such rank"}]


def test_native_frames_of_the_odd_ones(stacks, job):
    answer = json.loads(stacks("--json", "--native")[1])
    assert [(group["ranks"], group["source"]) for group in answer["groups"]] == [
        ([2], "native"),
        ([0, 1, 3], "native"),
    ]


def test_ranks_of_a_node_that_cannot_be_reached_are_named(stacks, job):
    job.workers[1] = "node-9"
    code, out, _ = stacks("--json")
    answer = json.loads(out)
    assert (code, [group["ranks"] for group in answer["groups"]]) == (0, [[0, 1]])
    assert answer["missing"] == [
        {"rank": 2, "why": "node-9: the agent of this node is not connected"},
        {"rank": 3, "why": "node-9: the agent of this node is not connected"},
    ]


def test_a_controller_that_does_not_listen(stacks, job):
    (job.job.path / "secret").unlink()
    code, out, err = stacks("llama")
    assert (code, out) == (1, "")
    assert "its controller does not listen" in err


def test_an_answer_that_nobody_can_read_and_a_worker_without_a_node():
    ranks = [RunningRank(4, 2, 71, None), RunningRank(5, 3, 72, None)]
    answers = [Answer(node="node-2", worker=2, outcome="exited", output=b"\xc1")]
    found = joined(ranks, [CallPlace(node="node-2", worker=2)], answers)
    assert [one.why_not for one in found] == [
        "the agent on node-2 has no such rank",
        "the worker of this rank runs on no node now",
    ]
