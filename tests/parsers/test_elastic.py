"""torchrun's failure table and its log line, as torch 2.13 writes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.elastic import FailedLine, failed_lines, failure_table
from holdfast.parsers.tracebacks.read import tracebacks

SAMPLES = Path(__file__).parent / "samples"


def sample(name: str) -> list[bytes]:
    return (SAMPLES / f"torchrun-{name}.txt").read_bytes().splitlines()


@pytest.mark.parametrize(("name", "code"), [("raise", 1), ("kill", -9), ("record", 1)])
def test_the_table_names_the_root_cause_first(name, code):
    root, other = failure_table(sample(name))
    assert (root.rank, root.local_rank, root.code, root.is_root, root.host) == (1, 1, code, True, "localhost")
    assert (other.rank, other.code, other.is_root) == (0, -15, False)
    assert b"rank      : 1" in sample(name)[root.line]
    assert root.time.startswith("2026-11-20_21:45:")
    assert root.error_file == ("/home/user/log/none_x1/attempt_0/1/error.json" if name == "record" else "")


@pytest.mark.parametrize("name", ["raise", "kill", "record"])
def test_the_line_of_the_first_failure(name):
    (line,) = failed_lines(sample(name))
    root = failure_table(sample(name))[0]
    assert line == FailedLine(local_rank=1, pid=root.pid, code=root.code, line=line.line)


def test_a_prefix_of_the_scheduler_does_no_harm():
    assert [one.rank for one in failure_table([b"0: " + line for line in sample("raise")])] == [1, 0]


def test_the_table_of_the_last_attempt_counts():
    assert [one.code for one in failure_table(sample("kill") + sample("raise"))] == [1, -15]


def test_a_lone_failure():
    text = [line for line in sample("raise") if b"Failures:" not in line]
    only = text[text.index(b"Root Cause (first observed failure):") :]
    assert [one.rank for one in failure_table([b"Failures:", b"  <NO_OTHER_FAILURES>", *only])] == [1]


def test_the_tracebacks_of_the_same_output():
    found = tracebacks(sample("raise"))
    assert [(one.rank, one.type) for one in found[:2]] == [(1, "RuntimeError"), (0, "RuntimeError")]
    assert found[-1].type.endswith("ChildFailedError")


@given(st.lists(st.one_of(st.sampled_from(sample("raise")), st.binary(max_size=60)), max_size=60))
def test_never_raises(some):
    failure_table(some)
    failed_lines(some)
