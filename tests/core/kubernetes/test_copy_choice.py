"""Which copy of a lost journal a controller takes, and how long it waits for more."""

from holdfast.core.kubernetes.copy_choice import FIRST_S, OTHERS_S, CopyChoice, JournalCopy


def none(node):
    return JournalCopy(node, "", 0)


def copy(node, seq):
    return JournalCopy(node, "l", seq)


def test_agents_without_a_copy_do_not_end_the_wait_for_those_that_have_one():
    choice = CopyChoice(4, 0.0)
    choice.hear(none("a"), 1.0)
    choice.hear(none("b"), 2.0)
    assert not choice.is_over(2.0 + OTHERS_S + 1)
    choice.hear(copy("c", 7), 20.0)
    assert not choice.is_over(20.0 + OTHERS_S - 1)
    assert choice.is_over(20.0 + OTHERS_S)
    assert choice.best == copy("c", 7)


def test_the_copy_with_the_most_rows_is_taken_as_soon_as_all_have_reported():
    choice = CopyChoice(3, 0.0)
    choice.hear(copy("a", 7), 1.0)
    choice.hear(copy("b", 9), 1.5)
    assert not choice.is_over(1.5)
    choice.hear(none("c"), 2.0)
    assert choice.is_over(2.0)
    assert choice.best == copy("b", 9)


def test_later_copies_and_repeated_reports_do_not_prolong_the_wait():
    choice = CopyChoice(3, 0.0)
    choice.hear(copy("a", 7), 1.0)
    choice.hear(copy("a", 7), 3.0)
    choice.hear(copy("b", 9), 4.0)
    assert choice.is_over(1.0 + OTHERS_S)


def test_where_no_agent_has_a_copy_the_wait_ends_with_the_last_of_them_or_its_time():
    choice = CopyChoice(2, 0.0)
    assert not choice.is_over(FIRST_S - 1)
    choice.hear(none("a"), 1.0)
    assert not choice.is_over(FIRST_S - 1)
    assert choice.is_over(FIRST_S)
    choice.hear(none("b"), 5.0)
    assert choice.is_over(5.0)
    assert choice.best is None
