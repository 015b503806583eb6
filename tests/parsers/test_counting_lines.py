"""Lines that count on in a form of their own, and lines that only look like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.counting_lines import counting_on

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


@given(st.lists(st.binary(max_size=80)))
def test_it_reads_anything(lines):
    last = counting_on(lines)
    assert last is None or 0 <= last < len(lines)
