"""Lines that count on in a form of their own, and lines that only look like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.log_lines.counting_lines import counting_on

FORMS = (
    "it={n} cost={x:.3f} acc={y:.3f}",
    "[{n:05d}/00400] tok/s 81234.1 | ppl {x:.2f}",
    "2031-02-03 10:00:{s:02d},123 INFO batch {n} done, objective {x:.4f}",
    "[rank0]: {{'loss': {x:.4f}, 'grad_norm': 1.2, 'epoch': {y:.2f}}}",
)


def rows(form, count, first=1):
    numbers = range(first, first + count)
    return [form.format(n=n * 20, s=n % 60, x=3 - n / 50, y=n / 40).encode() for n in numbers]


@pytest.mark.parametrize("form", FORMS)
def test_the_last_four_of_a_form_count_on(form):
    assert counting_on(rows(form, 10)) == 6
    assert counting_on([*rows(form, 5), b"saving", b""]) == 1
    assert counting_on(rows(form, 3)) is None


@pytest.mark.parametrize(
    "form",
    [
        "retry {n} of 400 after {x:.1f} s",
        "still waiting for rank {n}, {x:.2f} s so far",
        "{n} {x:.2f}",
        "downloaded {n} of 400 MB",
        "    {n}\tg1:101:{n} [0] NCCL INFO Channel {n}/0 : 3[3] -> 4[4]",
        "{n} 10:00:0{x:.3f} group 3 of 4 is set up",
        "[ {n}.123456] nvme0: {x:.3f} error",
    ],
)
def test_what_is_no_work(form):
    assert counting_on(rows(form, 10)) is None


def test_what_stands_still_does_not_count_on():
    assert counting_on([b"step 7 loss 2.5 lr 0.1"] * 10) is None


@pytest.mark.parametrize(
    ("heading", "below"),
    [
        ("Epoch {n}/10", "100/100 - 3s - loss: {x:.4f} - accuracy: 0.5"),
        ("Epoch #{n} of 10", "100/100 [=====] - 3s 30ms/step - loss: {x:.4f}"),
    ],
)
def test_what_is_measured_below_a_number_counts_on(heading, below):
    lines = [line.format(n=n, x=3 - n % 3 / 7).encode() for n in range(1, 7) for line in (heading, below)]
    assert counting_on(lines) == 4
    assert counting_on(lines[:6]) is None


@pytest.mark.parametrize(
    ("heading", "below"),
    [
        ("poll {n}", "asked after {x:.2f} s"),
        ("retry {n} of 10", "the load is {y:.2f}"),
        ("[{x:.3f}] eth0: port 3", "[{x:.4f}] eth1: port 4 of {y:.2f}"),
    ],
)
def test_a_clock_below_a_number_is_no_work(heading, below):
    lines = [
        line.format(n=n, x=3 + n / 7, y=n % 3 / 7).encode() for n in range(1, 9) for line in (heading, below)
    ]
    assert counting_on(lines) is None


def test_signs_that_look_like_a_number_taken_out():
    assert counting_on([b"a # 3 b", b"a 3 4 b", b"a # # b", b"a 4 5.5 b"] * 3) is None


@given(st.lists(st.binary(max_size=80)))
def test_it_reads_anything(lines):
    last = counting_on(lines)
    assert last is None or 0 <= last < len(lines)
