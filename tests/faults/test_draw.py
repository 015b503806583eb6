"""Tests the drawing of cases for the fault benchmark."""

from collections import Counter

import pytest

from bench.faults.draw import drawn, each
from bench.faults.kinds import BY_NAME, CLASSES, KINDS
from bench.faults.outside import PLACES

STEPS, RANKS = 400, 4


def test_a_seed_decides_everything():
    assert drawn(7, 40, RANKS, STEPS, CLASSES, ()) == drawn(7, 40, RANKS, STEPS, CLASSES, ())
    assert drawn(7, 40, RANKS, STEPS, CLASSES, ()) != drawn(8, 40, RANKS, STEPS, CLASSES, ())


def test_classes_come_equally_often_and_every_kind_comes():
    cases = drawn(1, 11 * 8, RANKS, STEPS, CLASSES, ())
    assert set(Counter(BY_NAME[case.kind].class_ for case in cases).values()) == {8}
    assert {case.kind for case in cases} == {kind.name for kind in KINDS}


def test_only_wanted_classes_and_kinds_are_drawn():
    cases = drawn(1, 30, RANKS, STEPS, ("disk", "network"), ("drop",))
    assert {case.kind for case in cases} == {"cut", "disk-full", "disk-read-only", "disk-slow"}
    assert drawn(1, 30, RANKS, STEPS, ("network",), ("drop", "cut")) == []


def test_the_step_leaves_time_before_and_after_and_the_rank_exists():
    for case in drawn(3, 200, RANKS, STEPS, CLASSES, ()):
        assert 140 <= case.step < 260 and 0 <= case.rank < RANKS
        assert BY_NAME[case.kind].rank in (None, case.rank)


@pytest.mark.torch
def test_each_kind_is_made_by_the_rank_or_from_outside():
    in_rank = pytest.importorskip("bench.faults.training").IN_RANK  # it imports torch
    made = set(in_rank) | set(PLACES) | {"undisturbed"}
    assert {kind.name for kind in KINDS} == made
    assert all(kind.where in PLACES for kind in KINDS if kind.where != "rank")


def test_each_kind_comes_as_often_as_asked():
    cases = each(5, 2, RANKS, STEPS, [kind.name for kind in KINDS], ("drop",))
    assert Counter(case.kind for case in cases) == {kind.name: 2 for kind in KINDS if kind.name != "drop"}
    assert [case.number for case in cases] == list(range(len(cases)))
    assert cases == each(5, 2, RANKS, STEPS, [kind.name for kind in KINDS], ("drop",))
