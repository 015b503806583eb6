"""What signatures see in a run's output as it grows."""

import subprocess
import sys
import threading

import pytest

from core.diagnosis.candidate_kit import knowing
from holdfast.agent.watch.logs import KERNEL, LogWatch, Signatures
from holdfast.observe.logs.follow import Chunk
from holdfast.parsers.signature_files import SignatureError
from observe.knowing import signature

OWN = (
    signature("own-fault", "melted down"),
    signature("own-complaint", "waits for others", category="collective_timeout", role="symptom"),
)


@pytest.fixture
def signatures():
    found = Signatures(lambda: knowing(*OWN), None)
    assert found.wait(250), found.why_not
    return found


def lines(source, *text, offset=0, at_s=100.0):
    return Chunk(source, at_s, offset, [one.encode() for one in text])


def ids(matches):
    return [one.signature for one in matches]


def test_each_signature_is_reported_once(signatures):
    watch = LogWatch(signatures, "attempt-001/worker-0")
    assert ids(watch.look([lines("rank-1.log", "all well", "it melted down")], 100.0)) == ["own-fault"]
    assert watch.look([lines("rank-2.log", "it melted down", at_s=101.0)], 101.0) == []
    assert len(watch.search().matches) == 2


def test_lines_are_looked_at_twice_a_second_or_at_once_where_that_matters(signatures):
    watch = LogWatch(signatures, "a")
    watch.look([], 100.0)
    assert watch.look([lines("stdout", "it melted down")], 100.1) == []
    assert ids(watch.look([], 100.2, now=True)) == ["own-fault"]


def test_evidence_has_the_time_it_came_and_the_rank_its_log_is_of(signatures):
    watch = LogWatch(signatures, "attempt-001/worker-0")
    watch.look([lines("rank-3.log", "1999-01-01 00:00:00 it melted down", at_s=500.0)], 500.0)
    (seen,) = watch.search().matches
    assert seen.writer.stamp_s == 500.0
    (source,) = watch.search().sources
    assert (source.name, source.writer.rank) == ("attempt-001/worker-0/rank-3.log", 3)


def test_what_training_outlived_is_marked_even_where_another_rank_prints_the_steps(signatures):
    watch = LogWatch(signatures, "a")
    watch.look([lines("rank-3.log", "it melted down", at_s=100.0, offset=70)], 100.0)
    assert watch.search().sources[0].last_step_offset is None
    watch.step_seen(101.0)  # a line that was on its way already
    assert watch.search().sources[0].last_step_offset is None
    watch.step_seen(110.0)
    assert watch.search().sources[0].last_step_offset > 70


def test_a_fault_in_the_kernels_log_is_never_outlived(signatures):
    watch = LogWatch(signatures, "a")
    watch.look([lines(KERNEL, "it melted down", at_s=100.0)], 100.0)
    watch.step_seen(200.0)
    assert watch.search().sources[0].last_step_offset is None
    assert list(watch.kernel_lines) == [b"it melted down"]


def test_output_that_comes_before_the_signatures_is_looked_at_when_they_are_there():
    allowed = threading.Event()

    def load():
        allowed.wait(250)
        return knowing(*OWN)

    late = Signatures(load, None)
    watch = LogWatch(late, "a")
    assert watch.look([lines("stdout", "it melted down")], 100.0) == []
    allowed.set()
    assert late.wait(250)
    assert ids(watch.look([], 101.0)) == ["own-fault"]


def test_signatures_that_cannot_be_read_are_no_fault_of_the_training():
    def load():
        raise SignatureError("own.toml: not TOML")

    without = Signatures(load, None)
    assert not without.wait(250)
    assert without.why_not == "own.toml: not TOML"
    watch = LogWatch(without, "a")
    assert watch.look([lines("stdout", "it melted down")], 100.0) == []
    assert watch.search().matches == ()


def test_excerpts_are_of_causes(signatures):
    watch = LogWatch(signatures, "a")
    watch.look([lines("stdout", "it waits for others", "it melted down", offset=0)], 100.0)
    assert watch.offsets() == {"stdout": (len("it waits for others") + 1,)}


def test_a_fault_of_ours_ends_the_looking_and_nothing_else(signatures):
    watch = LogWatch(signatures, "a")
    unreadable = Chunk("stdout", 100.0, None, [b"it melted down"])
    (told,) = watch.news([unreadable], 100.0, now=True)
    assert told.startswith("known failures are no longer recognised")
    assert watch.news([lines("stdout", "it melted down")], 101.0) == []
    assert watch.search().matches == ()


ENDS_AT_ONCE = """
import threading
from holdfast.agent.watch.logs import Signatures
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.observe.search.rule_store import package_rules

def load():
    threading.main_thread().join()  # until the interpreter ends
    return KnowledgeBase((), package_rules())

Signatures(load, None, then=lambda signatures: print("prepared", flush=True))
"""


def test_a_process_that_ends_waits_for_its_signatures():
    """What a thread does in C after the interpreter has ended can be a segmentation fault."""
    ended = subprocess.run([sys.executable, "-c", ENDS_AT_ONCE], capture_output=True, text=True, check=True)
    assert ended.stdout == "prepared\n", ended.stderr
