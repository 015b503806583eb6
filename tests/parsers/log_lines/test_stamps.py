"""Times as logs write them, read at a place of a line."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.parsers.log_lines.stamps import FOREIGN_MONTHS, stamp_at

AT_S = 1795211136.0  # 2026-11-20 21:45:36 UTC


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-20 21:45:36,123 x", AT_S + 0.123),
        ("2026-11-20T21:45:36.1234567Z x", AT_S + 0.1234567),
        ("2026-11-20T22:45:36+01:00 x", AT_S),
        ("2026-11-20 17:15:36 -0430 x", AT_S),
        ("2026/11/20 21:45:36 x", AT_S),
        ("2026-11-20_21:45:36 x", AT_S),
        ("2026-11-20-21:45:36.123.456 x", AT_S + 0.123456),
        ("11/20/2026 09:45:36 PM x", AT_S),
        ("20/11/2026 21:45:36 x", AT_S),
        ("[11/20/26 21:45:36] x", AT_S),
        ("[Fri Nov 20 21:45:36 2026] x", AT_S),
        ("Fri Nov 20 09:45:36 PM UTC 2026 x", AT_S),
        ("Nov 20 2026 21:45:36 x", AT_S),
        ("20 Nov 2026, 21:45:36 x", AT_S),
        ("[1795211136.500000] x", AT_S + 0.5),
        ("1795211136.500000 x", AT_S + 0.5),
        ("I20261120 21:45:36.5 x", AT_S + 0.5),
        ("I0000 00:00:1795211136.500000 x", AT_S + 0.5),
    ],
)
def test_whole_stamps(text, seconds):
    stamp = stamp_at(text, 0)
    assert stamp.stamp_s == pytest.approx(seconds, abs=1e-6)
    assert stamp_at(f"ab{text}", 2).end == stamp.end + 2
    if "2026" in text[:6] or text[0] == "[":
        assert text[stamp.end :] == "x"


@pytest.mark.parametrize(
    "text", ["W1120 21:45:36.0 1", "Nov 20 21:45:36 a", "11-20 21:45:36 a", "[E1120 21:45:36.0 a"]
)
def test_without_a_year(text):
    assert stamp_at(text, 0, AT_S - 40 * 86400).stamp_s == AT_S
    alone = stamp_at(text, 0).stamp_s
    assert stamp_at(text.replace("36", "37"), 0).stamp_s == alone + 1


@pytest.mark.parametrize("name", ["Okt", "okt", "out", "ott", "oct"])
def test_a_month_in_another_language(name):
    assert stamp_at(f"{name} 20 21:45:36 g7 kernel: x", 0) == stamp_at("Oct 20 21:45:36 g7 kernel: x", 0)


@pytest.mark.parametrize("name", ["mars", "Mär", "3月", "3월", "Mar", "bře", "мар", "Μαρ", "maalis", "márc"])
def test_a_month_is_read_from_text_and_from_bytes(name):
    """Heads of lines are read with a character for each byte."""
    for text in (name, name.encode().decode("latin-1")):
        stamp = stamp_at(f"{text} 20 21:45:36 g7 kernel: x", 0)
        assert stamp.stamp_s == stamp_at("Mar 20 21:45:36 g7 kernel: x", 0).stamp_s
        assert stamp.is_syslog


def test_a_name_of_a_month_means_one_month():
    names = " ".join(FOREIGN_MONTHS).split()
    assert len(set(names)) == len(names)


def test_a_weekday_in_another_language():
    for text in ("[Fr Nov 20 21:45:36 2026]", "[ven. nov. 20 21:45:36 2026]", "[金 11月 20 21:45:36 2026]"):
        assert stamp_at(text.encode().decode("latin-1"), 0).stamp_s == AT_S


def test_a_word_that_is_no_month():
    assert stamp_at("set 12 of 30 loaded", 0) is None
    assert stamp_at("abc 20 21:45:36 x", 0) is None


def test_the_year_that_is_nearest():
    new_year = stamp_at("Dec 31 23:59:59 a", 0, AT_S + 50 * 86400)  # seen from January 2027
    assert new_year.stamp_s == datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
    assert (
        stamp_at("E724 08:34:00.9 a", 0, AT_S).stamp_s
        == datetime(2026, 7, 24, 8, 34, 0, 900000, tzinfo=UTC).timestamp()
    )
    assert (
        stamp_at("E1012 08:34:00 a", 0, AT_S).stamp_s == datetime(2026, 10, 12, 8, 34, tzinfo=UTC).timestamp()
    )


def test_without_a_date():
    assert stamp_at("[21:45:36] a", 0, AT_S + 3600).stamp_s == AT_S
    assert stamp_at("21:45:37 a", 0).stamp_s - stamp_at("21:45:36 a", 0).stamp_s == 1


def test_uptime():
    stamp = stamp_at("[   12.345678] x", 0)
    assert (stamp.uptime_s, stamp.stamp_s, stamp.end) == (12.345678, None, 15)
    assert stamp_at("[12345.5][  T31] x", 0).uptime_s == 12345.5
    assert stamp_at("[  +0.000012] x", 0).uptime_s is None


@pytest.mark.parametrize(
    "text",
    [
        "0:06:14 x",
        "[15:02:33<05:08, 1s/it]",
        "2026-13-40 21:45:36",
        "2026-11-20",
        "25:00:00",
        "x",
        "",
        "[",
        "1.5",
    ],
)
def test_no_stamps(text):
    assert stamp_at(text, 0) is None


@given(st.integers(0, 4102444799))  # to the end of 2099
def test_the_calendar(seconds):
    when = datetime.fromtimestamp(seconds, UTC)
    assert stamp_at(f"{when:%Y-%m-%d %H:%M:%S}", 0).stamp_s == seconds


@given(st.text("0123456789-:/ TZ[].,+JanFebMonAPMIWE", max_size=60), st.floats(-1e12, 1e12))
def test_never_raises(text, near_s):
    stamp_at(text, 0, near_s)
