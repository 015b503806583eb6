"""Every fault of the check bench is found by its check alone, and nothing in its sound nodes."""

import pytest

from bench.checks.node_faults import FAULTS
from bench.checks.node_matrix import made_up, sound, wrong_with
from bench.checks.node_real_faults import REAL, NotHere
from bench.checks.node_sound import SOUND


@pytest.mark.parametrize("case", FAULTS, ids=lambda case: case.name)
def test_a_made_up_fault_is_found(case, tmp_path):
    assert made_up(case, tmp_path) == ""


@pytest.mark.parametrize("case", REAL, ids=lambda case: case.name)
def test_a_real_fault_is_found(case, tmp_path):
    try:
        outcomes = case.run(tmp_path)
    except NotHere as error:
        pytest.skip(str(error))
    assert wrong_with((case.name, case.check, case.status, case.fault), outcomes) == ""


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case.name)
def test_nothing_is_found_on_a_sound_node(case, tmp_path):
    assert sound(case, tmp_path) == ""


def test_there_are_enough_of_each():
    assert len(FAULTS) + len(REAL) >= 60 and len(REAL) >= 20 and len(SOUND) >= 20
