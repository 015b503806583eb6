"""Judges RDMA ports: state, rate, addresses, and direct access to GPU memory. Pure.

sources: Linux, Documentation/ABI/stable/sysfs-class-infiniband; NCCL, environment variables NCCL_IB_* and
src/transport/net_ib (choice of the GID index)
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.checks.node_findings import failed, passed, skipped, warned
from holdfast.late_pattern import late
from holdfast.model.checks import (
    ASKED,
    BASELINE,
    DEVICE_FAULT,
    FAIL,
    NO_FAULT,
    RULE,
    WARN,
    Baseline,
    Finding,
)
from holdfast.model.signatures import Words

ACTIVE, INITIALIZED = "ACTIVE", "INIT"
INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
ROCE_V2 = "RoCE v2"
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_RATE = late(r"([\d.]+) Gb/sec(?: \((\d+)X)?")
# GPUs of these families cannot be read by other devices on the bus.
_NO_DIRECT = late(r"GeForce|TITAN", re.IGNORECASE)
DMABUF_KERNEL = (5, 12)


class Gid(Struct, frozen=True):
    """One entry of a port's GID table. `kind`: "IB/RoCE v1" or "RoCE v2"."""

    index: int
    address: str
    kind: str = ""

    @property
    def family(self) -> str:
        """Returns the kind of address: IPv4, IPv6, link-local, or raw (an InfiniBand address)."""
        try:
            address = ipaddress.IPv6Address(self.address)
        except ValueError:
            return "raw"
        if address.ipv4_mapped is not None:
            return "IPv4"
        return "link-local" if address.is_link_local else "IPv6"

    @property
    def shown(self) -> str:
        """Returns the GID table entry as text: its kind and address."""
        try:
            mapped = ipaddress.IPv6Address(self.address).ipv4_mapped
        except ValueError:
            mapped = None
        return f"{self.kind or 'GID'} {mapped or self.address}"


class Port(Struct, frozen=True, kw_only=True):
    """A port of an RDMA device. `state`: ACTIVE, DOWN, INIT, ...; `physical`: LinkUp, Polling, Disabled.

    `rate`: "400 Gb/sec (4X NDR)". `pcie_width`: lanes in use; 0 if unknown. `gids`: empty if not read.
    """

    device: str
    number: int
    state: str
    physical: str = ""
    rate: str = ""
    layer: str = ""
    lid: int | None = None
    guid: str = ""
    model: str = ""
    pcie_width: int = 0
    pcie_speed: str = ""
    gids: tuple[Gid, ...] = ()

    @property
    def name(self) -> str:
        """Returns the port's name: the device, and the port number if it is not 1."""
        return self.device if self.number == 1 else f"{self.device}/{self.number}"

    @property
    def key(self) -> str:
        """Returns the port's key in facts and in the baseline."""
        return f"nic:{self.name}"

    @property
    def is_active(self) -> bool:
        return self.state == ACTIVE


def gbps_and_lanes(rate: str) -> tuple[float, int]:
    """Parses a port rate: (400.0, 4) for "400 Gb/sec (4X NDR)"; zeros for missing values."""
    found = _RATE.match(rate)
    return (float(found[1]), int(found[2] or 0)) if found else (0.0, 0)


def learned_key(port: Port, baseline: Baseline) -> str:
    """Returns the port's key in the baseline, which is found by GUID, because names depend on the order of probing."""
    if port.guid:
        for key in baseline.devices("nic"):
            if baseline.of(key, "guid") == port.guid and baseline.of(key, "port") == port.number:
                return key
        if baseline.of(port.key, "guid") not in (None, port.guid):
            return ""  # another device has this name now
    return port.key


def is_wanted(port: Port, env: Mapping[str, str]) -> bool:
    """Returns whether NCCL may use the port, by NCCL_IB_DISABLE and NCCL_IB_HCA ("mlx5", "=mlx5_0:1,mlx5_1",
    "^mlx5_3").
    """
    if env.get("NCCL_IB_DISABLE", "0") not in ("", "0"):
        return False
    text = env.get("NCCL_IB_HCA", "")
    excludes, exact = text.startswith("^"), "=" in text[:2]
    names = [name for name in text.lstrip("^=").split(",") if name]
    if not names:
        return True
    return any(_named(port, name, exact) for name in names) != excludes


def _named(port: Port, name: str, exact: bool) -> bool:
    device, has_number, number = name.partition(":")
    is_device = port.device == device if exact else port.device.startswith(device)
    return is_device and (not has_number or number == str(port.number))


def judge_port(port: Port, baseline: Baseline, env: Mapping[str, str], nodes: int) -> list[Finding]:
    """Returns findings about a port: its state first; rate, lanes and PCIe only if it is up.

    `nodes`: number of nodes of the run; a run on a single node does not need the port. A port that was never up is no fault.
    """
    key = learned_key(port, baseline)
    was_up = bool(key) and baseline.of(key, "rate") is not None
    if not port.is_active:
        return [_not_active(port, was_up, is_wanted(port, env), nodes)]
    findings = _slower(port, key, baseline) if was_up else []
    return findings or [passed(f"up, {port.rate}, {port.layer}", port.name)]


def _not_active(port: Port, was_up: bool, wanted: bool, nodes: int) -> Finding:
    state = f"{port.state}, {port.physical}" if port.physical else port.state
    if not was_up:
        return passed(f"{state}; never up, so it is not expected to be", port.name)
    if port.state == INITIALIZED:
        return warned(
            state,
            "ACTIVE",
            BASELINE,
            device=port.name,
            why="the port waits for the subnet manager of the fabric",
            en="Check whether a subnet manager runs on the fabric (`sminfo`) and whether it knows this port.",
            zh="检查网络中是否有子网管理器在运行（`sminfo`），以及它是否识别该端口。",
            category="nic_down",
        )
    # "Disabled" means switched off for InfiniBand; for Ethernet also a cable without light.
    is_off = port.physical == "Disabled" and port.layer == INFINIBAND
    return Finding(
        status=FAIL if wanted else WARN,
        measured=state,
        expected="ACTIVE, as at the first good boot",
        whence=BASELINE,
        device=port.name,
        why=f"the RDMA port {port.name} was up and is down now",
        advice=Words(
            en=f"Check cable, transceiver and switch port of {port.name} (`ibstat`, `mlxlink -d {port.device}`); "
            "keep the node out until it is up.",
            zh=f"检查 {port.name} 的线缆、光模块与交换机端口（`ibstat`、`mlxlink -d {port.device}`）；恢复前请隔离该节点。",
        ),
        fault=DEVICE_FAULT if wanted and nodes > 1 and not is_off else NO_FAULT,
        category="nic_down",
    )


def _slower(port: Port, key: str, baseline: Baseline) -> list[Finding]:
    found = []
    before, now = str(baseline.of(key, "rate")), port.rate
    (gbps_before, lanes_before), (gbps, lanes) = gbps_and_lanes(before), gbps_and_lanes(now)
    if 0 < gbps < gbps_before or 0 < lanes < lanes_before:
        found.append(
            warned(
                now,
                before,
                BASELINE,
                device=port.name,
                why=f"the port {port.name} runs at {gbps:g} Gb/s, {gbps / max(gbps_before, gbps, 1.0):.0%} of what was learned",
                en=f"Reseat or replace the cable of {port.name}, and check the error counters of the port at both ends.",
                zh=f"重新插拔或更换 {port.name} 的线缆，并检查两端端口的错误计数。",
                category="straggler",
            )
        )
    layer = baseline.of(key, "layer")
    if layer and port.layer and layer != port.layer:
        found.append(
            warned(
                port.layer,
                str(layer),
                BASELINE,
                device=port.name,
                why=f"the link layer of {port.name} has changed",
                en="Set the port type back (`mlxconfig`), or learn a new baseline with `holdfast check --baseline reset`.",
                zh="用 `mlxconfig` 恢复端口类型，或用 `holdfast check --baseline reset` 重新学习。",
                category="nccl_network_error",
            )
        )
    return found + _narrower_slot(port, key, baseline)


def _narrower_slot(port: Port, key: str, baseline: Baseline) -> list[Finding]:
    width, speed = baseline.of(key, "pcie_width"), baseline.of(key, "pcie_speed")
    speed_now, speed_before = _gts(port.pcie_speed), _gts(str(speed or ""))
    if not (0 < port.pcie_width < (width or 0) or 0 < speed_now < speed_before):
        return []
    return [
        warned(
            f"x{port.pcie_width} at {port.pcie_speed}",
            f"x{width} at {speed}",
            BASELINE,
            device=port.name,
            why=f"the PCIe link of {port.device} is narrower or slower than at the first good boot",
            en="Reboot; if nothing changes, reseat the card or riser and inspect the slot.",
            zh="重启节点；若仍如此，请重新插拔网卡或转接卡并检查插槽。",
            category="pcie_link_downgrade",
        )
    ]


def _gts(speed: str) -> float:
    """Parses a PCIe speed: 32.0 for "32.0 GT/s PCIe"."""
    found = re.match(r"([\d.]+) GT/s", speed)
    return float(found[1]) if found else 0.0


def missing_devices(
    ports: Sequence[Port], on_bus: Mapping[str, bool], baseline: Baseline, env: Mapping[str, str], nodes: int
) -> list[Finding]:
    """Returns findings about RDMA devices in the baseline that are missing now.

    `on_bus`: by PCI address, whether the device is present on the bus.
    """
    here = {learned_key(port, baseline) for port in ports}
    found = []
    for key in baseline.devices("nic"):
        if key in here or baseline.of(key, "rate") is None:
            continue
        name, address = key.removeprefix("nic:"), str(baseline.of(key, "pci") or "")
        lost = bool(address) and on_bus.get(address) is False
        wanted = is_wanted(Port(device=name.partition("/")[0], number=1, state=""), env)
        found.append(_lost(name, address, nodes) if lost and wanted else _unseen(name))
    return found


def _lost(name: str, address: str, nodes: int) -> Finding:
    return failed(
        "not there",
        f"{name} at {address}",
        BASELINE,
        device=name,
        why=f"the network card {name} is no longer on the PCIe bus",
        en="Power-cycle the node; if the card is still missing, reseat or replace it.",
        zh="对节点断电重启；若网卡仍不出现，请重新插拔或更换。",
        fault=DEVICE_FAULT if nodes > 1 else NO_FAULT,
        category="nic_down",
    )


def _unseen(name: str) -> Finding:
    return warned(
        "not there",
        name,
        BASELINE,
        device=name,
        why=f"the RDMA device {name} was present at the first good boot and is missing now",
        en="Check whether its driver is loaded (`lsmod`, `rdma link`) and whether it was assigned to a container.",
        zh="检查其驱动是否已加载（`lsmod`、`rdma link`），以及是否已分配给其他容器。",
        category="nic_down",
    )


def judge_gids(port: Port, env: Mapping[str, str], nodes: int) -> Finding:
    """Returns the finding on whether the port has an address of the kind that NCCL would choose."""
    if port.layer == INFINIBAND:
        return _infiniband_address(port)
    usable = [gid for gid in port.gids if gid.address not in ("", NO_GID)]
    wanted = env.get("NCCL_IB_GID_INDEX", "")
    if wanted.isascii() and wanted.isdigit():
        return _at_index(port, usable, int(wanted), nodes)
    if not any(gid.kind == ROCE_V2 for gid in usable):
        kinds = sorted({gid.kind for gid in usable}) or ["no address"]
        return warned(
            ", ".join(kinds),
            "an address of RoCE v2",
            RULE,
            device=port.name,
            why=f"{port.name} has no RoCE v2 address, so NCCL cannot use it to reach other nodes across a router",
            en="Give its network interface an IP address, and check it with `show_gids` or in /sys/class/infiniband.",
            zh="为对应网口配置 IP 地址，并用 `show_gids` 或 /sys/class/infiniband 核对。",
            category="nccl_config_error",
        )
    best = chosen_gid(usable)
    return passed(f"index {best.index}: {best.shown}", port.name)


def chosen_gid(usable: Sequence[Gid]) -> Gid:
    """Returns the GID that NCCL uses by default (2.21 and later): RoCE v2 over IPv4, else over IPv6, the
    first of its kind.
    """
    order = ("IPv4", "IPv6", "link-local", "raw")
    return min(usable, key=lambda gid: (gid.kind != ROCE_V2, order.index(gid.family), gid.index))


def _infiniband_address(port: Port) -> Finding:
    if port.lid == 0:
        return warned(
            "LID 0",
            "a LID",
            RULE,
            device=port.name,
            why=f"the subnet manager gave {port.name} no address",
            en="Check the subnet manager and its log; restart it if other ports lack a LID too.",
            zh="检查子网管理器及其日志；若其他端口也没有 LID，请重启它。",
            category="nccl_network_error",
        )
    return passed(f"LID {port.lid}" if port.lid is not None else "InfiniBand", port.name)


def _at_index(port: Port, usable: Sequence[Gid], index: int, nodes: int) -> Finding:
    found = next((gid for gid in usable if gid.index == index), None)
    if found is not None and found.kind in (ROCE_V2, ""):
        return passed(f"index {index}: {found.shown}", port.name)
    v2 = next((gid for gid in usable if gid.kind == ROCE_V2 and gid.family == "IPv4"), None)
    advice = f"NCCL_IB_GID_INDEX={v2.index}" if v2 else "the index of a RoCE v2 address (`show_gids`)"
    what = failed if found is None and nodes > 1 else warned
    return what(
        found.shown if found else "no address",
        f"a RoCE v2 address at index {index}",
        ASKED,
        device=port.name,
        why=f"NCCL_IB_GID_INDEX={index} names {'an address of RoCE v1' if found else 'an empty entry'} of {port.name}",
        en=f"Unset NCCL_IB_GID_INDEX, or set {advice}.",
        zh=f"取消 NCCL_IB_GID_INDEX，或设置为 {advice}。",
        category="nccl_config_error",
    )


class Direct(Struct, frozen=True, kw_only=True):
    """What decides whether a node can use GPUDirect RDMA, and by which kernel interface (nvidia_peermem, dma-buf).

    `peermem`: that module is loaded. `driver`: first line of /proc/driver/nvidia/version. `kernel`: its version.
    """

    peermem: bool
    driver: str
    kernel: tuple[int, int]
    models: tuple[str, ...] = ()

    @property
    def way(self) -> str:
        """Returns the kernel interface that GPUDirect RDMA uses: "nvidia_peermem", "dmabuf" or "none"."""
        if self.peermem:
            return "nvidia_peermem"
        return "dmabuf" if "Open Kernel Module" in self.driver and self.kernel >= DMABUF_KERNEL else "none"


def judge_direct(direct: Direct, learned_way: str, env: Mapping[str, str], nodes: int) -> Finding:
    """Returns the finding on GPUDirect RDMA.

    Without it, all data goes through host memory, which is slow but correct.
    """
    if direct.way != "none":
        return passed(direct.way)
    if direct.models and all(_NO_DIRECT.search(model) for model in direct.models):
        return skipped(f"{direct.models[0]} has no GPUDirect RDMA")
    if env.get("NCCL_NET_GDR_LEVEL", "") in ("0", "LOC"):
        return skipped("the run disables GPUDirect RDMA (NCCL_NET_GDR_LEVEL)")
    if nodes < 2 and learned_way in ("", "none"):
        return passed("none; a run on one node needs none")
    return warned(
        "neither nvidia_peermem nor dmabuf",
        learned_way if learned_way not in ("", "none") else "one of both",
        BASELINE if learned_way not in ("", "none") else RULE,
        why="without GPUDirect RDMA, all data between nodes is copied through host memory",
        en="Load the module: `modprobe nvidia_peermem`, and keep it loaded over boots (/etc/modules-load.d).",
        zh="加载模块：`modprobe nvidia_peermem`，并写入 /etc/modules-load.d 以便开机加载。",
        category="nvidia_peermem",
    )


class Counted(Struct, frozen=True, kw_only=True):
    """A counter of a port: its increase, the duration in seconds, and the starting point."""

    name: str
    more: int
    over_s: float
    since: str  # "the first good boot", "boot", "two readings"


class Limit(Struct, frozen=True):
    """The limit of a counter: a minimum total and a rate per hour, both of which must be exceeded."""

    least: int
    per_hour: float
    is_flap: bool = False


# Flaps: a link that goes down once a month, for a switch upgrade, is healthy. Errors: none should be left
# after error correction; ten an hour or more indicate a bad cable.
LIMITS = {
    "link_downed": Limit(1, 1 / 24, is_flap=True),
    "link_error_recovery": Limit(3, 1.0, is_flap=True),
    "symbol_error": Limit(10, 10.0),
    "local_link_integrity_errors": Limit(10, 10.0),
    "excessive_buffer_overrun_errors": Limit(10, 10.0),
    "port_rcv_errors": Limit(10, 10.0),
    "port_rcv_remote_physical_errors": Limit(10, 10.0),
    "rx_icrc_encapsulated": Limit(10, 10.0),
}
SINCE_BOOT = "boot"
BOOT_FLAPS = 10  # allowed since boot, because drivers, firmware and switches reset links while they start
BOOT_FLAPS_PER_HOUR = 2 / 24
NOW_LEAST = 2  # errors between two readings a second apart; a single one may be chance


def judge_counters(port: str, counted: Sequence[Counted]) -> list[Finding]:
    """Returns one finding for each counter that rose too much; of several readings the most significant."""
    found = {}
    for one in counted:
        limit = LIMITS.get(one.name)
        if limit is not None and one.name not in found and _is_too_much(one, limit):
            found[one.name] = _risen(port, one, limit)
    return list(found.values())


def _is_too_much(one: Counted, limit: Limit) -> bool:
    per_hour = one.more / max(one.over_s, 1.0) * 3600
    if one.since == SINCE_BOOT and limit.is_flap:
        return one.more >= BOOT_FLAPS and one.more / max(one.over_s, 86400.0) * 3600 >= BOOT_FLAPS_PER_HOUR
    if one.over_s < 10.0:
        return one.more >= (1 if limit.is_flap else NOW_LEAST)
    return one.more >= limit.least and per_hour >= limit.per_hour


def _risen(port: str, one: Counted, limit: Limit) -> Finding:
    minutes = max(one.over_s, 1.0) / 60
    what = "went down or recovered" if limit.is_flap else "counts errors"
    per = f"{one.more / minutes:.3g} a minute"
    expected = (
        f"less than {max(1, round(limit.per_hour * 24))} a day" if limit.is_flap else "less than 10 an hour"
    )
    return warned(
        f"{one.name} {one.more} since {one.since}, {per}",
        expected,
        RULE,
        device=port,
        why=f"the link of {port} {what}: {one.name} rose by {one.more} since {one.since}",
        en=f"Clean or replace cable and transceiver of {port}; compare with the counters of the switch port.",
        zh=f"清洁或更换 {port} 的线缆与光模块；并与交换机端口的计数对比。",
        category="nic_link_flap" if limit.is_flap else "nccl_network_error",
    )
