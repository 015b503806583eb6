"""Both engines find what a signature must match, or it is said which does not."""

from msgspec.structs import replace

from holdfast.observe.search.agreement import disagreements
from known import PACKAGE

ONE = next(one for one in PACKAGE if one.role == "cause")


def made(pattern, *matches):
    return replace(ONE, id="one", pattern=pattern, matches=matches)


def test_all_of_the_package_are_found_by_both():
    assert disagreements(PACKAGE) == []


def test_a_line_that_is_not_matched_is_not_found():
    assert disagreements([made("quota (?P<name>\\S+) exceeded", "quota a exceeded", "quota exceeded")]) == [
        "one: the engine of re does not find 'quota exceeded'",
        "one: the automaton does not find 'quota exceeded'",
    ]


def test_the_next_line_does_not_stand_in_for_it():
    assert len(disagreements([made("^b$", "a", "b")])) == 2


def test_a_pattern_that_cannot_be_searched_for_is_said():
    (complaint,) = disagreements([made("(?:)", "a")])
    assert complaint.startswith("one: ")
