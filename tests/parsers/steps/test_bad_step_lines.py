"""Marks and bad values in step logs, and lines of any content: what the parser leaves out."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_lines_kit import FORMS, bar, by_blocks, megatron, read

from holdfast.model.steps import FirstLast, PhaseMark, StepRecord
from holdfast.parsers.steps.lines import StepLines

# Marks


def test_marks_are_reported_in_their_place():
    lines = [megatron(n) for n in range(1, 30)]
    lines.insert(15, b"saving checkpoint at iteration      15 to /ckpt in torch_dist format")
    lines.insert(25, b" validation loss at iteration 24 | lm loss value: 3.1E+00 | lm loss PPL: 2.2E+01 |")
    for items in (StepLines(FORMS).feed(lines), by_blocks(b"\n".join(lines) + b"\n", 4000)[1]):
        assert [index for index, item in enumerate(items) if isinstance(item, PhaseMark)] == [15, 25]
        assert [item.kind for item in items if isinstance(item, PhaseMark)] == ["checkpoint", "evaluation"]


# Bad values


@pytest.mark.parametrize(
    ("printed", "seconds"),
    [
        (b"nan", None),
        (b"inf", None),
        (b"1e400", None),
        (b"-5.0", None),
        (b"1,5", 0.0015),
        (b"1,234.5", 1.2345),
        (b"1,234", None),  # 1.234 or 1234
        (b"12,345,678.5", 12345.6785),
        (b"1.2.3", None),
        (b"0", 0.0),
    ],
)
def test_a_time_that_is_none_is_no_number(printed, seconds):
    _, records = read([b"step %d | loss: 1.5 | dt: %sms | tok/sec: 1000" % (n, printed) for n in (1, 2)])
    assert {record.time_s for record in records} <= {seconds}


@pytest.mark.parametrize("printed", [b"nan", b"inf", b"-inf", b"1e400"])
def test_a_loss_may_be_no_number(printed):
    _, records = read([b"step 1 | loss: %s | dt: 5.0ms | tok/sec: 1000" % printed])
    assert records[0].loss is not None and not math.isfinite(records[0].loss)


def test_a_step_beyond_all_measure_is_none():
    assert read([b"step %s | loss: 1.5 | dt: 5.0ms" % (b"9" * 40)])[1] == []


def test_time_may_go_backwards():
    lines = [
        b"[2025-01-02 03:%02d:00,500] [INFO] [logging.py:96:log_dist] [Rank 0] step=%d, skipped=0, lr=[0.1]"
        % (m, n)
        for m, n in ((10, 1), (20, 2), (5, 3), (6, 4))
    ]
    assert [record.time_s for record in read(lines)[1]] == [None, 600.0, None, 60.0]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=120),
            st.sampled_from([proof.encode() for proof in ("step 5 loss nan", "Epoch: [0]  [1/2]  eta: 0")]),
            st.builds(megatron, st.integers(0, 50), st.floats(0, 1e9)),
            st.builds(bar, st.integers(0, 500), st.integers(0, 10**6)),
        ),
        max_size=40,
    ),
    st.integers(1, 300),
)
def test_any_bytes_are_read_without_trouble(lines, size):
    follower, items = by_blocks(b"\n".join(lines), size)
    records = [item for item in items if isinstance(item, StepRecord)]
    assert all(record.time_s is None or 0 <= record.time_s < math.inf for record in records)
    assert follower.iteration_lines <= len(records)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.floats(0.5, 2e5), st.floats(0, 100)), min_size=1, max_size=60),
    st.integers(200, 20_000),
)
def test_many_at_once_are_read_as_one_by_one(moves, size):
    number, lines = 0, []
    for move, ms, loss in moves:
        number = number + move if move < 12 else max(0, number - 20)
        lines.append(megatron(number, ms, loss, total=10**5))
        if move == 7:
            lines.append(b"a line | with bars | and iteration 7 | in it")
    _, one_by_one = read(lines)
    _, at_once = by_blocks(b"\n".join(lines) + b"\n", size)
    assert [item for item in at_once if isinstance(item, StepRecord)] == one_by_one


def test_a_long_log_is_read_at_once_as_one_by_one():
    lines = [b"[2025-03-04 05:%02d:%02d.250000]" % (n // 60, n % 60) + megatron(n) for n in range(1, 900)]
    _, one_by_one = read(lines)
    _, at_once = by_blocks(b"\n".join(lines) + b"\n", 1 << 16)
    assert at_once == one_by_one
    assert {after.at_s - before.at_s for before, after in pairwise(at_once)} == {1.0}


def test_the_batch_of_one_rank_is_not_taken_for_that_of_all():
    lines = [b"Namespace(batch_size=64, lr=0.1)"]
    lines += [
        b"2025-01-02 03:04:%02d,500 INFO Epoch[0] Batch [%d]\tSpeed: 1024.0 samples/sec" % (n * 5, n * 10)
        for n in range(1, 5)
    ]  # eight ranks: 512 samples in 0.5 s
    follower, records = read(lines)
    assert [record.time_s for record in records][1:] == [0.5, 0.5, 0.5]
    assert [record.printed_s for record in records][1:] == [None, None, None]
    assert follower.first == FirstLast(step=10)
    assert "batch size" in follower.notes[0]


def test_the_size_of_the_whole_batch_is_kept():
    lines = [
        b':::MLLOG {"time_ms": 1, "key": "global_batch_size", "value": 512, "metadata": {}}',
        b"Namespace(batch_size=64, lr=0.1)",
        b"INFO Epoch[0] Batch [20]\tSpeed: 1024.0 samples/sec",
    ]
    assert read(lines)[1][0].time_s == 0.5


def test_a_missing_unit_is_the_one_that_fits_the_time_left():
    def line(n, time):
        return b"Epoch:[0/1] [%d/1000]  eta: 0:00:%02d  loss: 0.1250  step_time: %s  lr: 12.5" % (
            n,
            (1000 - n) // 20,
            time,
        )

    assert read([line(100, b"0.05"), line(200, b"0.06")])[1][1].time_s == 0.06
    assert read([line(100, b"50.0"), line(1000, b"60.0")])[1][1].time_s == 0.06


def test_a_time_on_the_line_before_is_that_of_the_step():
    lines = [b"Epoch: 0 | Step: 1 | PPO Epoch: 1 | Actor Loss: 0.5 | Critic Loss: 0.25"]
    lines += [
        b"|E2E latency=12.5s |Gather latency=0.00s (0.00%) |Generate time=10.0s",
        lines[0].replace(b"Step: 1", b"Step: 2"),
    ]
    assert [record.time_s for record in read(lines)[1]] == [None, 12.5]
