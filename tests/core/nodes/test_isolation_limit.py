"""The circuit breaker holds over every order in which jobs may want nodes isolated."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.nodes.isolation_limit import IsolationLimit, why_not

wanted = st.lists(st.tuples(st.integers(0, 30), st.floats(0, 20_000)), max_size=80)


def test_small_fleets_may_isolate_one():
    assert IsolationLimit(share=0.05).allowed(1) == 1
    assert IsolationLimit(share=0.05).allowed(39) == 1
    assert IsolationLimit(share=0.05).allowed(40) == 2
    assert IsolationLimit(share=0.29).allowed(100) == 29  # not 28, as 0.29 * 100 is in binary
    assert IsolationLimit(share=0.0).allowed(1000) == 1


def test_the_refusal_says_how_many_and_why():
    limit = IsolationLimit(share=0.05)
    said = why_not("c", 100.0, {"a": 10.0, "b": 20.0}, 40, limit)
    assert "2 of 40 nodes were isolated within 60 minutes" in said
    assert why_not("a", 100.0, {"a": 10.0, "b": 20.0}, 40, limit) == ""
    assert why_not("c", 3610.0, {"a": 10.0, "b": 20.0}, 40, limit) == ""


def test_a_clock_that_is_ahead_counts_as_now():
    assert why_not("b", 100.0, {"a": 9_999_999.0}, 1, IsolationLimit())


@given(wanted, st.integers(1, 60), st.floats(0, 1), st.floats(60, 7200))
def test_no_window_ever_holds_more_than_the_share(asks, nodes, share, window_s):
    limit = IsolationLimit(share=share, window_s=window_s)
    recent: dict[str, float] = {}
    done: list[tuple[float, str]] = []
    for number, at_s in sorted(asks, key=lambda ask: ask[1]):
        node = f"n{number}"
        if not why_not(node, at_s, recent, nodes, limit):
            if node not in recent or at_s - recent[node] >= window_s:
                recent[node] = at_s
                done.append((at_s, node))
    for at_s, _ in done:
        within = {node for when, node in done if at_s <= when < at_s + window_s}
        assert len(within) <= limit.allowed(nodes)


@given(wanted, st.integers(1, 60), st.floats(0, 1))
def test_one_node_is_always_let_through(asks, nodes, share):
    limit = IsolationLimit(share=share)
    recent: dict[str, float] = {}
    for number, at_s in sorted(asks, key=lambda ask: ask[1]):
        refused = why_not(f"n{number}", at_s, recent, nodes, limit)
        alone = all(at_s - since_s >= limit.window_s for since_s in recent.values())
        assert not (alone and refused)
        if not refused:
            recent[f"n{number}"] = at_s
