"""A wrapped pod's variables are those of the worker that runs in it, whatever pod that is."""

import pytest

from holdfast.core.kubernetes.wrapped import Place, expanded, numbers, without_addresses

TRAINER = {"PET_NNODES": "5", "PET_NODE_RANK": "4", "PET_MASTER_ADDR": "t-0", "PET_NPROC_PER_NODE": "8"}
PLACE = Place(2, 4, "10.0.0.7", 29400, "t-1")


def test_addresses_of_the_platform_are_left_out_and_set_to_those_of_the_attempt():
    base = without_addresses({"HOLDFAST_WRAPPED": "5", "MASTER_ADDR": "t-0", "PATH": "/bin", **TRAINER})
    assert {name for name in base if "HOLDFAST" not in name} == {"PATH", "PET_NPROC_PER_NODE"}
    assert numbers(base, PLACE) == {"PET_NNODES": "4", "PET_NODE_RANK": "2", "PET_MASTER_ADDR": "10.0.0.7"}


def test_an_address_that_is_not_known_yet_is_not_set():
    base = without_addresses({"HOLDFAST_WRAPPED": "5", **TRAINER})
    assert "PET_MASTER_ADDR" not in numbers(base, Place(2, 4))


def test_nothing_changes_where_nothing_is_wrapped():
    env = {"MASTER_ADDR": "mine", "RANK": "3"}
    assert without_addresses(env) is env
    assert numbers(env, PLACE) == {}
    assert expanded(("$(RANK)",), env) == ("$(RANK)",)


@pytest.mark.parametrize(
    ("world", "is_now"), [("5", "4"), ("40", "32"), ("7", "4"), ("many", "4"), ("0", "4")]
)
def test_a_world_size_of_pods_or_of_ranks_is_that_of_the_workers(world, is_now):
    env = {"HOLDFAST_WRAPPED": "5", "WORLD_SIZE": world, "RANK": "4", "JOB_COMPLETION_INDEX": "4"}
    assert numbers(env, PLACE) == {"WORLD_SIZE": is_now, "RANK": "2", "JOB_COMPLETION_INDEX": "2"}


def test_references_are_replaced_as_a_kubelet_does():
    env = {"HOLDFAST_WRAPPED": "5", "A": "1", "B.C": "2"}
    words = ("$(A)-$(B.C)", "$$(A)", "$(NONE)", "$A $", "$$$(A)")
    assert expanded(words, env) == ("1-2", "$(A)", "$(NONE)", "$A $", "$1")
