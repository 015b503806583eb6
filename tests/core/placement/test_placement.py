"""Roles of groups, and what is placed badly, from places by hand."""

import pytest

from holdfast.core.placement.judge import judged
from holdfast.core.placement.roles import role_groups, role_of_name
from holdfast.model.flight.records import FlightRecord, Group, Operation
from holdfast.model.runs.placement import GpuUse, RankPlace
from holdfast.parsers.topology import switches_of


def places(per_node=4, count=8, **further):
    return [
        RankPlace(rank=rank, node=f"n{rank // per_node}", worker=rank // per_node, **further)
        for rank in range(count)
    ]


def groups(about, *members):
    return {
        f"{about}{place}": Group(name=str(place), about=about, ranks=ranks)
        for place, ranks in enumerate(members)
    }


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tensor"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pipeline"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "data"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "expert"),
        ("CONTEXT_PARALLEL_GROUP", "context"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", None),
        ("MODEL_PARALLEL_GROUP", None),
        ("mesh_tp", "tensor"),
        ("mesh_dp_shard", "data"),
        ("mesh_pp", "pipeline"),
        ("default_pg", None),
        ("3", None),
    ],
)
def test_roles_by_name(name, role):
    assert role_of_name(name) == role


def test_groups_without_names_are_identified_by_operations_and_shape():
    found = {
        "a": Group(name="a", ranks=(0, 1)),
        "b": Group(name="b", ranks=(0, 4)),
        "c": Group(name="c", ranks=(0, 2, 4, 6)),
    }
    found["w"] = Group(name="w", ranks=tuple(range(8)))
    record = FlightRecord(
        rank=0,
        operations=(
            Operation(group="a", kind="all_reduce"),
            Operation(group="b", kind="send 0->1"),
            Operation(group="c", kind="reduce_scatter"),
        ),
    )
    roles = {one.name: (one.role, one.is_guessed) for one in role_groups(found, [record])}
    assert roles == {
        "a": ("tensor", True),
        "b": ("pipeline", True),
        "c": ("data", True),
        "w": ("world", False),
    }
    assert {one.role for one in role_groups({"a": found["a"], "w": found["w"]})} == {"unknown", "world"}


def test_a_tensor_group_over_two_nodes_is_named():
    tensor = groups("TENSOR_MODEL_PARALLEL_GROUP", (0, 4), (1, 5))
    found = judged(role_groups(tensor), places(), {})
    assert [one.kind for one in found.findings] == ["tensor-over-nodes"] * 2
    assert found.findings[0].nodes == ("n0", "n1") and "node by node" in found.findings[0].change
    large = judged(role_groups(groups("mesh_tp", tuple(range(8)))), places(), {})
    assert "set the tensor parallel size to 4" in large.findings[0].change
    good = judged(role_groups(groups("mesh_tp", (0, 1, 2, 3), (4, 5, 6, 7))), places(), {})
    assert good.findings == ()


def test_switches():
    switches = {"n0": "s1", "n1": "s2", "n2": "s1", "n3": "s2"}
    spread = places(per_node=1, count=4)
    found = judged(role_groups(groups("EXPERT_MODEL_PARALLEL_GROUP", (0, 1), (2, 3))), spread, switches)
    kinds = [one.kind for one in found.findings]
    assert kinds == ["group-over-switches", "group-over-switches", "ring-order"]
    assert found.findings[-1].change.endswith("n0,n2,n1,n3")
    ordered = {"n0": "s1", "n1": "s1", "n2": "s2", "n3": "s2"}
    assert (
        judged(role_groups(groups("EXPERT_MODEL_PARALLEL_GROUP", (0, 1), (2, 3))), spread, ordered).findings
        == ()
    )


def test_a_wrong_numa_node_or_network_device():
    wrong = RankPlace(rank=1, node="n", gpu="0000:81:00.0", cpu_numa=(0,), gpu_numa=1, nics=(("mlx5_0", 0),))
    right = RankPlace(rank=0, node="n", gpu="0000:01:00.0", cpu_numa=(0,), gpu_numa=0, nics=(("mlx5_0", 0),))
    found = judged((), [right, wrong], {})
    assert [(one.kind, one.ranks) for one in found.findings] == [("numa", (1,)), ("nic", (1,))]
    assert "--cpunodebind=1" in found.findings[0].change


def test_shared_gpus():
    def use(job, rank, pid, gpu="0000:01:00.0"):
        return GpuUse(node="n", gpu=gpu, job=job, rank=rank, pid=pid)

    found = judged((), (), {}, [use("a", 0, 1), use("b", 0, 2), use("a", 1, 3, "0000:02:00.0")])
    assert [one.text for one in found.findings] == [
        "2 jobs use GPU 0000:01:00.0 of n: rank 0 of a (process 1), rank 0 of b (process 2)"
    ]
    assert judged((), (), {}, [use("a", 0, 1), use("a", 0, 1)]).findings == ()
    assert "LOCAL_RANK" in judged((), (), {}, [use("a", 0, 1), use("a", 1, 2)]).findings[0].change


def test_topology_files():
    text = "# comment\nSwitchName=leaf1 Nodes=n[01-03]\nSwitchName=leaf2 LinkSpeed=1 Nodes=n04,n05\nSwitchName=spine Switches=leaf[1-2]\nx1 leaf9\n???\n"
    found, unread = switches_of(text)
    assert found == {
        "n01": "leaf1",
        "n02": "leaf1",
        "n03": "leaf1",
        "n04": "leaf2",
        "n05": "leaf2",
        "x1": "leaf9",
    }
    assert unread == ["???"]
