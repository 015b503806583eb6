"""Lengths and moments as people write them."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.settings.times import NotATime, length, moment, seconds, stamp

NOW_S = 1_767_280_798.0  # 2026-01-01 15:19:58 UTC


@pytest.mark.parametrize(
    ("text", "value_s"),
    [
        ("90s", 90),
        ("10min", 600),
        ("10m", 600),
        ("10000s", 10_000),
        ("1h30min", 5_400),
        ("1.5h", 5_400),
        ("250ms", 0.25),
        ("2d 1h", 176_400),
        (" 0s ", 0),
    ],
)
def test_a_length(text, value_s):
    assert seconds(text) == value_s


@pytest.mark.parametrize("text", ["90", "1.5", "-3"])
def test_a_bare_number_is_refused_with_the_right_spelling(text):
    with pytest.raises(NotATime, match=f"has no unit: write {text.strip('-')}s"):
        seconds(text)


@pytest.mark.parametrize("text", ["", "s", "10 parsecs", "10min!", "1y", "h1", "١٠s٠"])
def test_what_is_no_length(text):
    with pytest.raises(NotATime, match="write it like 90s"):
        seconds(text)


@given(st.integers(0, 10**9))
def test_a_length_is_read_back_as_it_was_written(value_s):
    assert seconds(length(float(value_s))) == value_s


@pytest.mark.parametrize(
    ("text", "at_s"),
    [
        ("2026-01-01 15:19:58", NOW_S),
        ("2026-01-01T15:19:58Z", NOW_S),
        ("2026-01-01T16:19:58+01:00", NOW_S),
        ("15:19:58", NOW_S),
        ("9:05", NOW_S - 6 * 3600 - 14 * 60 - 58),
        ("10min ago", NOW_S - 600),
        ("-10min", NOW_S - 600),
        ("1767280798", NOW_S),
        ("1767280798.5", NOW_S + 0.5),
    ],
)
def test_a_moment(text, at_s):
    assert moment(text, NOW_S) == at_s


def test_a_moment_without_a_zone_is_local(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    assert moment("2026-01-01 23:19:58", NOW_S) == NOW_S
    assert stamp(NOW_S + 0.9) == "2026-01-01 23:19:58"


@pytest.mark.parametrize("text", ["yesterday", "25:00", "2026-13-01", "", "10 ago", "9:05:61"])
def test_what_is_no_moment(text):
    with pytest.raises(NotATime):
        moment(text, NOW_S)
