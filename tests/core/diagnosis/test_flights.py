"""What flight records and stacks tell, joined with what the logs say."""

import pytest

from core.diagnosis.candidate_kit import NO_SIGNATURES
from core.flight.flight_kit import Call, Job
from holdfast.core.diagnosis.flights import outranks, with_flights
from holdfast.model.diagnoses import Diagnosis, Fact
from holdfast.model.flight.digests import Located
from holdfast.model.flight.scenes import FlightScene, FoundStacks, RecordFile
from holdfast.model.flight.thread_stacks import RankStacks, ThreadStack
from holdfast.model.matches import Match, Search, Source, Writer
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

WAITS = (
    "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py:3252 all_reduce",
    "/job/train.py:40 step",
)
LOCKED = ("/job/train.py:21 user_lock", "/job/train.py:25 step")
NOTHING = Search()


def found(category, class_="communication", confidence=0.9, ranks=(), **rest):
    words = Words(en=f"{category} in a line", zh=f"日志：{category}")
    fact = Fact(file="rank-1.log", line=7, text="the line", says=words)
    return Diagnosis(
        category=category,
        class_=class_,
        confidence=confidence,
        title=words,
        explanation=words,
        advice=words,
        culprits=tuple(Culprit(rank=rank) for rank in ranks),
        evidence=() if category in ("none", "unknown") else (fact,),
        **rest,
    )


def scene(missing=2, ranks=4, without=(), stacks=()):
    """All do 20 steps of all_reduce on gloo; one stops before the last."""
    job = Job({"world": tuple(range(ranks))}, [[Call("world")] * 21] * ranks, backend="gloo")
    if missing is not None:
        job.ranks[missing].stops_at = 20
    digests = job.run().digests(without)
    return FlightScene(
        digests=tuple(digests),
        records=tuple(RecordFile(one.rank, f"fr_rank_{one.rank}") for one in digests),
        stacks=tuple(stacks),
    )


def dump(rank, frames, source="faulthandler"):
    threads = (ThreadStack(is_main=True, frames=frames),)
    return FoundStacks(f"{source}_{rank}.txt", RankStacks(rank=rank, pid=0, threads=threads, source=source))


def joined(diagnosis, *args, search=NOTHING, **kwargs):
    return with_flights(diagnosis, search, scene(*args, **kwargs), NO_SIGNATURES)


def ranks(diagnosis):
    return [one.rank for one in diagnosis.culprits]


@pytest.mark.parametrize(
    "diagnosis",
    [
        found("none", "healthy"),
        found("unknown", "unknown"),
        found("nccl_network_error", ranks=(0,)),
        found("collective_timeout"),
        found("terminated", "process"),
        found("time_limit", "scheduler"),
    ],
)
def test_who_was_waited_for_explains_what_the_others_complain_of(diagnosis):
    told = joined(diagnosis)
    assert (told.category, told.class_, ranks(told)) == ("collective_missing_rank", "communication", [2])
    assert told.title.en.startswith("rank 2")
    assert "3 ranks wait for it in all_reduce #21" in told.title.en
    assert "rank 2" in told.title.zh
    assert told.evidence[0].text == (
        "default_pg: ranks 0, 1, 3 enqueued 21, completed 20; rank 2 enqueued 20, completed 20"
    )
    assert told.evidence[0].file == "fr_rank_2"
    assert told.first_error is None
    assert told.advice.zh != told.advice.en


@pytest.mark.parametrize(
    "diagnosis",
    [
        found("gpu_oom", "memory", ranks=(2,)),
        found("python_exception", "training", ranks=(2,)),
        found("xid_79", "hardware"),
        found("host_oom", "memory"),
        found("process_killed", "process", ranks=(2,)),
        found("gpu_oom", "memory", ranks=(0,)),
        found("import_error", "environment"),
    ],
)
def test_a_fault_of_its_own_is_the_cause_and_the_records_are_evidence(diagnosis):
    told = joined(diagnosis)
    assert (told.category, told.culprits) == (diagnosis.category, diagnosis.culprits)
    assert told.title == diagnosis.title
    assert "3 ranks wait for it" in told.evidence[-1].text


@pytest.mark.parametrize("category", ["python_exception", "process_killed", "segfault"])
def test_who_dies_while_it_waits_is_not_the_cause(category):
    told = joined(found(category, "training", ranks=(0,)))
    assert (told.category, ranks(told)) == ("collective_missing_rank", [2])
    assert [one.category for one in told.also] == [category]


def test_the_same_cause_keeps_the_words_of_the_line_and_gets_the_rank():
    told = joined(found("collective_missing_rank", confidence=0.6))
    assert told.explanation.en == "collective_missing_rank in a line"
    assert ranks(told) == [2]
    assert told.confidence >= 0.9
    assert not told.also


def test_a_healthy_job_comes_out_healthy():
    told = joined(found("none", "healthy"), missing=None)
    assert (told.category, told.culprits) == ("none", ())
    assert told.notes[-1].en == "the flight records of 4 ranks: no rank blocks the others"
    quiet = found("gpu_oom", "memory", ranks=(1,))
    assert joined(quiet, missing=None).category == "gpu_oom"


def test_nothing_beside_the_logs_changes_nothing():
    before = found("collective_timeout")
    assert with_flights(before, NOTHING, FlightScene(), NO_SIGNATURES) is before


def test_stacks_say_why_it_did_not_come():
    stacks = [dump(rank, LOCKED if rank == 2 else WAITS) for rank in range(4)]
    told = joined(found("none", "healthy"), stacks=stacks)
    assert "train.py:21 in user_lock" in told.title.en
    fact = next(one for one in told.evidence if one.file == "faulthandler_2.txt")
    assert (fact.text, fact.says.en) == ("/job/train.py:21 user_lock", "what rank 2 is doing")
    loader = [dump(rank, ("/job/train.py:12 load_batch",) if rank == 2 else WAITS) for rank in range(4)]
    assert joined(found("none", "healthy"), stacks=loader).category == "dataloader_stuck"


def test_one_that_answers_neither_us_nor_its_signal_is_stopped():
    stacks = [dump(rank, WAITS) for rank in (0, 1, 3)] + [dump(2, LOCKED, "py-spy")]
    told = joined(found("none", "healthy"), without=(2,), stacks=stacks)
    assert (told.category, ranks(told)) == ("process_stopped", [2])


def test_one_of_which_nothing_is_left_was_killed():
    told = joined(found("nccl_network_error"), without=(2,), stacks=[dump(3, WAITS)])
    assert (told.category, ranks(told)) == ("process_killed", [2])


def test_an_exception_in_the_log_of_a_rank_is_why_it_is_missing():
    match = Match(
        signature="x",
        category="python_exception",
        source=0,
        offset=9,
        line=2,
        text="ValueError: no such batch",
        writer=Writer(rank=2, host="gpu07", worker=1),
        error_type="ValueError",
    )
    search = Search(sources=(Source(name="rank-2.log"),), matches=(match,))
    told = joined(found("none", "healthy"), search=search)
    assert told.category == "python_exception"
    assert told.culprits == (Culprit(rank=2, host="gpu07", worker=1),)
    went_on = Search(sources=(Source(name="rank-2.log", last_step_offset=50),), matches=(match,))
    assert joined(found("none", "healthy"), search=went_on).category == "collective_missing_rank"


def test_stacks_alone_tell_only_where_something_is_wrong():
    stacks = tuple(dump(rank, LOCKED if rank == 2 else WAITS) for rank in range(4))
    alone = FlightScene(stacks=stacks)
    told = with_flights(found("collective_timeout"), NOTHING, alone, NO_SIGNATURES)
    assert (told.category, ranks(told)) == ("collective_missing_rank", [2])
    assert with_flights(found("none", "healthy"), NOTHING, alone, NO_SIGNATURES).category == "none"
    split = FlightScene(stacks=tuple(dump(rank, LOCKED if rank % 2 else WAITS) for rank in range(4)))
    assert (
        with_flights(found("collective_timeout"), NOTHING, split, NO_SIGNATURES).category
        == "collective_timeout"
    )


def test_where_no_rank_differs_the_logs_decide_unless_they_say_nothing():
    nobody = Located(kind="network_or_device", category="collective_timeout", culprits=())
    assert not outranks(nobody, found("nccl_network_error", ranks=(1,)), NO_SIGNATURES)
    assert outranks(nobody, found("none", "healthy"), NO_SIGNATURES)


def test_notes_of_the_records_are_shown():
    odd = FlightScene(digests=scene().digests, notes=(Words(en="odd", zh="异常"),))
    assert with_flights(found("none", "healthy"), NOTHING, odd, NO_SIGNATURES).notes[0].zh == "异常"
