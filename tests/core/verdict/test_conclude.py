"""What many workers know of a failure, joined."""

from msgspec.structs import replace

from holdfast.core.verdict.conclude import (
    first_of,
    first_of_many,
    joined_failure,
    joined_scene,
    joined_search,
    were_only_ended,
    with_places,
)
from holdfast.model.failures import ErrorRecord, Failure, RankExit
from holdfast.model.flight.digests import RankLife
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.matches import Match, Search, Source, Writer
from holdfast.model.nodes.workers import Looked, WorkerEvidence
from holdfast.model.samples import Hang
from holdfast.model.verdicts import Culprit, Verdict

NODES = {0: "n0", 1: "n1"}


def told(worker, failure=Failure(), **more):  # noqa: B008 - it is frozen
    return WorkerEvidence(
        incident=1,
        attempt=3,
        worker=worker,
        revision=1,
        failure=failure,
        certain=False,
        is_all=True,
        **more,
    )


def ended(rank, code, at_s, worker=0):
    return RankExit(rank=rank, worker=worker, code=code, at_s=at_s)


def error(rank, message, at_s=None, type="RuntimeError"):
    return ErrorRecord(rank=rank, worker=rank // 2, type=type, message=message, at_s=at_s)


def test_ends_come_together_in_the_order_of_time():
    failure = joined_failure(
        [
            told(1, Failure(exits=(ended(2, 1, 5.0, 1),), errors=(error(2, "late"), error(3, "x", 2.0)))),
            told(0, Failure(exits=(ended(0, -9, 4.0),), errors=(error(0, "early", 1.0),))),
        ]
    )
    assert [one.rank for one in failure.exits] == [0, 2]
    assert [one.rank for one in failure.errors] == [0, 3, 2]


def test_the_table_whose_first_rank_failed_first_comes_first():
    tables = [
        told(0, Failure(elastic=(ended(0, 1, 9.0), ended(1, 1, 9.1)))),
        told(1, Failure(elastic=(ended(2, 1, 8.0),))),
    ]
    assert [one.rank for one in joined_failure(tables).elastic] == [2, 0, 1]


def test_the_commands_code_is_the_first_that_is_not_0():
    def code(*codes):
        return joined_failure(
            [told(worker, Failure(command_code=one)) for worker, one in enumerate(codes)]
        ).command_code

    assert code(0, 0) == 0
    assert code(0, None) is None
    assert code(None, 7, 3) == 7
    assert code() is None


def test_a_launcher_that_ended_well_has_seen_its_own_ranks_end_well_and_no_others():
    failure = joined_failure(
        [
            told(0, Failure(exits=(ended(0, None, 1.0),), command_code=0)),
            told(1, Failure(exits=(ended(2, None, 2.0, 1),), command_code=None)),
        ]
    )
    assert [one.code for one in failure.exits] == [0, None]


def test_a_complaint_is_not_certain_and_an_error_of_a_ranks_own_is():
    complaint = joined_failure([told(0, Failure(errors=(error(0, "Connection closed by peer"),)))])
    assert not first_of(complaint)[1]
    own = joined_failure(
        [
            told(0, Failure(errors=(error(0, "Connection closed by peer", 1.0),))),
            told(1, Failure(errors=(error(3, "bad batch", 1.2, "ValueError"),))),
        ]
    )
    verdict, is_certain = first_of(own)
    assert is_certain
    assert [one.rank for one in verdict.culprits] == [3]


def test_ranks_that_only_got_a_signal_do_not_show_which_was_first():
    told_to = (ended(0, -15, 1.0), ended(2, 143, 1.1))
    assert were_only_ended(Failure(exits=told_to))
    assert not were_only_ended(Failure())
    assert not were_only_ended(Failure(exits=(*told_to, ended(1, -9, 0.9))))
    assert not were_only_ended(Failure(exits=told_to, elastic=(ended(1, -9, 0.9),)))
    assert not were_only_ended(Failure(exits=told_to, errors=(error(1, "bad batch", 0.9, "ValueError"),)))


def test_a_lost_node_explains_the_complaints_of_the_others():
    complaint = told(0, Failure(errors=(error(0, "Connection closed by peer"),)))
    verdict, is_certain = first_of(joined_failure([complaint], lost=["n1"]))
    assert is_certain
    assert verdict.category == "node_down"


def test_the_hang_that_was_seen_over_all_ranks_is_the_one():
    own = Hang(kind="quiet", since_s=1.0, why="mine", confidence=0.5)
    whole = Hang(kind="stopped", since_s=1.0, why="ours", confidence=0.9)
    assert joined_failure([told(0, Failure(hang=own))], whole).hang == whole
    assert joined_failure([told(0, Failure(hang=own))]).hang == own


def test_a_source_says_of_which_worker_and_host_it_is():
    def search(*names):
        match = Match(signature="s", category="c", source=len(names) - 1, offset=7, line=1, text="oops")
        return Search(sources=tuple(Source(name=name) for name in names), matches=(match,))

    found = joined_search(
        [
            told(1, search=search("attempt-003/worker-1/rank-2.log")),
            told(0, search=search("attempt-003/worker-0/stderr", "kernel.log")),
        ],
        NODES,
    )
    assert [one.name for one in found.sources] == [
        "attempt-003/worker-0/stderr",
        "attempt-003/worker-0/kernel.log",
        "attempt-003/worker-1/rank-2.log",
    ]
    assert [(one.writer.worker, one.writer.host) for one in found.sources] == [
        (0, "n0"),
        (None, "n0"),
        (1, "n1"),
    ]
    assert [(one.source, one.writer) for one in found.matches] == [
        (1, Writer(worker=0, host="n0")),
        (2, Writer(worker=1, host="n1")),
    ]


def test_looks_are_one_scene():
    looks = [
        Looked(
            attempt=3,
            worker=worker,
            look=1,
            lives={rank: RankLife()},
            stacks=(RankStacks(rank=rank, pid=1),),
            usual_bytes=(4, 8 + worker),
        )
        for worker, rank in ((1, 2), (0, 0))
    ]
    scene, lives = joined_scene(looks, 4)
    assert [one.stacks.rank for one in scene.stacks] == [0, 2]
    assert scene.usual_bytes == {4, 8, 9}
    assert scene.world_size == 4
    assert set(lives) == {0, 2}


def test_culprits_have_their_worker_and_host():
    verdict = Verdict(
        category="c",
        class_="c",
        title="t",
        confidence=0.9,
        culprits=(Culprit(rank=3), Culprit(host="n0", device="0000:01"), Culprit(rank=9)),
    )
    placed = with_places(verdict, {3: 1}, NODES).culprits
    assert placed == (
        Culprit(rank=3, worker=1, host="n1"),
        Culprit(worker=0, host="n0", device="0000:01"),
        Culprit(rank=9),
    )


def complains(rank):
    return error(rank, "Connection closed by peer [10.0.0.1]:5000", 7.0)


def test_whose_command_was_killed_explains_the_complaints_of_the_others():
    evidence = [told(0, Failure(command_code=-9)), told(1, Failure(errors=(complains(2),)))]
    verdict, is_sure = first_of_many(joined_failure(evidence), evidence)
    assert is_sure
    assert (verdict.category, verdict.culprits) == ("process_killed", (Culprit(worker=0),))
    assert verdict.title.startswith("the command of worker 0 was killed by SIGKILL")
    assert "Connection closed" in verdict.evidence[-1].text


def test_the_end_of_a_rank_says_more_than_that_of_its_command():
    evidence = [
        told(0, Failure(command_code=-9, exits=(ended(1, -9, 6.0),))),
        told(1, Failure(errors=(complains(2),))),
    ]
    verdict, is_sure = first_of_many(joined_failure(evidence), evidence)
    assert is_sure
    assert verdict.culprits == (Culprit(rank=1, worker=0),)


def test_what_becomes_of_the_ranks_of_a_killed_command_is_waited_for():
    evidence = [replace(told(0, Failure(command_code=-9)), is_all=False), told(1)]
    assert not first_of_many(joined_failure(evidence), evidence)[1]


def test_a_command_that_was_killed_after_its_ranks_complained_is_not_the_cause():
    evidence = [told(0, Failure(command_code=-9, errors=(complains(0),))), told(1)]
    verdict, is_sure = first_of_many(joined_failure(evidence), evidence)
    assert (verdict.category, is_sure) == ("nccl_network_error", False)


def test_the_kernels_word_on_memory_stays_the_cause_of_a_killed_command():
    oom = ("Memory cgroup out of memory: Killed process 7 (python)",)
    evidence = [told(0, Failure(command_code=-9, oom=oom)), told(1, Failure(errors=(complains(2),)))]
    verdict, _ = first_of_many(joined_failure(evidence), evidence)
    assert (verdict.category, verdict.culprits) == ("cgroup_oom", (Culprit(worker=0),))


def test_ends_that_nothing_else_explains_are_explained_by_a_killed_command():
    evidence = [told(0, Failure(exits=(ended(0, 1, 7.0),))), told(1, Failure(command_code=-9))]
    verdict, is_sure = first_of_many(joined_failure(evidence), evidence)
    assert is_sure
    assert (verdict.category, verdict.culprits) == ("process_killed", (Culprit(worker=1),))
