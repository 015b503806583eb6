"""What is made of RDMA ports, their counters and addresses."""

import pytest

from holdfast.core.checks.counter_rise import SINCE_BOOT, SINCE_LEARNED, Sample, risen
from holdfast.core.checks.rdma import (
    Counted,
    Direct,
    Gid,
    Port,
    chosen_gid,
    gbps_and_lanes,
    is_wanted,
    judge_counters,
    judge_direct,
    judge_gids,
    judge_port,
    learned_key,
    missing_devices,
)
from holdfast.model.checks import DEVICE_FAULT, FAIL, PASS, SKIP, WARN, Baseline

DAY_S = 86_400.0
V4 = "0000:0000:0000:0000:0000:ffff:0a4d:0001"
LINK_LOCAL = "fe80:0000:0000:0000:0a00:27ff:fe11:2233"
UP = Port(
    device="mlx5_0", number=1, state="ACTIVE", rate="400 Gb/sec (4X NDR)", layer="InfiniBand", guid="a:b"
)


def known(**facts):
    return Baseline(facts={"nic:mlx5_0": {"rate": "400 Gb/sec (4X NDR)", "guid": "a:b", "port": 1, **facts}})


def port(**changes):
    return Port(**{**{name: getattr(UP, name) for name in UP.__struct_fields__}, **changes})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("400 Gb/sec (4X NDR)", (400.0, 4)),
        ("2.5 Gb/sec (1X SDR)", (2.5, 1)),
        ("56 Gb/sec", (56.0, 0)),
        ("", (0.0, 0)),
        ("unknown", (0.0, 0)),
    ],
)
def test_a_rate_is_read_with_its_lanes(text, told):
    assert gbps_and_lanes(text) == told


def test_a_port_that_was_never_up_is_no_fault():
    down = port(state="DOWN", physical="Polling")
    assert [finding.status for finding in judge_port(down, Baseline(), {}, 2)] == [PASS]
    assert judge_port(down, known(), {}, 2)[0].fault == DEVICE_FAULT


@pytest.mark.parametrize(
    "env",
    [
        {"NCCL_IB_DISABLE": "1"},
        {"NCCL_IB_HCA": "mlx5_2"},
        {"NCCL_IB_HCA": "^mlx5_0"},
        {"NCCL_IB_HCA": "=mlx5"},
    ],
)
def test_a_port_that_the_run_does_not_use_only_warns(env):
    finding = judge_port(port(state="DOWN", physical="Polling"), known(), env, 2)[0]
    assert (finding.status, finding.fault) == (WARN, "")


def test_a_run_on_one_node_need_not_leave_for_a_port():
    finding = judge_port(port(state="DOWN", physical="Polling"), known(), {}, 1)[0]
    assert (finding.status, finding.fault) == (FAIL, "")


def test_an_infiniband_port_that_was_switched_off_is_not_broken():
    finding = judge_port(port(state="DOWN", physical="Disabled"), known(), {}, 2)[0]
    assert (finding.status, finding.fault) == (FAIL, "")


@pytest.mark.parametrize(
    ("hca", "wanted"),
    [
        ("", True),
        ("mlx5", True),
        ("=mlx5_0", True),
        ("mlx5_0:1", True),
        ("mlx5_0:2", False),
        ("^=mlx5_0", False),
        ("^mlx5_1", True),
    ],
)
def test_ports_are_chosen_as_nccl_does(hca, wanted):
    assert is_wanted(UP, {"NCCL_IB_HCA": hca}) is wanted


def test_a_card_under_another_name_is_known_by_its_guid():
    moved = port(device="mlx5_3")
    assert learned_key(moved, known()) == "nic:mlx5_0"
    assert missing_devices([moved], {}, known(), {}, 2) == []
    stranger = port(guid="c:d")
    assert learned_key(stranger, known()) == ""
    assert judge_port(port(guid="c:d", state="DOWN"), known(), {}, 2)[0].status == PASS


def test_a_faster_port_is_no_trouble():
    assert [one.status for one in judge_port(port(rate="800 Gb/sec (4X XDR)"), known(), {}, 2)] == [PASS]


def test_a_card_that_is_on_the_bus_is_not_called_broken():
    seen = missing_devices([], {"0000:3b:00.0": True}, known(pci="0000:3b:00.0"), {}, 2)
    lost = missing_devices([], {"0000:3b:00.0": False}, known(pci="0000:3b:00.0"), {}, 2)
    assert [(one.status, one.fault) for one in (*seen, *lost)] == [(WARN, ""), (FAIL, DEVICE_FAULT)]


@pytest.mark.parametrize(
    ("counted", "alarm"),
    [
        (Counted(name="link_downed", more=1, over_s=DAY_S / 2, since=SINCE_LEARNED), True),
        (Counted(name="link_downed", more=1, over_s=5 * DAY_S, since=SINCE_LEARNED), False),
        (Counted(name="link_downed", more=6, over_s=DAY_S / 8, since=SINCE_BOOT), False),
        (Counted(name="link_downed", more=60, over_s=DAY_S, since=SINCE_BOOT), True),
        (Counted(name="symbol_error", more=9, over_s=60.0, since=SINCE_LEARNED), False),
        (Counted(name="symbol_error", more=200, over_s=DAY_S, since=SINCE_LEARNED), False),
        (Counted(name="symbol_error", more=300, over_s=DAY_S, since=SINCE_BOOT), True),
        (Counted(name="symbol_error", more=1, over_s=1.0, since="a second ago"), False),
        (Counted(name="symbol_error", more=2, over_s=1.0, since="a second ago"), True),
        (Counted(name="port_xmit_wait", more=10**9, over_s=1.0, since="a second ago"), False),
    ],
)
def test_counters_alarm_by_how_fast_they_rise(counted, alarm):
    assert bool(judge_counters("mlx5_0", [counted])) is alarm


def test_a_counter_that_began_anew_is_counted_since_boot():
    assert risen(5, Sample(90, 1000.0), now_s=5000.0, uptime_s=9000.0) == (5, 9000.0, SINCE_BOOT)
    assert risen(95, Sample(90, 1000.0), now_s=5000.0, uptime_s=3000.0) == (95, 3000.0, SINCE_BOOT)
    assert risen(95, Sample(90, 1000.0), now_s=5000.0, uptime_s=9000.0) == (5, 4000.0, SINCE_LEARNED)
    assert risen(3, None, now_s=5000.0, uptime_s=9000.0) == (3, 9000.0, SINCE_BOOT)


def test_the_address_that_nccl_takes_is_roce_v2_over_ipv4():
    gids = [
        Gid(0, LINK_LOCAL, "IB/RoCE v1"),
        Gid(1, LINK_LOCAL, "RoCE v2"),
        Gid(2, V4, "IB/RoCE v1"),
        Gid(3, V4, "RoCE v2"),
    ]
    assert chosen_gid(gids).index == 3
    assert chosen_gid(gids[:2]).index == 1
    told = judge_gids(port(layer="Ethernet", gids=tuple(gids)), {}, 2)
    assert (told.status, told.measured) == (PASS, "index 3: RoCE v2 10.77.0.1")


@pytest.mark.parametrize(
    ("index", "nodes", "status"),
    [("3", 2, PASS), ("0", 2, WARN), ("9", 2, FAIL), ("9", 1, WARN), ("x", 2, PASS)],
)
def test_an_index_that_the_run_sets_is_looked_up(index, nodes, status):
    gids = (Gid(0, LINK_LOCAL, "IB/RoCE v1"), Gid(3, V4, "RoCE v2"))
    assert judge_gids(port(layer="Ethernet", gids=gids), {"NCCL_IB_GID_INDEX": index}, nodes).status == status


@pytest.mark.parametrize(
    ("direct", "learned_way", "nodes", "status"),
    [
        (Direct(peermem=True, driver="Kernel Module", kernel=(5, 4)), "", 2, PASS),
        (Direct(peermem=False, driver="Open Kernel Module", kernel=(5, 15)), "", 2, PASS),
        (Direct(peermem=False, driver="Open Kernel Module", kernel=(5, 4)), "", 2, WARN),
        (Direct(peermem=False, driver="Kernel Module", kernel=(6, 8)), "", 1, PASS),
        (Direct(peermem=False, driver="Kernel Module", kernel=(6, 8)), "nvidia_peermem", 1, WARN),
        (
            Direct(peermem=False, driver="Kernel Module", kernel=(6, 8), models=("GeForce RTX 4090",)),
            "",
            2,
            SKIP,
        ),
    ],
)
def test_gpudirect(direct, learned_way, nodes, status):
    assert judge_direct(direct, learned_way, {}, nodes).status == status


def test_a_run_that_does_without_gpudirect_is_not_warned():
    direct = Direct(peermem=False, driver="Kernel Module", kernel=(6, 8))
    assert judge_direct(direct, "", {"NCCL_NET_GDR_LEVEL": "LOC"}, 2).status == SKIP
