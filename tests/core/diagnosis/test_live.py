"""What the ends of ranks tell, joined with what their logs say."""

import msgspec
import pytest
from msgspec.structs import replace

from core.diagnosis.candidate_kit import NO_SIGNATURES
from holdfast.core.diagnosis.live import joined, verdict_of
from holdfast.model.diagnoses import Diagnosis, Fact, FirstError
from holdfast.model.signatures import SPOKEN, Words
from holdfast.model.verdicts import Culprit, Evidence, Verdict


def first(category, class_="training", confidence=0.9, **rest):
    return Verdict(
        category=category, class_=class_, title=f"{category} it seems", confidence=confidence, **rest
    )


def found(category, class_, confidence=0.9, **rest):
    words = Words(en=f"{category} in a line", zh=f"日志：{category}")
    fact = Fact(file="rank-1.log", line=7, text="the line", says=words, signature="one")
    error = FirstError(file="rank-1.log", line=7, text="the line")
    return Diagnosis(
        category=category,
        class_=class_,
        confidence=confidence,
        title=words,
        explanation=words,
        advice=words,
        first_error=error,
        evidence=(fact,),
        **rest,
    )


@pytest.mark.parametrize(
    ("known", "line", "category"),
    [
        (first("python_exception"), found("gpu_oom", "memory"), "gpu_oom"),  # the line says what it was
        (first("gpu_oom", "memory"), found("nccl_network_error", "communication"), "gpu_oom"),
        (first("gpu_oom", "memory"), found("xid_79", "hardware"), "xid_79"),  # hardware explains it all
        (first("gpu_oom", "memory"), found("xid_79", "hardware", 0.4), "gpu_oom"),  # unless that is a guess
        (first("collective_timeout"), found("python_exception", "training"), "collective_timeout"),
        (
            first("process_stopped", "process"),
            found("nfs_lustre_stall", "host"),
            "process_stopped",
        ),  # it was seen
        # Of two causes that say little, the line's wins where the ends of the ranks only gave a guess.
        (
            first("nccl_network_error", "communication", 0.5),
            found("rendezvous_timeout", "communication"),
            "rendezvous_timeout",
        ),
        (
            first("nccl_network_error", "communication", 0.8),
            found("rendezvous_timeout", "communication"),
            "nccl_network_error",
        ),
        (first("process_killed", "process"), found("none", "healthy"), "process_killed"),
        (first("process_killed", "process"), found("unknown", "unknown"), "process_killed"),
    ],
)
def test_which_of_the_two_is_said(known, line, category):
    assert joined(known, line, NO_SIGNATURES).category == category


def test_the_lines_are_evidence_even_where_they_do_not_decide():
    told = joined(first("gpu_oom", "memory"), found("nccl_network_error", "communication"), NO_SIGNATURES)
    assert [fact.text for fact in told.evidence] == ["the line"]


@pytest.mark.parametrize(
    ("at_s", "category"), [(99.0, "cgroup_oom"), (None, "cgroup_oom"), (50.0, "process_killed")]
)
def test_a_rank_that_was_killed_was_not_killed_for_want_of_memory_a_while_before(at_s, category):
    """A container's neighbours stand in the same kernel's log, with other numbers of processes."""
    known = first("process_killed", "process", first_error=Evidence(text="-9", says="killed", at_s=100.0))
    line = found("cgroup_oom", "memory")
    line = replace(line, first_error=replace(line.first_error, at_s=at_s))
    assert joined(known, line, NO_SIGNATURES).category == category


@pytest.mark.parametrize(
    ("seen", "category"),
    [("code 3", "unknown"), ("code 1", "process_killed"), ("code 137", "process_killed")],
)
def test_a_rank_that_ended_with_a_code_of_its_own_was_not_killed(seen, category):
    """A notebook's client reports that its kernel died, however it ended."""
    known = first("unknown", "unknown", 0.2, first_error=Evidence(text=seen), culprits=(Culprit(rank=0),))
    assert joined(known, found("process_killed", "process"), NO_SIGNATURES).category == category


def test_who_was_seen_to_be_killed_is_not_those_whose_pipe_to_it_broke():
    known = first("process_killed", "process", culprits=(Culprit(rank=1, worker=1),))
    told = joined(
        known,
        found("process_killed", "process", culprits=(Culprit(worker=3), Culprit(worker=0))),
        NO_SIGNATURES,
    )
    assert told.culprits == (Culprit(rank=1, worker=1),)
    assert [fact.text for fact in told.evidence] == ["the line"]


def test_an_exception_that_was_seen_is_not_replaced_by_a_mere_complaint():
    """Its last line, "RuntimeError: no such thing", is also what programs of all kinds print before they end."""
    line = found("python_exception", "training")
    complaint = replace(line, evidence=(replace(line.evidence[0], signature=SPOKEN),))
    known = first("python_exception")
    assert joined(known, line, NO_SIGNATURES).title == line.title
    assert joined(known, complaint, NO_SIGNATURES).title.en == known.title
    assert joined(known, complaint, NO_SIGNATURES).evidence[-1].text == "the line"


def test_a_job_that_was_asked_to_stop_has_no_fault():
    assert (
        joined(
            first("terminated", "process"), found("gpu_oom", "memory"), NO_SIGNATURES, asked_to_stop=True
        ).category
        == "terminated"
    )


def test_ranks_come_from_the_ends_and_devices_from_the_lines():
    known = first("process_killed", "process", culprits=(Culprit(rank=3),))
    told = joined(known, found("xid_79", "hardware", culprits=(Culprit(device="0000:5d:00"),)), NO_SIGNATURES)
    assert told.culprits == (Culprit(rank=3), Culprit(device="0000:5d:00"))


def test_a_line_that_blames_another_rank_is_believed():
    known = first("collective_timeout", culprits=(Culprit(rank=0),))
    told = joined(known, found("nic_down", "network", culprits=(Culprit(rank=2),)), NO_SIGNATURES)
    assert told.culprits == (Culprit(rank=2),)


def test_as_the_record_keeps_it():
    verdict = verdict_of(joined(first("python_exception"), found("gpu_oom", "memory"), NO_SIGNATURES), "zh")
    assert verdict.title == "日志：gpu_oom"
    assert verdict.first_error == Evidence(
        text="the line", says="日志：gpu_oom", file="rank-1.log", line=7, signature="one"
    )


def test_a_first_verdict_keeps_its_words():
    assert (
        verdict_of(joined(first("gpu_oom"), found("none", "healthy"), NO_SIGNATURES)).title
        == "gpu_oom it seems"
    )


def test_a_kill_for_memory_elsewhere_on_the_node_does_not_explain_a_hang():
    hang = Verdict(
        category="collective_missing_rank",
        class_="communication",
        title="rank 1 runs at train.py:8 in loop",
        confidence=0.95,
        culprits=(Culprit(rank=1),),
        first_error=Evidence(text="hang (spinning)"),
    )
    killed = found("cgroup_oom", "memory", confidence=0.95)
    assert joined(hang, killed, NO_SIGNATURES).category == "collective_missing_rank"
    stuck = msgspec.structs.replace(hang, category="dataloader_stuck")
    assert joined(stuck, killed, NO_SIGNATURES).category == "cgroup_oom"


@pytest.mark.parametrize(
    ("line", "category"),
    [
        (found("process_killed", "process", confidence=0.55), "process_killed"),
        (found("python_exception", "training", confidence=0.35), "unknown"),  # a launcher: "a rank failed"
    ],
)
def test_nothing_says_why_is_not_said_where_a_line_does(line, category):
    known = first("unknown", "unknown", confidence=0.3)
    assert joined(known, line, NO_SIGNATURES).category == category


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("code 3, pid 7", "unknown"),
        ("code 1, pid 7", "nccl_network_error"),  # any exception ends so
        ("code 137, pid 7", "nccl_network_error"),  # a shell's word for a signal
    ],
)
def test_who_left_with_a_code_of_its_own_did_not_lose_its_connection(text, category):
    left = first(
        "unknown",
        "unknown",
        0.3,
        culprits=(Culprit(rank=1),),
        first_error=Evidence(text=text, says="it ended"),
    )
    answer = joined(left, found("nccl_network_error", "communication", 0.7), NO_SIGNATURES)
    assert answer.category == category
    assert {one.rank for one in answer.culprits} == {1}
