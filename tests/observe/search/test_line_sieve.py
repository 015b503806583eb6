"""Lines that hold a word, among many that do not."""

import re

from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.search.line_sieve import FEW, LineSieve

WORDS = (rb"step", rb"\btime", rb"it/s")
ANY = re.compile(b"|".join(WORDS), re.IGNORECASE)


def test_lines_with_a_word_are_left_in_their_order():
    lines = [b"all well"] * 20 + [b"Step 1"] + [b"overtime"] * 20 + [b"9 it/s", b"its time"] + [b""]
    assert list(LineSieve(WORDS).kept(lines)) == [b"Step 1", b"9 it/s", b"its time"]


def test_few_lines_are_all_kept():
    lines = [b"all well"] * (FEW - 1)
    assert LineSieve(WORDS).kept(lines) == lines


def test_what_follows_a_kept_line_is_kept_too_from_one_call_to_the_next():
    sieve = LineSieve(WORDS, after=3)
    numbered = [b"%d" % number for number in range(40)]
    assert list(sieve.kept([*numbered[:38], b"step", numbered[38]])) == [b"step", b"38"]
    assert list(sieve.kept(numbered)) == [b"0", b"1"]


@given(
    st.lists(
        st.sampled_from([b"", b"x", b"step", b"a Step b", b"time", b"xtime", b"IT/S", b"st\rep"]), max_size=60
    )
)
def test_no_line_with_a_word_is_lost_and_no_other_is_left(lines):
    kept = list(LineSieve(WORDS).kept(lines))
    if len(lines) >= FEW:
        assert kept == [line for line in lines if ANY.search(line)]
    else:
        assert kept == lines
