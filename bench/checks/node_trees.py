"""A made-up node for the check benches: /proc, /sys and /dev of a sound one in a folder, and how to break it."""

from collections.abc import Mapping
from pathlib import Path

from holdfast.model.checks import Baseline, Scene

NOW_S = 2_000_000_000.0
UPTIME_S = 500_000.0
GID = {
    0: ("fe80:0000:0000:0000:0a00:27ff:fe11:2233", "IB/RoCE v1"),
    1: ("fe80:0000:0000:0000:0a00:27ff:fe11:2233", "RoCE v2"),
    2: ("0000:0000:0000:0000:0000:ffff:0a4d:0001", "IB/RoCE v1"),
    3: ("0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2"),
}
COUNTERS = (
    "link_downed",
    "link_error_recovery",
    "symbol_error",
    "local_link_integrity_errors",
    "port_rcv_errors",
)
KERNEL = (
    "6,1,0,-;Linux version 6.8.0-45-generic (buildd@host) #45-Ubuntu SMP",
    "6,2,1000000,-;pci 0000:3b:00.0: enabling Extended Tags",
    "6,3,2000000,-;mlx5_core 0000:3b:00.0: firmware version: 28.39.1002",
    "4,4,9000000,-;EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode",
)
STATUS = "Name:\tpython3\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-63\n"


class Tree:
    """The files of one node below `root`. Whatever is put replaces what was there."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, text: str | int) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{text}\n")

    def link(self, path: str, target: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target)

    def drop(self, path: str) -> None:
        """A file, or a folder with all in it."""
        place = self.root / path
        if place.is_dir() and not place.is_symlink():
            for child in list(place.iterdir()):
                self.drop(f"{path}/{child.name}")
            place.rmdir()
        else:
            place.unlink(missing_ok=True)

    # What a node has

    def card(self, name: str, *, physical: bool = True, **values: str | int) -> None:
        here = f"sys/class/net/{name}"
        sound = {
            "flags": "0x1003",
            "operstate": "up",
            "carrier": 1,
            "mtu": 1500,
            "speed": 100000,
            "duplex": "full",
            "carrier_down_count": 1,
        }
        for key, value in {**sound, **values}.items():
            self.put(f"{here}/{key}", value)
        for key in ("rx_packets", "tx_packets"):
            self.put(f"{here}/statistics/{key}", 50_000_000)
        for key in ("rx_crc_errors", "rx_missed_errors", "tx_carrier_errors"):
            self.put(f"{here}/statistics/{key}", 0)
        if physical:
            self.link(f"{here}/device", f"../../../0000:3b:00.0-{name}")

    def routes(self, *names: str) -> None:
        lines = ["Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT"]
        lines += [f"{name}\t00004D0A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0" for name in names]
        self.put("proc/net/route", "\n".join(lines))

    def port(self, device: str, layer: str = "InfiniBand", **values: str | int) -> None:
        """An RDMA device with one port."""
        here = f"sys/class/infiniband/{device}"
        number = int(device.rpartition("_")[2])
        self.put(f"{here}/node_guid", f"0800:2711:2233:{number:04x}")
        self.put(f"{here}/hca_type", "MT4129")
        address = f"0000:{0x3B + number:02x}:00.0"
        self.put(f"sys/devices/pci0000:3a/{address}/current_link_width", 16)
        self.put(f"sys/devices/pci0000:3a/{address}/current_link_speed", "32.0 GT/s PCIe")
        self.link(f"{here}/device", f"../../../devices/pci0000:3a/{address}")
        self.put(f"sys/bus/pci/devices/{address}", "")
        sound = {
            "state": "4: ACTIVE",
            "phys_state": "5: LinkUp",
            "rate": "400 Gb/sec (4X NDR)",
            "link_layer": layer,
            "lid": "0x12",
        }
        for key, value in {**sound, **values}.items():
            self.put(f"{here}/ports/1/{key}", value)
        for name in COUNTERS:
            self.put(f"{here}/ports/1/counters/{name}", 0)
        for index, (gid, kind) in GID.items() if layer == "Ethernet" else ():
            self.put(f"{here}/ports/1/gids/{index}", gid)
            self.put(f"{here}/ports/1/gid_attrs/types/{index}", kind)

    def gpus(self, model: str = "NVIDIA H100 80GB HBM3", kind: str = "Kernel Module") -> None:
        self.put(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX x86_64 {kind}  535.104.05  Sat Aug 19 2023",
        )
        self.put("proc/driver/nvidia/gpus/0000:5d:00.0/information", f"Model: \t\t {model}\nIRQ:   \t\t 42")

    def process(self, pid: int, parent: int, name: str, state: str = "S", **env: str) -> None:
        self.put(f"proc/{pid}/stat", f"{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 4194304")
        self.put(f"proc/{pid}/cmdline", name)
        self.put(f"proc/{pid}/environ", "\0".join(f"{key}={value}" for key, value in env.items()))

    def kernel(self, *lines: str, at_s: float = 400_000.0) -> None:
        """The log, with these lines at its end."""
        records = [*KERNEL]
        records += [
            f"4,{100 + number},{int(at_s * 1e6) + number},-;{line}" for number, line in enumerate(lines)
        ]
        self.put("dev/kmsg", "\n".join(records))

    def memory(self, **kib: int) -> None:
        sound = {
            "MemTotal": 512 << 20,
            "MemAvailable": 400 << 20,
            "SwapTotal": 8 << 20,
            "SwapFree": 8 << 20,
            "SwapCached": 0,
        }
        self.put("proc/meminfo", "\n".join(f"{name}: {value} kB" for name, value in {**sound, **kib}.items()))

    def mounts(self, *more: str) -> None:
        """`more`: "kind source path", of which each is mounted there."""
        lines = ["20 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw"]
        for number, line in enumerate(more, 30):
            kind, source, path = line.split()
            lines.append(f"{number} 20 0:{number} / {path} rw,relatime - {kind} {source} rw")
        self.put("proc/self/mountinfo", "\n".join(lines))


def sound_node(root: Path) -> Tree:
    """Two sockets, 512 GiB, an Ethernet card, four InfiniBand ports, GPUs with GPUDirect."""
    tree = Tree(root)
    tree.put("proc/uptime", f"{UPTIME_S:.2f} 1.00")
    tree.put("proc/sys/kernel/osrelease", "6.8.0-45-generic")
    tree.put("proc/sys/kernel/numa_balancing", 1)
    tree.put("proc/self/cgroup", "0::/")
    tree.put("proc/self/status", STATUS)
    tree.put("proc/self/uid_map", "0 0 4294967295")
    tree.put("proc/pressure/memory", "some avg10=0.00 avg60=0.10 total=1\nfull avg10=0.00 avg60=0.00 total=1")
    tree.put("proc/net/snmp", "Tcp: OutSegs RetransSegs\nTcp: 90000000 9000")
    tree.put("proc/net/if_inet6", "00000000000000000000000000000001 01 80 10 80       lo")
    tree.put("sys/devices/system/cpu/online", "0-63")
    for policy in range(4):
        here = f"sys/devices/system/cpu/cpufreq/policy{policy}"
        for key, value in (("scaling_governor", "performance"), ("scaling_driver", "acpi-cpufreq")):
            tree.put(f"{here}/{key}", value)
    for number in (0, 1):
        here = f"sys/devices/system/node/node{number}"
        tree.put(f"{here}/cpulist", f"{32 * number}-{32 * number + 31}")
        tree.put(f"{here}/meminfo", f"Node {number} MemTotal:       268435456 kB")
    tree.put("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", 0)
    tree.put("dev/shm/keep", "")
    tree.drop("dev/shm/keep")
    tree.memory()
    tree.mounts()
    tree.kernel()
    tree.process(1, 0, "systemd")
    tree.process(700, 1, "slurmd")
    tree.card("lo", physical=False, speed=0)
    tree.card("eth0")
    tree.routes("eth0")
    for number in range(4):
        tree.port(f"mlx5_{number}")
    tree.gpus()
    tree.put("sys/module/nvidia_peermem/refcnt", 0)
    return tree


def scene_of(tree: Tree, folder: Path, **changes: object) -> Scene:
    """A run of 8 ranks with two loader workers each, on one node. `folder`: a real one, for its files."""
    work = folder / "run"
    work.mkdir(exist_ok=True)
    values: dict[str, object] = {
        "root": str(tree.root),
        "host": "localhost",
        "now_s": NOW_S,
        "ranks": 8,
        "loader_workers": 2,
        "env": {},
        "folders": {"work": str(work), "checkpoint": str(work / "ckpt"), "temporary": str(folder)},
        "context": "boot",
    }
    return Scene(**{**values, **changes})  # type: ignore[arg-type]


def known_of(facts: Mapping[str, Mapping[str, object]]) -> Baseline:
    """As if learned a day ago, in this boot."""
    return Baseline(facts={key: dict(values) for key, values in facts.items()})


def learned_ports(count: int = 4, layer: str = "InfiniBand") -> dict[str, dict[str, object]]:
    """What a good boot teaches of the ports of `sound_node`."""
    return {
        f"nic:mlx5_{number}": {
            "rate": "400 Gb/sec (4X NDR)",
            "layer": layer,
            "guid": f"0800:2711:2233:{number:04x}",
            "port": 1,
            "pci": f"0000:{0x3B + number:02x}:00.0",
            "pcie_width": 16,
            "pcie_speed": "32.0 GT/s PCIe",
            **dict.fromkeys(COUNTERS, 0),
            "counted_s": NOW_S - 86_400,
        }
        for number in range(count)
    }
