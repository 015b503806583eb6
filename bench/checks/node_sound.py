"""Sound nodes of many kinds for the check bench: nothing may be found wrong with any of them."""

from collections.abc import Callable
from typing import NamedTuple

from bench.checks.node_trees import NOW_S, Tree, known_of, learned_ports
from holdfast.model.checks import MANUAL

Changes = dict[str, object]
IB = "sys/class/infiniband"


class Sound(NamedTuple):
    name: str
    vary: Callable[[Tree], Changes | None]


def _no_rdma(tree: Tree) -> None:
    tree.drop(IB)
    tree.drop("sys/module/nvidia_peermem")


def _vm(tree: Tree) -> None:
    _no_rdma(tree)
    tree.drop("dev/kmsg")
    tree.drop("sys/devices/system/cpu/cpufreq")
    tree.drop("sys/kernel/mm/hugepages")
    tree.card("eth0", speed=-1, duplex="unknown", operstate="unknown")


def _container(tree: Tree) -> None:
    _no_rdma(tree)
    tree.drop("dev/kmsg")
    tree.put(
        "proc/self/mountinfo", "100 90 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/a,upperdir=/b"
    )
    tree.put("proc/self/cgroup", "0::/")
    tree.put("sys/fs/cgroup/memory.max", "max")
    tree.put("sys/fs/cgroup/cpu.max", "max 100000")
    tree.put("sys/fs/cgroup/pids.max", "max")
    tree.drop("proc/1")
    tree.drop("proc/700")
    tree.process(1, 0, "bash")
    tree.process(20, 1, "torchrun", HOME="/root")
    tree.process(21, 20, "python3", RANK="0", WORLD_SIZE="8", TORCHELASTIC_RUN_ID="a")
    tree.drop("sys/class/net/eth0")
    tree.card("eth0", physical=False, speed=10000)


def _groups_v1(tree: Tree) -> None:
    tree.put("proc/self/cgroup", "4:memory:/docker/ab\n3:cpu,cpuacct:/docker/ab\n2:pids:/docker/ab")
    here = "sys/fs/cgroup/memory/docker/ab"
    tree.put(f"{here}/memory.limit_in_bytes", 64 << 30)
    tree.put(f"{here}/memory.usage_in_bytes", 63 << 30)
    tree.put(f"{here}/memory.stat", f"total_inactive_file {58 << 30}")
    tree.put("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", 1_600_000)
    tree.put("sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us", 100_000)
    tree.put("sys/fs/cgroup/pids/docker/ab/pids.max", 30_000)
    tree.put("sys/fs/cgroup/pids/docker/ab/pids.current", 300)


def _learned(tree: Tree) -> Changes:
    del tree
    known = learned_ports()
    known["nic:eth0"] = {
        "up": True,
        "mtu": 1500,
        "speed_mbps": 100000,
        "carrier_lost": 1,
        "carrier_counted_s": NOW_S - 90_000,
    }
    known["node"] = {"processors": 64, "memory": 512 << 30, "gpudirect": "nvidia_peermem"}
    return {"baseline": known_of(known), "nodes": 4, "env": {"GLOO_SOCKET_IFNAME": "eth0"}}


def _rebooted(tree: Tree) -> Changes:
    """Counters were higher when they were learned, in an earlier boot."""
    for name in ("link_downed", "symbol_error"):
        tree.put(f"{IB}/mlx5_0/ports/1/counters/{name}", 2)
    known = learned_ports()
    known["nic:mlx5_0"] |= {"link_downed": 200, "symbol_error": 1, "counted_s": NOW_S - 30 * 86_400}
    return {"baseline": known_of(known)}


def _unused_port(tree: Tree) -> Changes:
    tree.port("mlx5_3", state="1: DOWN", phys_state="3: Disabled")
    known = learned_ports()
    del known["nic:mlx5_3"]
    return {"baseline": known_of(known)}


def _excluded_port(tree: Tree) -> Changes:
    tree.port("mlx5_3", "Ethernet", state="4: ACTIVE", lid="0x0", rate="25 Gb/sec (1X EDR)")
    for index in (1, 3):
        tree.drop(f"{IB}/mlx5_3/ports/1/gids/{index}")
    return {"env": {"NCCL_IB_HCA": "mlx5_0,mlx5_1,mlx5_2"}}


def _roce(tree: Tree) -> None:
    for number in range(4):
        tree.drop(f"{IB}/mlx5_{number}")
        tree.port(f"mlx5_{number}", "Ethernet", lid="0x0", rate="100 Gb/sec (4X EDR)")


def _hdr100(tree: Tree) -> None:
    for number in range(4):
        tree.port(f"mlx5_{number}", rate="100 Gb/sec (2X HDR)")


def _renamed(tree: Tree) -> Changes:
    """The same cards, probed in another order."""
    for number in range(4):
        tree.put(f"{IB}/mlx5_{number}/node_guid", f"0800:2711:2233:{3 - number:04x}")
    known = learned_ports()
    known["nic:mlx5_0"] |= {"rate": "400 Gb/sec (4X NDR)"}
    return {"baseline": known_of(known)}


def _switch_upgraded(tree: Tree) -> Changes:
    """Each link went down once in a month."""
    for number in range(4):
        tree.put(f"{IB}/mlx5_{number}/ports/1/counters/link_downed", 1)
    known = learned_ports()
    for facts in known.values():
        facts["counted_s"] = NOW_S - 5 * 86_400
    return {"baseline": known_of(known)}


def _boot_flaps(tree: Tree) -> None:
    for number in range(4):
        tree.put(f"{IB}/mlx5_{number}/ports/1/counters/link_downed", 4)
        tree.put(f"{IB}/mlx5_{number}/ports/1/counters/symbol_error", 6)


def _dmabuf(tree: Tree) -> Changes:
    tree.drop("sys/module/nvidia_peermem")
    tree.gpus(kind="Open Kernel Module")
    return {"nodes": 2, "env": {"GLOO_SOCKET_IFNAME": "eth0"}}


def _geforce(tree: Tree) -> Changes:
    tree.drop("sys/module/nvidia_peermem")
    tree.gpus("NVIDIA GeForce RTX 4090")
    return {"nodes": 2, "env": {"GLOO_SOCKET_IFNAME": "eth0"}}


def _one_node_no_peermem(tree: Tree) -> None:
    tree.drop("sys/module/nvidia_peermem")


def _bond(tree: Tree) -> Changes:
    tree.card("bond0", physical=False, speed=200000)
    tree.card("eth1")
    tree.routes("bond0")
    tree.put("sys/class/net/bond0/bonding/slaves", "eth0 eth1")
    for name in ("eth0", "eth1"):
        tree.put(f"sys/class/net/{name}/bonding_slave/mii_status", "up")
    return {"baseline": known_of({"nic:bond0": {"up": True, "mtu": 1500, "members": "eth0,eth1"}})}


def _spare_card(tree: Tree) -> None:
    """Cards without a cable, one of them not set up."""
    tree.card("eth1", carrier=0, operstate="down", speed=-1, duplex="unknown")
    tree.card("eth2", flags="0x1002", operstate="down", speed=-1)
    tree.drop("sys/class/net/eth2/carrier")


def _many_virtual(tree: Tree) -> None:
    for name in ("docker0", "cni0", "virbr0", "veth12ab", "flannel.1"):
        tree.card(name, physical=False, carrier=0 if name in ("docker0", "virbr0") else 1, speed=-1)
    tree.routes("eth0", "docker0", "cni0", "flannel.1")


def _ipoib(tree: Tree) -> Changes:
    tree.card("ib0", mtu=2044, speed=-1)
    tree.routes("eth0", "ib0")
    return {"env": {"NCCL_SOCKET_IFNAME": "ib", "NCCL_IB_DISABLE": "0"}}


def _mounts(*lines: str) -> Callable[[Tree], None]:
    def vary(tree: Tree) -> None:
        tree.mounts(*lines)
        for line in lines:
            path = line.split()[2].lstrip("/")
            tree.put(f"{path}/.keep", "")

    return vary


def _laptop(tree: Tree) -> None:
    _no_rdma(tree)
    for policy in range(4):
        here = f"sys/devices/system/cpu/cpufreq/policy{policy}"
        tree.put(f"{here}/scaling_governor", "powersave")
        tree.put(f"{here}/scaling_driver", "intel_pstate")


def _huge(tree: Tree) -> None:
    tree.put("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", 64)
    tree.put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", 1024)


def _swap_of_old(tree: Tree) -> None:
    """Much lies in swap, and nobody asks for it."""
    tree.memory(SwapFree=2 << 20)


def _grace(tree: Tree) -> None:
    """Memory nodes of accelerators: without processors, some without memory."""
    for number in range(2, 10):
        here = f"sys/devices/system/node/node{number}"
        tree.put(f"{here}/cpulist", "")
        tree.put(f"{here}/meminfo", f"Node {number} MemTotal:       {(96 << 20) if number < 4 else 0} kB")


def _others_train(tree: Tree) -> None:
    """A training of somebody else, and one of Holdfast, both with their launchers; a rank under Slurm."""
    rank = {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}
    tree.process(4000, 1, "torchrun")
    tree.process(4001, 4000, "python3", **rank)
    tree.process(4100, 1, "python3")
    tree.put("proc/4100/cmdline", "python3\0-c\0import sys; from reaper.loop import main; main()")
    tree.process(4101, 4100, "python3", HOLDFAST_JOB="now", **rank)
    tree.process(4300, 1, "python3", RANK="0", WORLD_SIZE="2", MASTER_ADDR="a")  # from a shell that ended
    tree.process(4200, 1, "python3", SLURM_JOB_ID="7", **rank)
    for pid in range(5000, 5020):
        tree.process(pid, 700, "sh", "Z")


def _old_faults(tree: Tree) -> Changes:
    """What the log tells is older than the last good run."""
    tree.kernel(
        "INFO: task python3:4242 blocked for more than 122 seconds.",
        "Memory cgroup out of memory: Killed process 629 (python) total-vm:9kB, anon-rss:9kB, file-rss:0kB",
        at_s=1000.0,
    )
    return {"good_s": NOW_S - 86_400}


def _noisy_log(tree: Tree) -> None:
    """Words that frighten and mean nothing."""
    tree.kernel(
        "ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PCI0], AE_NOT_FOUND (20230628/psargs-330)",
        "mlx5_core 0000:3b:00.0: mlx5_cmd_out_err:838:(pid 268269): ACCESS_REG(0x805) op_mod(0x1) failed",
        "pcieport 0000:00:1c.5: PCIe Bus Error: severity=Corrected, type=Physical Layer, id=00e5(Receiver ID)",
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0",
        "python3[4242]: segfault at 0 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in app.so[7f7c7ac00000+d3d3000]",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
        "Memory cgroup out of memory: Killed process 629 (python) total-vm:9kB, anon-rss:9kB, file-rss:0kB",
        at_s=1000.0,
    )


def _remote_checkpoint(tree: Tree) -> Changes:
    """An address that was taken for a folder."""
    del tree
    return {"folders": {"checkpoint": "/home/me/s3:/bucket/run"}}


def _no_run(tree: Tree) -> Changes:
    """Asked by hand, of no run."""
    del tree
    return {"ranks": None, "loader_workers": None, "folders": {}, "context": MANUAL}


SOUND = (
    Sound("eight GPUs, four InfiniBand ports", lambda _: None),
    Sound("the same, learned, in a run over four nodes", _learned),
    Sound("learned in an earlier boot", _rebooted),
    Sound("virtual machine without kernel log", _vm),
    Sound("container with an overlay root", _container),
    Sound("control groups of version 1, full of cache", _groups_v1),
    Sound("no RDMA, one Ethernet card", _no_rdma),
    Sound("RoCE", _roce),
    Sound("HDR100: two lanes are all there are", _hdr100),
    Sound("a port that was never used", _unused_port),
    Sound("a storage port that the run excludes", _excluded_port),
    Sound("cards probed in another order", _renamed),
    Sound("a switch was upgraded", _switch_upgraded),
    Sound("links that went up and down at boot", _boot_flaps),
    Sound("GPUDirect by dmabuf", _dmabuf),
    Sound("GPUs that cannot do GPUDirect", _geforce),
    Sound("one node without peermem", _one_node_no_peermem),
    Sound("two cards bonded", _bond),
    Sound("cards without cable", _spare_card),
    Sound("bridges and containers' interfaces", _many_virtual),
    Sound("IP over InfiniBand", _ipoib),
    Sound("NFS and Lustre", _mounts("nfs4 filer:/home /home", "lustre 10.0.0.1@o2ib:/fs /scratch")),
    Sound(
        "ZFS, tmpfs on /tmp, FUSE",
        _mounts("zfs tank/data /data", "tmpfs tmpfs /tmp", "fuse.sshfs me@x: /mnt/x"),
    ),
    Sound("autofs that nobody has used", _mounts("autofs systemd-1 /net")),
    Sound("no cpufreq", lambda tree: tree.drop("sys/devices/system/cpu/cpufreq")),
    Sound("powersave of a driver that scales", _laptop),
    Sound("huge pages in use", _huge),
    Sound("old pages in swap", _swap_of_old),
    Sound("memory nodes of accelerators", _grace),
    Sound("others train here", _others_train),
    Sound("faults before the last good run", _old_faults),
    Sound("a log that only frightens", _noisy_log),
    Sound("checkpoints in an object store", _remote_checkpoint),
    Sound("asked by hand, of no run", _no_run),
)
