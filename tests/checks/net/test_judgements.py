"""Which interface a run uses, what is made of interfaces, names and ports."""

import os
import socket

import pytest

from holdfast.checks.child import look
from holdfast.checks.net.names import is_ours, resolved
from holdfast.checks.readers.listeners import listeners
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import check_named
from holdfast.core.checks.counter_rise import SINCE_BOOT, SINCE_LEARNED
from holdfast.core.checks.net import (
    Interface,
    Resolved,
    Traffic,
    gloo_choice,
    judge_choice,
    judge_hostname,
    judge_interface,
    judge_retransmitted,
    judge_traffic,
    nccl_choice,
)
from holdfast.model.checks import DEVICE_FAULT, FAIL, PASS, SKIP, WARN, Baseline, Scene

CARDS = tuple(
    Interface(name=name, has_address=name != "eth1", is_physical=name.startswith(("eth", "ib")))
    for name in ("docker0", "eth0", "eth1", "eth10", "ib0", "lo")
)
QUIET = (0, 1.0, SINCE_BOOT)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ("", ("ib0",)),
        ("eth", ("eth0", "eth10")),
        ("=eth0", ("eth0",)),
        ("^docker,lo,ib", ("eth0", "eth10")),
        ("eth1", ("eth10",)),
        ("=eth1", ("eth1",)),  # its address is not seen, but it is there
        ("^=eth0", ("docker0", "eth10", "ib0", "lo")),
        ("bond0", ()),
    ],
)
def test_the_interface_is_chosen_as_nccl_does(wanted, names):
    assert nccl_choice(CARDS, wanted).names == names


def test_without_infiniband_what_is_not_virtual_is_chosen():
    assert nccl_choice(CARDS[:4], "").names == ("eth0", "eth10")
    assert nccl_choice(CARDS[:1], "").names == ("docker0",)
    assert judge_choice(nccl_choice((), ""), (), Baseline()) == []


def test_gloo_wants_whole_names():
    assert gloo_choice(CARDS, "") is None
    assert gloo_choice(CARDS, "eth").names == ()
    assert gloo_choice(CARDS, "eth0,ib0").names == ("eth0", "ib0")


def test_a_chosen_card_without_carrier_is_broken_only_where_it_was_up():
    down = Interface(name="eth0", has_carrier=False, state="down", is_physical=True, has_address=True)
    choice = nccl_choice([down], "eth0")
    known = Baseline(facts={"nic:eth0": {"up": True}})
    assert judge_choice(choice, [down], known)[0].fault == DEVICE_FAULT
    told = judge_choice(choice, [down], Baseline())[0]
    assert (told.status, told.fault) == (FAIL, "")


@pytest.mark.parametrize(
    ("card", "alarms"),
    [
        (Interface(name="eth0", mtu=9000, speed_mbps=100_000, is_physical=True), 0),
        (Interface(name="eth0", mtu=9000, speed_mbps=0, is_physical=True), 0),
        (Interface(name="eth0", mtu=9000, speed_mbps=200_000, is_physical=True), 0),
        (Interface(name="eth0", mtu=1500, speed_mbps=25_000, is_physical=True), 2),
        (Interface(name="eth0", state="unknown", mtu=9000), 0),
        (Interface(name="eth9", has_carrier=False, state="down"), 0),
        (Interface(name="eth0", duplex="half", speed_mbps=10, is_physical=True, mtu=9000), 1),
    ],
)
def test_a_card_is_held_against_what_was_learned(card, alarms):
    known = Baseline(facts={"nic:eth0": {"up": True, "mtu": 9000, "speed_mbps": 100_000}})
    assert len(judge_interface(card, known)) == alarms


def test_a_bond_is_held_against_the_members_it_had():
    bond = Interface(name="bond0", members={"eth0": True, "eth1": False})
    assert [one.status for one in judge_interface(bond, Baseline())] == [WARN]
    assert judge_interface(bond, Baseline(facts={"nic:bond0": {"up": True, "members": "eth0"}})) == []
    gone = Interface(name="bond0", members={"eth0": True})
    told = judge_interface(gone, Baseline(facts={"nic:bond0": {"up": True, "members": "eth0,eth1"}}))
    assert "eth1 is down or missing" in told[0].why


@pytest.mark.parametrize(
    ("seen", "flaps", "alarms"),
    [
        (Traffic(packets=10**8, errors=50), QUIET, 0),
        (Traffic(packets=10**8, errors=5000), QUIET, 1),
        (Traffic(packets=10**9, missed=50_000), QUIET, 0),
        (Traffic(packets=10**6, missed=50_000), QUIET, 1),
        (Traffic(), (4, 3600.0, SINCE_BOOT), 0),
        (Traffic(), (40, 86_400.0, SINCE_BOOT), 1),
        (Traffic(), (1, 3600.0, SINCE_LEARNED), 1),
        (Traffic(), (1, 10 * 86_400.0, SINCE_LEARNED), 0),
    ],
)
def test_errors_are_held_against_traffic(seen, flaps, alarms):
    assert len(judge_traffic("eth0", seen, flaps)) == alarms


@pytest.mark.parametrize(
    ("sent", "again", "alarms"), [(10**6, 20_000, 0), (10**6, 40_000, 1), (1000, 500, 0)]
)
def test_retransmissions(sent, again, alarms):
    assert len(judge_retransmitted(sent, again)) == alarms


@pytest.mark.parametrize(
    ("host", "nodes", "env", "status"),
    [
        (Resolved(name="a", addresses=("127.0.1.1",), ours=("127.0.1.1",)), 1, {}, PASS),
        (Resolved(name="a", addresses=("127.0.1.1",), ours=("127.0.1.1",)), 2, {}, WARN),
        (Resolved(name="a", addresses=("127.0.1.1",)), 2, {"GLOO_SOCKET_IFNAME": "eth0"}, PASS),
        (Resolved(name="a", addresses=("10.0.0.4",)), 2, {}, WARN),
        (Resolved(name="a", addresses=("10.0.0.4", "127.0.0.1"), ours=("10.0.0.4",)), 2, {}, PASS),
        (Resolved(name="a", error="unknown"), 1, {}, PASS),
        (Resolved(name="a", error="unknown"), 2, {}, WARN),
    ],
)
def test_the_own_name_matters_on_several_nodes(host, nodes, env, status):
    assert judge_hostname(host, nodes, env).status == status


def test_addresses_of_this_machine_are_known():
    assert is_ours("127.0.0.1") and not is_ours("192.0.2.1")
    assert resolved("localhost").ours and resolved("x" * 70).error


def ask(**changes):
    return look(check_named("net-port"), Scene(**changes))


def test_a_port_that_is_held_is_named_with_its_holder():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        held = ask(env={"MASTER_PORT": str(port)})
        ours = ask(env={"MASTER_PORT": str(port)}, own_pids=(os.getpid(),))
        elsewhere = ask(env={"MASTER_PORT": str(port), "NODE_RANK": "1"}, nodes=2)
        of_a_command = ask(env={"MASTER_PORT": str(port)}, command=("torchrun", "t.py"))
        while_training = ask(env={"MASTER_PORT": str(port)}, training=True)
        holder = next(listeners(NodeFiles(Scene()), port))
    assert (held.status, held.findings[0].fault) == (FAIL, "")
    assert f"pid {os.getpid()}" in held.findings[0].why and holder.pid == os.getpid()
    assert [one.status for one in (ours, elsewhere, while_training, of_a_command)] == [PASS, SKIP, SKIP, SKIP]
    assert ask(env={"MASTER_PORT": str(port)}).status == PASS
