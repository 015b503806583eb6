"""A node's counters, from this machine and from trees in the form that the kernel gives them."""

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.observe.host import node_counters
from holdfast.observe.host.node_counters import NodeCounters

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:    5000      10    0    0    0     0          0         0     5000      10    0    0    0     0       0          0
  ib0:9000000000 7000000    3    1    0     0          0         0 8000000000 6000000    2    4    0     0       0          0
  idle:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
eth0.12:  600 2 0 0 0 0 0 0 700 3 0 0 0 0 0 0
"""
DISKSTATS = """ 259       0 nvme0n1 1000 5 80000 900 2000 7 160000 5000 12 4500 5900 0 0 0 0 3 9
 259       1 nvme0n1p1 990 5 79000 890 1990 7 159000 4900 0 4400 5800 0 0 0 0 0 0
   7       0 loop0 54 0 2100 1 9 0 8 0 0 0 3 0 0 0 0 9 0
   8       0 sda 0 0 0 0 0 0 0 0 0 0 0
 253       0 dm-0 3 0 24 1 0 0 0 0 0 1 1
"""
MEMINFO = """MemTotal:       65536000 kB
MemAvailable:   32000000 kB
Dirty:              1320 kB
Writeback:            64 kB
HugePages_Total:       0
"""
SNMP = """Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn OutSegs RetransSegs
Tcp: 1 200 120000 -1 3325887 2132
"""
NETSTAT = """TcpExt: SyncookiesSent TCPTimeouts
TcpExt: 0 51
IpExt: InNoRoutes
IpExt: 0
"""


def put(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def root(tmp_path):
    put(
        tmp_path,
        {
            "proc/net/dev": NET_DEV,
            "proc/diskstats": DISKSTATS,
            "proc/meminfo": MEMINFO,
            "proc/net/snmp": SNMP,
            "proc/net/netstat": NETSTAT,
            "sys/class/net/ib0/operstate": "up\n",
            "sys/class/net/eth0.12/operstate": "lowerlayerdown\n",
            "sys/class/net/lo/operstate": "unknown\n",
        },
    )
    for disk in ("nvme0n1", "loop0", "sda", "dm-0"):
        (tmp_path / "sys/block" / disk).mkdir(parents=True)
    return tmp_path


def with_port(root, device="mlx5_0", port=1, state="4: ACTIVE", **counters):
    base = f"sys/class/infiniband/{device}/ports/{port}"
    put(root, {f"{base}/state": state + "\n", f"{base}/link_layer": "InfiniBand\n"})
    put(root, {f"{base}/counters/{name}": f"{value}\n" for name, value in counters.items()})
    return root / base


@pytest.fixture
def counters():
    made = []

    def make(*given):
        made.append(NodeCounters(*given))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_interfaces_the_busiest_first_and_none_that_never_moved_anything(root, counters):
    found = counters(root).sample().interfaces
    assert [(one.name, one.is_up) for one in found] == [("ib0", True), ("lo", None), ("eth0.12", False)]
    assert (found[0].received_bytes, found[0].sent_bytes) == (9000000000, 8000000000)
    assert (found[0].errors, found[0].dropped) == (5, 5)


def test_disks_without_their_partitions_and_what_is_no_disk(root, counters):
    found = counters(root).sample().disks
    assert [one.name for one in found] == ["nvme0n1", "dm-0"]
    assert (found[0].read_bytes, found[0].written_bytes) == (80000 * 512, 160000 * 512)
    assert (found[0].in_flight, found[0].busy_s) == (12, 4.5)


def test_memory_and_tcp(root, counters):
    sample = counters(root).sample()
    assert (sample.dirty_bytes, sample.writeback_bytes) == (1320 << 10, 64 << 10)
    assert sample.available_bytes == 32000000 << 10
    assert (sample.tcp_sent, sample.tcp_retransmitted, sample.tcp_timeouts) == (3325887, 2132, 51)


def test_ports_are_read_aside_with_their_errors(root, counters):
    port = with_port(root, port_xmit_data=100, port_rcv_data=200, symbol_error=0, link_downed=2)
    put(port, {"hw_counters/out_of_sequence": "7\n", "hw_counters/lifespan": "10\n"})
    with_port(root, "mlx5_1", state="1: DOWN")
    one = counters(root, lambda: 50.0)
    first = one.sample()
    assert first.ports == () and first.ports_age_s is None
    assert one.wait_for_ports(10)
    healthy, down = one.sample().ports
    assert (healthy.device, healthy.port, healthy.state) == ("mlx5_0", 1, "ACTIVE")
    assert (healthy.sent_bytes, healthy.received_bytes) == (400, 800)
    assert healthy.errors == {"link_downed": 2, "out_of_sequence": 7}
    assert (down.state, down.sent_bytes, down.errors) == ("DOWN", None, {})


def test_a_port_whose_driver_does_not_answer_holds_nobody_up(root, counters):
    """A FIFO that nobody writes to is such a file: opening it does not come back."""
    port = with_port(root, port_xmit_data=100, port_rcv_data=200)
    now_s = [10.0]
    one = counters(root, lambda: now_s[0])
    one.sample()
    assert one.wait_for_ports(10)
    (port / "state").unlink()
    os.mkfifo(port / "state")
    one.sample()  # asks
    now_s[0] += 42
    for _ in range(3):
        stuck = one.sample()
        assert stuck.ports[0].state == "ACTIVE" and stuck.ports_age_s == 42.0
        assert stuck.dirty_bytes is not None
    with open(port / "state", "w") as file:
        file.write("1: DOWN\n")
    assert one.wait_for_ports(10)
    assert one.sample().ports[0].state == "DOWN"


def test_a_node_without_anything_gives_nothing(tmp_path, counters):
    sample = counters(tmp_path).sample()
    assert sample.interfaces == sample.disks == sample.ports == ()
    assert sample.dirty_bytes is sample.tcp_sent is sample.ports_age_s is None


def test_this_machine_counts_what_is_sent_to_itself(counters):
    one = counters()
    before = {found.name: found for found in one.sample().interfaces}
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as sender:
        receiver, _ = listener.accept()
        with receiver:
            sender.sendall(bytes(1 << 20))
            left = 1 << 20
            while left:
                left -= len(receiver.recv(left))
    after = one.sample()
    loopback = {found.name: found for found in after.interfaces}["lo"]
    assert loopback.sent_bytes >= (before["lo"].sent_bytes if "lo" in before else 0) + (1 << 20)
    assert after.dirty_bytes is not None and after.tcp_sent > 0


@given(st.text(max_size=400))
def test_no_text_raises(text):
    node_counters.parse_net_dev("\n\n" + text)
    node_counters.parse_diskstats(text)
    node_counters.parse_diskstats(" 8 0 " + text)
    node_counters.parse_meminfo(text)
    node_counters.parse_paired_lines(text)
    node_counters.parse_paired_lines(f"Tcp: {text}\nTcp: {text}")
