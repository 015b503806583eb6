"""Clocks that differ are told by events that all of them saw."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.clock_offsets import COMPARABLE_S, Offset, are_comparable, clock_offsets

STEPS = {step: 1000.0 + 2.5 * step for step in range(20)}
YEARS_30_S = 30 * 365 * 86400.0


def ahead(offset_s: float, steps: dict[int, float] = STEPS) -> dict[int, float]:
    return {step: at + offset_s for step, at in steps.items()}


def test_each_clock_against_the_first():
    found = clock_offsets({"a": STEPS, "b": ahead(7.0), "c": ahead(-YEARS_30_S)})
    assert list(found) == ["a", "b", "c"]
    assert [one.offset_s for one in found.values()] == [0.0, 7.0, -YEARS_30_S]
    assert found["b"] == Offset(offset_s=7.0, spread_s=0.0, shared=20)


def test_late_lines_do_not_move_it():
    late = {step: at + 7.0 + (300.0 if step % 3 == 0 else 0.01 * (step % 4)) for step, at in STEPS.items()}
    one = clock_offsets({"a": STEPS, "b": late})["b"]
    assert one.offset_s == pytest.approx(7.0, abs=0.04)
    assert one.spread_s < 0.1


def test_over_another_source():
    early = {step: at for step, at in STEPS.items() if step < 5}
    middle = ahead(3.0, {step: at for step, at in STEPS.items() if 3 <= step < 15})
    late = ahead(-2.0, {step: at for step, at in STEPS.items() if step >= 12})
    found = clock_offsets({"early": early, "late": late, "middle": middle})
    assert {name: one.offset_s for name, one in found.items()} == {"early": 0.0, "late": -2.0, "middle": 3.0}


def test_nobody_knows():
    one_shared = {0: 5.0, 99: 6.0}
    assert list(clock_offsets({"a": STEPS, "b": one_shared, "c": {}})) == ["a"]
    assert clock_offsets({}) == {}
    assert list(clock_offsets({"a": {}, "b": STEPS})) == ["a"]
    assert "b" not in clock_offsets({"a": STEPS, "b": {0: math.nan, 1: math.inf, 2: 5.0}})


def test_comparable():
    assert are_comparable(5.0, 5.0 + COMPARABLE_S)
    assert not are_comparable(5.0, 6.0 + COMPARABLE_S)
    assert not are_comparable(None, 5.0)


@given(
    st.dictionaries(st.integers(0, 30), st.floats(0, 1e6), min_size=2, max_size=20),
    st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5),
)
def test_any_offsets_are_found_again(steps, offsets):
    found = clock_offsets({"first": steps, **{str(n): ahead(one, steps) for n, one in enumerate(offsets)}})
    for number, one in enumerate(offsets):
        assert found[str(number)].offset_s == pytest.approx(one, abs=1e-3)
