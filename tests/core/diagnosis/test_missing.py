"""What one would have wished to read: ranks, workers, the kernel's log, the scheduler's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.diagnosis.candidate_kit import NO_SIGNATURES
from holdfast.core.diagnosis.words.missing import is_empty, not_found, spans
from holdfast.model.matches import Search, Source, Writer


def source(name="out.log", *, size_bytes=10, tail=(), **writer):
    return Source(name=name, size_bytes=size_bytes, tail=tail, writer=Writer(**writer))


def said(*sources, class_="training"):
    return [one.en for one in not_found(Search(sources=sources), NO_SIGNATURES, class_)]


def test_ranks_between_those_that_have_logs_are_missing():
    ranks = [source(f"rank-{rank}.log", rank=rank) for rank in (0, 1, 4, 7)]
    assert said(*ranks) == ["No log of ranks 2, 3, 5, 6, though there are logs up to rank 7."]
    assert said(ranks[0]) == []
    assert said(ranks[3]) == [], "one log alone says nothing of the others"
    assert said(source(rank=0), source(rank=1, size_bytes=0)) == ["The log of rank 1 is empty."]


def test_workers_are_counted_from_zero_or_one():
    assert said(source(worker=1), source(worker=2)) == []
    assert said(source(worker=0), source(worker=2)) == [
        "No log of worker 1, though there are logs up to worker 2."
    ]


@pytest.mark.parametrize("rank", [1 << 20, 2**40])
def test_a_huge_number_is_no_rank(rank):
    assert said(source(rank=0), source(rank=1), source(rank=rank)) == []


@pytest.mark.parametrize(
    "given_",
    [
        {"name": "node-1/dmesg.txt"},
        {"name": "kern.log"},
        {"name": "var/log/messages"},
        {"name": "journal-gpu-03.txt"},
        {"tail": ("[    2.000000] usb 1-1: new device",)},
        {"tail": ("Jan  1 00:00:00 gpu-03 kernel: usb 1-1: new device",)},
    ],
)
def test_a_kernel_log_is_known_by_its_name_or_its_lines(given_):
    assert any("kernel log" in text for text in said(source(), class_="hardware"))
    assert said(source(), source(**given_), class_="hardware") == []


def test_ranks_that_never_met_may_have_different_settings():
    def hints(*sources, class_="process"):
        return [text for text in said(*sources, class_=class_) if "MASTER_ADDR" in text]

    silent = [source(rank=rank, tail=("loading the model",)) for rank in (0, 1)]
    assert len(hints(*silent)) == 1
    assert hints(silent[0]) == [], "one log alone may be of a job of one"
    assert hints(*silent, class_="hardware") == []
    assert hints(*silent, source(tail=("n1:7:7 [0] NCCL INFO Bootstrap : Using eth0",))) == []
    assert hints(*silent, Source(name="a.log", last_step_offset=7)) == []


def test_what_could_not_matter_is_not_asked_for():
    assert said(source(), class_="training") == []
    assert said(source(rank=0), source(rank=2), class_="healthy") == []
    assert any("scheduler" in text for text in said(source(), class_="process"))
    assert not any("scheduler" in text for text in said(source(), source("slurm-17.out"), class_="process"))


def test_nothing_is_missing_where_nothing_was_read():
    assert is_empty(Search())
    assert is_empty(Search(sources=(source(size_bytes=0),)))
    assert said(source(size_bytes=0), class_="unknown") == []


@given(st.sets(st.integers(0, 60), max_size=30))
def test_spans_say_the_same_numbers(numbers):
    read = set()
    for part in spans(numbers).split(", ") if numbers else []:
        low, _, high = part.partition("-")
        read |= set(range(int(low), int(high or low) + 1))
    assert read == numbers
