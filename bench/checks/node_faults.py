"""Faults for the check bench that are made up: a sound node's /proc, /sys and /dev with one thing wrong."""

from collections.abc import Callable
from typing import NamedTuple

from bench.checks.node_trees import GID, NOW_S, Tree, known_of, learned_ports
from holdfast.model.checks import DEVICE_FAULT, FAIL, SKIP, WARN

Changes = dict[str, object]
IB = "sys/class/infiniband"
NODES_2: Changes = {"nodes": 2, "env": {"GLOO_SOCKET_IFNAME": "eth0"}}  # its own name does not matter then


class MadeUp(NamedTuple):
    """`check`: which is to find it, with which status and fault. `break_it`: gives what the scene differs in."""

    name: str
    check: str
    status: str
    break_it: Callable[[Tree], Changes | None]
    fault: str = ""


def _port(name: str, **values: str | int) -> Callable[[Tree], Changes]:
    """mlx5_1 says something else than was learned."""

    def change(tree: Tree) -> Changes:
        for key, value in values.items():
            tree.put(f"{IB}/{name}/ports/1/{key}", value)
        return {"baseline": known_of(learned_ports()), **NODES_2}

    return change


def _counter(name: str, value: int) -> Callable[[Tree], Changes]:
    def change(tree: Tree) -> Changes:
        tree.put(f"{IB}/mlx5_2/ports/1/counters/{name}", value)
        return {"baseline": known_of(learned_ports())}

    return change


def _roce(tree: Tree, **values: str | int) -> None:
    for number in range(4):
        tree.drop(f"{IB}/mlx5_{number}")
        tree.port(f"mlx5_{number}", "Ethernet", **values)


def _without_v2(tree: Tree) -> None:
    _roce(tree)
    for index in (1, 3):
        tree.drop(f"{IB}/mlx5_0/ports/1/gids/{index}")


def _narrow_slot(tree: Tree) -> Changes:
    tree.put("sys/devices/pci0000:3a/0000:3c:00.0/current_link_width", 8)
    return {"baseline": known_of(learned_ports())}


def _off_the_bus(tree: Tree) -> Changes:
    tree.drop(f"{IB}/mlx5_3")
    tree.drop("sys/bus/pci/devices/0000:3e:00.0")
    return {"baseline": known_of(learned_ports()), **NODES_2}


def _driver_unbound(tree: Tree) -> Changes:
    tree.drop(f"{IB}/mlx5_3")
    return {"baseline": known_of(learned_ports())}


def _all_down(tree: Tree) -> Changes:
    for number in range(4):
        tree.port(f"mlx5_{number}", state="1: DOWN", phys_state="2: Polling")
    return NODES_2


def _empty_gid(tree: Tree) -> Changes:
    _roce(tree)
    return {"nodes": 2, "env": {"NCCL_IB_GID_INDEX": "7", "GLOO_SOCKET_IFNAME": "eth0"}}


def _gid_of_v1(tree: Tree) -> Changes:
    _roce(tree)
    assert GID[2][1] == "IB/RoCE v1", "as the table has it"
    return {"env": {"NCCL_IB_GID_INDEX": "2"}}


def _no_peermem(tree: Tree) -> Changes:
    tree.drop("sys/module/nvidia_peermem")
    return NODES_2


def _learned_card(**facts: object) -> Changes:
    return {"baseline": known_of({"nic:eth0": {"up": True, "mtu": 9000, "speed_mbps": 100000, **facts}})}


def _card(changes: Changes | None = None, **values: str | int) -> Callable[[Tree], Changes]:
    def change(tree: Tree) -> Changes:
        tree.card("eth0", **{"mtu": 9000, **values})
        return _learned_card() if changes is None else changes

    return change


def _statistics(**values: int) -> Callable[[Tree], None]:
    def change(tree: Tree) -> None:
        for name, value in values.items():
            tree.put(f"sys/class/net/eth0/statistics/{name}", value)

    return change


def _flapping(tree: Tree) -> Changes:
    tree.put("sys/class/net/eth0/carrier_down_count", 9)
    known = {"mtu": 1500, "carrier_lost": 1, "carrier_counted_s": NOW_S - 86_400}
    return _learned_card(**known)


def _bond(tree: Tree) -> None:
    tree.card("bond0", physical=False)
    tree.routes("bond0")
    tree.put("sys/class/net/bond0/bonding/slaves", "eth0 eth1")
    tree.card("eth1", carrier=0, operstate="down")
    for name, status in (("eth0", "up"), ("eth1", "down")):
        tree.put(f"sys/class/net/{name}/bonding_slave/mii_status", status)


def _retransmits(tree: Tree) -> None:
    tree.put("proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 900000 81000")


def _second_card_down(tree: Tree) -> Changes:
    tree.card("eth1", carrier=0, operstate="down")
    return {"baseline": known_of({"nic:eth1": {"up": True, "mtu": 1500}})}


def _governor(tree: Tree) -> None:
    for policy in range(4):
        tree.put(f"sys/devices/system/cpu/cpufreq/policy{policy}/scaling_governor", "powersave")


def _few_cores(tree: Tree) -> None:
    tree.put("proc/self/status", "CapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-3")


def _quota(tree: Tree) -> None:
    tree.put("proc/self/cgroup", "0::/kubepods/pod7")
    tree.put("sys/fs/cgroup/kubepods/pod7/cpu.max", "200000 100000")


def _small_group(tree: Tree) -> None:
    tree.put("proc/self/cgroup", "0::/kubepods/pod7")
    tree.put("sys/fs/cgroup/kubepods/memory.max", 2 << 30)
    tree.put("sys/fs/cgroup/kubepods/memory.current", 1 << 30)
    tree.put("sys/fs/cgroup/kubepods/memory.stat", "inactive_file 1000\nanon 10")


def _fewer_pids(tree: Tree) -> None:
    tree.put("proc/self/cgroup", "0::/kubepods/pod7")
    tree.put("sys/fs/cgroup/kubepods/pod7/pids.max", 256)
    tree.put("sys/fs/cgroup/kubepods/pod7/pids.current", 200)


def _memory(changes: Changes | None = None, **kib: int) -> Callable[[Tree], Changes | None]:
    def change(tree: Tree) -> Changes | None:
        tree.memory(**kib)
        return changes

    return change


def _pressure(tree: Tree) -> None:
    tree.put(
        "proc/pressure/memory", "some avg10=60.00 avg60=50.00 total=1\nfull avg10=40.00 avg60=35.00 total=1"
    )


def _huge(tree: Tree) -> None:
    tree.put("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", 400)


def _numa(tree: Tree) -> None:
    tree.put("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:       0 kB")


def _fewer_processors(tree: Tree) -> Changes:
    tree.put("sys/devices/system/cpu/online", "0-31")
    return {"baseline": known_of({"node": {"processors": 64}})}


def _zombies(tree: Tree) -> None:
    for pid in range(2000, 2300):
        tree.process(pid, 700, "python3", "Z")


def _left_over(tree: Tree) -> None:
    tree.process(3000, 1, "python3", HOLDFAST_JOB="yesterday")
    tree.process(3001, 3000, "python3", HOLDFAST_JOB="yesterday")


def _orphan_rank(tree: Tree) -> None:
    tree.process(3100, 1, "python3", RANK="3", WORLD_SIZE="8", TORCHELASTIC_RUN_ID="none")


def _kernel(*lines: str, **changes: object) -> Callable[[Tree], Changes]:
    def change(tree: Tree) -> Changes:
        tree.kernel(*lines)
        return changes

    return change


def _syslog(tree: Tree) -> None:
    tree.drop("dev/kmsg")
    lines = (
        "Linux version 6.8.0",
        "INFO: task jbd2/nvme0n1-8:812 blocked for more than 122 seconds.",
    )
    text = [f"Nov 20 10:00:0{at} gpu-07 kernel: [{at * 1000:12.6f}] {line}" for at, line in enumerate(lines)]
    tree.put("var/log/kern.log", "\n".join(text))


def _no_log(tree: Tree) -> None:
    tree.drop("dev/kmsg")


def _no_shm(tree: Tree) -> None:
    tree.drop("dev/shm")


def _lost_mount(tree: Tree) -> Changes:
    del tree
    learned = {"mount:/": {}, "mount:/tmp": {"kind": "nfs4", "source": "filer:/ckpt"}}
    return {"folders": {"checkpoint": "/tmp"}, "baseline": known_of({"mount:/tmp": learned["mount:/tmp"]})}


OOM = (
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/,"
    "task=python3,pid=4242,uid=0",
    "Out of memory: Killed process 4242 (python3) total-vm:9999999kB, anon-rss:9999999kB, file-rss:0kB",
)

FAULTS = (
    MadeUp(
        "RDMA port down",
        "rdma-ports",
        FAIL,
        _port("mlx5_1", state="1: DOWN", phys_state="2: Polling"),
        DEVICE_FAULT,
    ),
    MadeUp("RDMA port without subnet manager", "rdma-ports", WARN, _port("mlx5_1", state="2: INIT")),
    MadeUp("RDMA rate halved", "rdma-ports", WARN, _port("mlx5_1", rate="200 Gb/sec (4X HDR)")),
    MadeUp("RDMA width 2x of 4x", "rdma-ports", WARN, _port("mlx5_1", rate="200 Gb/sec (2X NDR)")),
    MadeUp(
        "RDMA link layer changed",
        "rdma-ports",
        WARN,
        _port("mlx5_1", link_layer="Ethernet", **{"gids/3": GID[3][0], "gid_attrs/types/3": "RoCE v2"}),
    ),
    MadeUp("RDMA card at x8 of x16", "rdma-ports", WARN, _narrow_slot),
    MadeUp("RDMA card off the bus", "rdma-ports", FAIL, _off_the_bus, DEVICE_FAULT),
    MadeUp("RDMA driver not bound", "rdma-ports", WARN, _driver_unbound),
    MadeUp("no RDMA port up, two nodes", "rdma-ports", WARN, _all_down),
    MadeUp("link_downed rose by 2 in a day", "rdma-errors", WARN, _counter("link_downed", 2)),
    MadeUp("symbol errors: 400 in a day", "rdma-errors", WARN, _counter("symbol_error", 400)),
    MadeUp("link recovered 60 times", "rdma-errors", WARN, _counter("link_error_recovery", 60)),
    MadeUp("no RoCE v2 address", "rdma-gid", WARN, _without_v2),
    MadeUp("NCCL_IB_GID_INDEX names nothing", "rdma-gid", FAIL, _empty_gid),
    MadeUp("NCCL_IB_GID_INDEX names RoCE v1", "rdma-gid", WARN, _gid_of_v1),
    MadeUp("RDMA port without LID", "rdma-gid", WARN, _port("mlx5_1", lid="0x0")),
    MadeUp("nvidia_peermem not loaded", "rdma-gpudirect", WARN, _no_peermem),
    MadeUp(
        "no interface of that name (NCCL)",
        "net-interfaces",
        FAIL,
        lambda _: {"env": {"NCCL_SOCKET_IFNAME": "ens9"}},
    ),
    MadeUp(
        "no interface of that name (gloo)",
        "net-interfaces",
        FAIL,
        lambda _: {"env": {"GLOO_SOCKET_IFNAME": "ens9"}},
    ),
    MadeUp("card slower than learned", "net-interfaces", WARN, _card(speed=10000)),
    MadeUp("card at half duplex", "net-interfaces", WARN, _card({}, duplex="half", speed=1000)),
    MadeUp("MTU not as learned", "net-interfaces", WARN, _card(mtu=1500)),
    MadeUp("second card down", "net-interfaces", WARN, _second_card_down),
    MadeUp("member of a bond down", "net-interfaces", WARN, _bond),
    MadeUp("damaged packets", "net-errors", WARN, _statistics(rx_crc_errors=40_000)),
    MadeUp("packets missed", "net-errors", WARN, _statistics(rx_missed_errors=900_000)),
    MadeUp("card flaps", "net-errors", WARN, _flapping),
    MadeUp("TCP sends 9% again", "net-errors", WARN, _retransmits),
    MadeUp("own name resolves to the loopback", "net-name", WARN, lambda _: {"nodes": 2}),
    MadeUp("own name is another node's", "net-name", WARN, lambda _: {"nodes": 2, "host": "192.0.2.1"}),
    MadeUp("own name unknown", "net-name", WARN, lambda _: {"nodes": 2, "host": "x" * 70 + ".invalid"}),
    MadeUp(
        "MASTER_ADDR unknown", "net-name", FAIL, lambda _: {"env": {"MASTER_ADDR": "x" * 70 + ".invalid"}}
    ),
    MadeUp("a learned mount is gone", "io-mounts", FAIL, _lost_mount),
    MadeUp("no /dev/shm", "io-shm", FAIL, _no_shm),
    MadeUp("few processes left in the group", "io-limits", WARN, _fewer_pids),
    MadeUp("governor powersave", "host-cpu", WARN, _governor),
    MadeUp("8 ranks on 4 processors", "host-cpu", WARN, _few_cores),
    MadeUp("8 ranks on a quota of 2", "host-cpu", WARN, _quota),
    MadeUp("processors lost", "host-cpu", WARN, _fewer_processors),
    MadeUp("memory used up", "host-memory", WARN, _memory(MemAvailable=1 << 20)),
    MadeUp(
        "memory module lost",
        "host-memory",
        WARN,
        _memory({"baseline": known_of({"node": {"memory": 512 << 30}})}, MemTotal=448 << 20),
    ),
    MadeUp("small memory limit", "host-memory", WARN, _small_group),
    MadeUp("swapping", "host-memory", WARN, _memory(MemAvailable=40 << 20, SwapFree=1 << 20)),
    MadeUp("all wait for memory", "host-memory", WARN, _pressure),
    MadeUp("huge pages eat the memory", "host-memory", WARN, _huge),
    MadeUp("NUMA node without memory", "host-numa", WARN, _numa),
    MadeUp("300 zombies", "host-processes", WARN, _zombies),
    MadeUp("processes of an earlier job", "host-leftovers", WARN, _left_over),
    MadeUp("a rank without launcher", "host-leftovers", WARN, _orphan_rank),
    MadeUp(
        "kernel: task blocked",
        "host-kernel-log",
        WARN,
        _kernel("INFO: task python3:4242 blocked for more than 122 seconds."),
    ),
    MadeUp(
        "kernel: disk error",
        "host-kernel-log",
        WARN,
        _kernel(
            "blk_update_request: I/O error, dev nvme2n1, sector 6442712256 op 0x1:(WRITE) flags 0x1000 phys_seg 8 prio class 0"
        ),
    ),
    MadeUp(
        "kernel: network card's firmware stopped",
        "host-kernel-log",
        WARN,
        _kernel(
            "mlx5_core 0000:d2:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count"
        ),
    ),
    MadeUp(
        "kernel: NVSwitch, fatal",
        "host-kernel-log",
        FAIL,
        _kernel(
            "nvidia-nvswitch3: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 32 sourcetrack timeout error (First)"
        ),
    ),
    MadeUp(
        "kernel: a GPU fell off the bus",
        "host-kernel-log",
        FAIL,
        _kernel("NVRM: GPU 0000:91:00.0: GPU has fallen off the bus."),
        DEVICE_FAULT,
    ),
    MadeUp(
        "kernel: PCIe, fatal",
        "host-kernel-log",
        FAIL,
        _kernel(
            "pcieport 0000:89:02.0: AER: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)"
        ),
    ),
    MadeUp("kernel: out of memory, just now", "host-kernel-log", WARN, _kernel(*OOM, good_s=NOW_S - 200_000)),
    MadeUp("kernel: only syslog can be read", "host-kernel-log", WARN, _syslog),
    MadeUp("kernel's log cannot be read", "host-kernel-log", SKIP, _no_log),
)
