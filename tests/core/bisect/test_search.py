"""Searches over sets and commits, with runs whose answers follow from what is planted."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.bisect.commits import Ends, FoundCommit, RefusedEnd, ends, next_commit, next_end
from holdfast.core.bisect.subsets import Isolated, Needed, Refused, search


def searched(items, is_bad, *, limit=400, **further):
    answers = {}
    for _ in range(limit):
        step = search(items, answers, **further)
        if not isinstance(step, Needed):
            return step, answers
        assert step.part not in answers
        answers[step.part] = is_bad(step.part)
    raise AssertionError("the search does not end")


@given(st.integers(2, 40), st.data())
def test_one_bad_item_is_found_by_halves(count, data):
    items = [f"n{number}" for number in range(count)]
    bad = data.draw(st.sampled_from(items))
    found, answers = searched(items, lambda part: "bad" if bad in part else "good", has_empty=False)
    assert found == Isolated((bad,))
    assert len(answers) <= 2 + 2 * count.bit_length()


@given(st.integers(3, 16), st.data())
def test_a_pair_that_is_bad_together_is_found(count, data):
    items = [f"v{number}" for number in range(count)]
    pair = set(data.draw(st.lists(st.sampled_from(items), min_size=2, max_size=2, unique=True)))
    found, _ = searched(items, lambda part: "bad" if pair <= set(part) else "good")
    assert isinstance(found, Isolated) and set(found.part) == pair


@given(st.integers(4, 20), st.data())
def test_a_bad_node_is_found_where_a_run_needs_two(count, data):
    items = [f"n{number}" for number in range(count)]
    bad = data.draw(st.sampled_from(items))
    found, answers = searched(items, lambda part: "bad" if bad in part else "good", has_empty=False, least=2)
    assert isinstance(found, Isolated) and found.part == (bad,)
    assert all(len(part) >= 2 for part in answers)


def test_ends_that_are_not_as_the_user_says():
    assert searched(["a", "b"], lambda part: "good")[0] == Refused("bad", "good")
    assert searched(["a", "b"], lambda part: "bad")[0] == Refused("good", "bad")
    assert searched(["a", "b"], lambda part: "unknown")[0] == Refused("bad", "unknown")


def test_ends_of_commits():
    assert next_end("b", "g", {}) == "b"
    assert next_end("b", "g", {"b": "bad"}) == "g"
    assert next_end("b", "g", {"b": "good"}) == RefusedEnd("bad", "b", "good")
    assert next_end("b", "g", {"b": "bad", "g": "bad"}) == RefusedEnd("good", "g", "bad")
    assert next_end("b", "g", {"b": "bad", "g": "good"}) is None


def test_commits_that_cannot_be_judged_stay_candidates():
    known = ends("b", "g", ["m", "s"], {"m": "bad", "s": "unknown"})
    assert known == Ends(bad="m", good=("g",), skipped=("s",))
    assert next_commit(known, ["s", "x", "m"]) == "x"
    assert next_commit(known, ["s", "m"]) == FoundCommit(("m", "s"))
    assert next_commit(known, ["m"]) == FoundCommit(("m",))
