"""Device metrics read together: who waits, who is waited for, who changed first; and what is no evidence."""

import math

import pytest

from holdfast.core.metrics.device_evidence import Reading, facts

AT_S = 10_000.0
TIMES = tuple(AT_S - 600.0 + 15.0 * n for n in range(45))


def reading(quantity, node, device, before, during, *, fell_s=AT_S - 75.0, until_s=math.inf):
    values = tuple((at_s, before if at_s < fell_s else during) for at_s in TIMES if at_s < until_s)
    return Reading(quantity=quantity, node=node, device=str(device), values=values)


def cluster(quantity, before, during, *, but=None, nodes=4, gpus=2):
    """All devices alike, but for those of `but`: by (node, gpu) the arguments of their reading."""
    but = but or {}
    return [
        reading(quantity, f"node-{n}", g, **{"before": before, "during": during, **but.get((n, g), {})})
        for n in range(nodes)
        for g in range(gpus)
    ]


def told(readings, language="en"):
    return [getattr(one.says, language) for one in facts(readings, AT_S)]


def test_all_low_they_wait_for_one():
    (one,) = facts(cluster("gpu_tensor", 0.4, 0.0), AT_S)
    assert "idle at the same time" in one.says.en
    assert one.text == "tensor activity of 8 of 8 devices fell from 40% to 0%"
    assert one.file == "prometheus"


def test_who_changed_first():
    first = {(2, 1): {"fell_s": AT_S - 200.0}}
    both = told(cluster("gpu_tensor", 0.4, 0.0, but=first))
    assert both[1] == "node-2 GPU 1 changed first: check it first."
    assert told(cluster("gpu_tensor", 0.4, 0.0, but=first), "zh")[1].startswith("node-2 GPU 1 最先变化")


def test_within_one_scrape_nobody_was_first():
    close = {(2, 1): {"fell_s": AT_S - 88.0}}
    assert len(told(cluster("gpu_tensor", 0.4, 0.0, but=close))) == 1


def test_one_low_it_is_the_one():
    (one,) = told(cluster("gpu_tensor", 0.4, 0.4, but={(3, 0): {"during": 0.0}}))
    assert one == "Only node-3 GPU 0 became idle: check it first."


def test_healthy_devices_say_nothing():
    healthy = [
        *cluster("gpu_util", 1.0, 1.0),
        *cluster("gpu_sm", 0.9, 0.9),
        *cluster("gpu_tensor", 0.4, 0.38),
    ]
    assert told(healthy) == []


def test_idle_devices_say_nothing():
    assert told([*cluster("gpu_util", 0.0, 0.0), *cluster("gpu_tensor", 0.0, 0.0)]) == []


def test_half_of_them_low_says_nothing():
    """Neither all nor one: a pipeline's other half, or two jobs."""
    half = {(n, g): {"during": 0.0} for n in range(2) for g in range(2)}
    assert told(cluster("gpu_tensor", 0.4, 0.4, but=half)) == []


def test_busy_without_sm_work_is_blocked_communication():
    (one,) = told(
        [*cluster("gpu_util", 1.0, 1.0), *cluster("gpu_sm", 0.9, 0.03)][:8] + cluster("gpu_sm", 0.05, 0.03)
    )
    assert "communication is blocked" in one


def test_busy_sm_without_tensor_work_spins():
    found = told([*cluster("gpu_sm", 0.9, 0.99), *cluster("gpu_tensor", 0.4, 0.0)])
    assert any("a collective spins there" in one for one in found)
    assert any("idle at the same time" in one for one in found)


def test_a_training_that_never_used_tensor_cores_does_not_spin():
    assert told([*cluster("gpu_sm", 0.9, 0.99), *cluster("gpu_tensor", 0.0, 0.0)]) == []


def test_without_profiling_counters_utilisation_must_do():
    (one,) = facts(cluster("gpu_util", 0.9, 0.0), AT_S)
    assert one.text.startswith("utilisation of 8 of 8")


@pytest.mark.parametrize("blank", [math.nan, math.inf, 9_223_372_036_854_775_794.0])
def test_nan_and_blank_values_are_unknown(blank):
    assert told(cluster("gpu_tensor", 0.4, blank)) == []
    assert told(cluster("gpu_power", 300.0, blank)) == []


def test_one_congested_port_and_a_congested_fabric():
    one = [reading("cnp_handled", f"node-{n}", "mlx5_0", 1.0, 20_000.0 if n == 2 else 1.0) for n in range(4)]
    assert told(one) == ["Only node-2 mlx5_0 is congested: check its link, switch port and flow control."]
    every = [reading("cnp_handled", f"node-{n}", "mlx5_0", 1.0, 20_000.0) for n in range(4)]
    assert told(every) == ["All ports are congested together: check the fabric, not one node."]
    usual = [reading("cnp_handled", f"node-{n}", "mlx5_0", 20_000.0, 20_000.0) for n in range(4)]
    assert told(usual) == []


def test_a_new_xid_counts_and_an_old_one_does_not():
    assert told([reading("gpu_xid", "node-1", 3, 0.0, 79.0)]) == ["node-1 GPU 3 reported Xid 79."]
    assert told([reading("gpu_xid", "node-1", 3, 79.0, 79.0)]) == []
    assert told([reading("gpu_xid", "node-1", 3, 45.0, 62.0)]) == ["node-1 GPU 3 reported Xid 62."]


def test_the_first_to_fall_silent():
    silent = {
        (1, 0): {"until_s": AT_S - 200.0},
        (1, 1): {"until_s": AT_S - 200.0},
        (2, 0): {"until_s": AT_S - 150.0},
        (2, 1): {"until_s": AT_S - 150.0},
    }
    (one,) = told(cluster("gpu_util", 1.0, 1.0, but=silent))
    assert one == "node-1 stopped reporting first, while others continued: check it first."


def test_all_silent_together_is_prometheus_and_no_node():
    assert (
        told(
            cluster(
                "gpu_util",
                1.0,
                1.0,
                but={(n, g): {"until_s": AT_S - 200.0} for n in range(4) for g in range(2)},
            )
        )
        == []
    )


def test_no_power():
    assert "draws no power" in told([reading("gpu_power", "node-1", 3, 300.0, 0.0)])[0]


def test_16384_ranks_take_no_long():
    assert len(facts(cluster("gpu_tensor", 0.4, 0.0, nodes=2_048, gpus=8), AT_S)) == 1
