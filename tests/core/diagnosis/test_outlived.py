"""What stands beside an answer: errors that were survived, runs before the last one, and what the platform wrote."""

from msgspec.structs import replace

from core.diagnosis.candidate_kit import knowing, match, search, signature
from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.model.matches import Search, Source

LOST = signature("lost", "nccl_network_error")
BAD = signature("bad-json", "data_error")
STARTS = signature("program-starts", "none", role="context")
SLOW = signature("platform-slowdown-warning", "straggler", severity="warning", weight=0.6)
KNOWN = knowing(LOST, BAD, STARTS, SLOW)


def job(*matches, size_bytes=100_000, last_step=90_000):
    source = Source(
        name="train.log", size_bytes=size_bytes, last_step_offset=last_step, last_steps_offset=last_step
    )
    return Search(sources=(source,), matches=matches)


def test_errors_that_training_outlived_are_listed():
    answer = diagnose(job(match(LOST, offset=100)), KNOWN)
    assert answer.category == "none"
    (fact,) = answer.evidence
    assert fact.signature == "lost"
    assert fact.says.en.startswith("survived")


def test_the_run_before_the_last_is_noted_with_its_first_error():
    runs = (
        match(STARTS, offset=0),
        replace(match(BAD, offset=500), line=214, error_type="JSONDecodeError"),
        match(STARTS, offset=900),
    )
    answer = diagnose(job(*runs), KNOWN)
    assert answer.category == "none"
    (note,) = answer.notes
    assert note.en == (
        "train.log contains 2 runs: run 1 of 2 ended in JSONDecodeError, line 214; run 2 continues beyond the end of this log"
    )
    assert note.zh.startswith("train.log 含 2 次运行")


def test_one_run_needs_no_word_of_runs():
    assert diagnose(job(match(STARTS, offset=0), match(LOST, offset=95_000)), KNOWN).notes == ()


def test_what_the_platform_warned_of_stands_beside_the_answer():
    answer = diagnose(search(match(SLOW, offset=10), match(LOST, offset=500)), KNOWN)
    assert answer.category == "nccl_network_error"
    assert any("rank-0.log, line 11" in note.en for note in answer.notes)
