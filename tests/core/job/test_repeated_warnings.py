"""Warnings of earlier attempts are not printed again."""

import pytest

from holdfast.core.job.repeated_warnings import KEPT_MAX, WARNINGS, Repeats

MEMORY = "dmesg cannot be read: permission denied"
SLOW = "steps 100 to 140 took 83.1 ms instead of 73.6 ms"


def shown(*given: tuple[str, str, int]) -> list[str | None]:
    repeats = Repeats()
    return [repeats.shown(*one) for one in given]


def test_a_warning_of_an_earlier_attempt_gives_one_line_in_each_later_one():
    first = [("not-seen", MEMORY, 1), ("slowdown", SLOW, 1)]
    again = [("not-seen", MEMORY, 2), ("slowdown", "steps 90 to 120 took 85 ms instead of 74 ms", 2)]
    third = [("not-seen", MEMORY, 3)]
    before = f"as before: {MEMORY} (warnings of earlier attempts are not repeated)"
    assert shown(*first, *again, *third) == [MEMORY, SLOW, before, None, before]


def test_the_same_attempt_may_say_it_again():
    assert shown(("not-seen", MEMORY, 1), ("not-seen", MEMORY, 1)) == [MEMORY, MEMORY]


def test_another_rank_is_another_warning():
    one, other = "rank 1 is 13 % slower than the rest", "rank 3 is 12 % slower than the rest"
    assert shown(("straggler", one, 1), ("straggler", other, 2)) == [one, other]


@pytest.mark.parametrize("finding", ["hang", "loss-nan", "leftovers", "evidence", ""])
def test_what_happened_in_an_attempt_is_news_each_time(finding):
    assert finding not in WARNINGS
    assert shown((finding, "the same", 1), (finding, "the same", 2)) == ["the same", "the same"]


def test_a_long_warning_is_quoted_in_part():
    text = "a word " * 100
    _, again = shown(("log", text, 1), ("log", text, 2))
    assert again is not None
    assert len(again) < 200


def test_what_is_kept_is_bounded():
    names = ["x" * number for number in range(1, KEPT_MAX + 2)]
    repeats = Repeats()
    for name in names:
        repeats.shown("log", name, 1)
    assert repeats.shown("log", names[0], 2) == names[0]  # forgotten
    assert repeats.shown("log", names[-1], 2) != names[-1]
