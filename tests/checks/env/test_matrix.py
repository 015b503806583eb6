"""Each fault of the matrix is found by its check, and nothing is said against a sound environment."""

import pytest

from checks.env.faults import FAULTS
from checks.env.healthy import HEALTHY
from checks.env.judging import blamed, found, odd_node


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_by_its_check(fault, tmp_path):
    assert found(tmp_path / "world", fault) == ""


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_said_against_a_sound_environment(name, tmp_path):
    assert blamed(tmp_path / "world", HEALTHY[name]) == []


def test_the_node_with_another_torch_is_named(tmp_path):
    assert odd_node(tmp_path) == ["node-2: torch 2.5.1"]
