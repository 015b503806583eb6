"""What the ends of ranks tell, in Chinese: every sentence that a first verdict makes is known."""

import re

import pytest

from core.diagnosis.candidate_kit import NO_SIGNATURES
from holdfast.core.diagnosis.diagnose import diagnose
from holdfast.core.diagnosis.live import joined
from holdfast.core.diagnosis.words.verdict_zh import diagnosis_zh, in_chinese
from holdfast.core.verdict.categories import ADVICE, ADVICE_ZH, SIGNALS
from holdfast.core.verdict.first import first_verdict
from holdfast.model.failures import ErrorRecord, Failure, RankExit
from holdfast.model.matches import Search
from holdfast.model.samples import Hang

CODES = (*(-number for number in SIGNALS), -40, 1, 3, 126, 127, None)
QUIET = "for 31 s (30 s allowed)"


def ended(*codes, **more):
    exits = tuple(RankExit(rank=rank, code=code, at_s=10.0, pid=70 + rank) for rank, code in enumerate(codes))
    return Failure(exits=exits, **more)


def hang(why, kind="quiet"):
    return Failure(hang=Hang(kind=kind, culprits=(2,), since_s=100.0, why=why, confidence=0.9))


FAILURES = [
    *(ended(code) for code in CODES),
    *(ended(code, code) for code in CODES),
    *(ended(*[code] * 12) for code in (1, -9)),
    *(Failure(command_code=code) for code in (0, 1, 126, 137, -11)),
    ended(-9, oom=("Memory cgroup out of memory: Killed process 70 (python)",)),
    ended(-9, -9, oom=("Out of memory: Killed process 70 (python)",)),
    ended(1, output_full="/data"),
    Failure(command_code=1, output_full="/data"),
    Failure(),
    Failure(stop_requested=True),
    Failure(lost_nodes=("n1", "n2")),
    Failure(devices=("GPU 0000:5d:00.0",)),
    Failure(command_error="No such file or directory: 'train.sh'"),
    Failure(
        errors=(
            ErrorRecord(
                rank=1, worker=0, type="ValueError", message="a; b", at_s=1.0, frame="/d/t.py:8 step"
            ),
        )
    ),
    hang("ranks 1, 2 are stopped (state T): a SIGSTOP, or a job control stop", "stopped"),
    hang("rank 1 has ended with code 0 while ranks 0, 2 wait in a collective", "left-early"),
    hang("ranks 0, 1 ended, rank 2 lives on with no progress for 40 s", "exit-hang"),
    hang(f"rank 2 sleeps (hrtimer_nanosleep); no step, no log line, no I/O and no CPU in any rank {QUIET}"),
    hang(f"every rank waits in a collective, none has moved {QUIET}"),
    hang(f"rank 2 blocked in I/O (state D), no progress anywhere {QUIET}", "blocked-io"),
    hang(f"only rank 2 runs, with no step, log line or I/O in any rank {QUIET}", "spinning"),
    hang(f"no step, no log line and no I/O {QUIET}", "silent"),
    hang(f"ranks 0, 1 wait in a collective for rank 2, with no step, log line or I/O {QUIET}"),
    hang("rank 2 sleeps at train.py:88 in load; 3 ranks wait for it in all_reduce (train.py:23 in step)"),
]


@pytest.mark.parametrize("failure", FAILURES)
def test_every_sentence_is_known(failure):
    verdict = first_verdict(failure)
    zh = in_chinese(verdict.title)
    assert zh is not None
    assert not re.search(r"[{}]|\b(?:was|were|is|ended|the|for|nothing|ranks)\b", zh)
    assert set(re.findall(r"\d+", zh)) <= set(re.findall(r"\d+", verdict.title))  # no number is invented


def test_a_diagnosis_of_a_live_end_has_no_english_left():
    told = diagnosis_zh(joined(first_verdict(ended(-9)), diagnose(Search(), NO_SIGNATURES), NO_SIGNATURES))
    assert told.title.zh == "rank 0 被 SIGKILL 终止；未见是谁所为"
    assert told.title.en == "rank 0 was killed by SIGKILL; the sender is unknown"
    assert told.advice.zh == ADVICE_ZH["process_killed"]


def test_what_is_not_known_stands_behind_the_meaning_of_its_category():
    verdict = first_verdict(hang("the moon is full"))
    told = diagnosis_zh(joined(verdict, diagnose(Search(), NO_SIGNATURES), NO_SIGNATURES))
    assert told.title.zh.endswith("：the moon is full")
    assert in_chinese("the moon is full") is None


def test_each_advice_is_there_in_both():
    assert ADVICE.keys() == ADVICE_ZH.keys()
