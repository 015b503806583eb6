"""Checks RDMA ports: that they are active, have the data rate of the baseline, and an address that NCCL
can use.
"""

from collections.abc import Iterator

from holdfast.checks.readers.infiniband import pci_address, ports
from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.node_findings import skipped, warned
from holdfast.core.checks.rdma import (
    ETHERNET,
    INFINIBAND,
    ROCE_V2,
    Port,
    gbps_and_lanes,
    is_wanted,
    judge_gids,
    judge_port,
    missing_devices,
)
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    EPILOG,
    MANUAL,
    ON_FAILURE,
    PROLOG,
    RULE,
    Fact,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

NO_DEVICE = "there is no RDMA device"


def look_at_ports(scene: Scene) -> Iterator[Seen]:
    files = NodeFiles(scene)
    found = ports(files)
    missing = _missing(files, found, scene)
    yield from missing
    if not found and not missing:
        yield skipped(NO_DEVICE)
    for port in found:
        yield from judge_port(port, scene.baseline, scene.env, scene.nodes)
        if port.is_active:
            yield from _facts(port, pci_address(files, port.device))
    yield from _none_is_up(found, scene)


def _missing(files: NodeFiles, found: tuple[Port, ...], scene: Scene) -> list[Finding]:
    addresses = {str(scene.baseline.of(key, "pci") or "") for key in scene.baseline.devices("nic")}
    on_bus = {address: files.exists(f"/sys/bus/pci/devices/{address}") for address in addresses if address}
    return missing_devices(found, on_bus, scene.baseline, scene.env, scene.nodes)


def _facts(port: Port, address: str) -> Iterator[Fact]:
    learned: dict[str, str | int | float] = {
        "rate": port.rate,
        "layer": port.layer,
        "guid": port.guid,
        "port": port.number,
        "pci": address,
        "pcie_width": port.pcie_width,
        "pcie_speed": port.pcie_speed,
    }
    for name, value in learned.items():
        if value:
            yield Fact(name=name, value=value, device=port.key, learn=True)
    gbps, _ = gbps_and_lanes(port.rate)
    if gbps:
        yield Fact(
            name="rate",
            value=gbps,
            device=f"port:{port.name}",
            peers=True,
            model=f"{port.model} {port.name}",
            unit="Gb/s",
        )


def _none_is_up(found: tuple[Port, ...], scene: Scene) -> Iterator[Finding]:
    """Yields a warning if a run over several nodes asks for InfiniBand, no port is active, and no baseline
    says what was.
    """
    wanted = [port for port in found if port.layer == INFINIBAND and is_wanted(port, scene.env)]
    is_new = not any(scene.baseline.of(port.key, "rate") for port in found)
    if wanted and is_new and scene.nodes > 1 and not any(port.is_active for port in found):
        yield warned(
            f"none of {len(wanted)} InfiniBand ports is active",
            "an active port",
            RULE,
            why="no RDMA port is active, so a training over several nodes would use TCP, which is slower",
            en=(
                "Check cables and the subnet manager (`ibstat`); set NCCL_IB_DISABLE=1 if no RDMA is "
                "intended."
            ),
            zh="请检查线缆与子网管理器（`ibstat`）；若本就不使用 RDMA，请设置 NCCL_IB_DISABLE=1。",
            category="nic_down",
        )


def look_at_addresses(scene: Scene) -> Iterator[Seen]:
    found = [port for port in ports(NodeFiles(scene), with_gids=True) if port.is_active]
    wanted = [port for port in found if is_wanted(port, scene.env)]
    if not wanted:
        yield skipped("no RDMA port that NCCL would use is active" if found else "no RDMA port is active")
        return
    index = scene.env.get("NCCL_IB_GID_INDEX", "")
    for port in wanted:
        yield judge_gids(port, scene.env, scene.nodes)
    roce = next((port for port in wanted if port.layer == ETHERNET), None)
    if roce is not None and index:
        kind = next((f"{gid.kind} {gid.family}" for gid in roce.gids if str(gid.index) == index), "empty")
        yield Fact(name=f"GID at NCCL_IB_GID_INDEX={index}", value=kind, same=True)
    elif roce is not None:
        version = ROCE_V2 if any(gid.kind == ROCE_V2 for gid in roce.gids) else "RoCE v1"
        yield Fact(name="RoCE version", value=version, same=True)


CHECKS = (
    Check(
        Spec(
            name="rdma-ports",
            area="rdma",
            what=Words(
                en="RDMA ports are active and have the data rate of the baseline",
                zh="RDMA 端口是否在线、速率是否与基线一致",
            ),
            contexts=(BOOT, PROLOG, EPILOG, CONTINUOUS, ON_FAILURE, MANUAL),
            quick=True,
            hang_advice=Words(
                en=(
                    "The network card does not respond to its driver: it is broken or resetting. Check the "
                    "kernel log for lines of mlx5."
                ),
                zh="网卡对驱动无响应，可能已损坏或正在复位：请查看内核日志中的 mlx5 相关行。",
            ),
        ),
        look_at_ports,
    ),
    Check(
        Spec(
            name="rdma-gid",
            area="rdma",
            what=Words(
                en="addresses of RDMA ports (GID and RoCE version)", zh="RDMA 端口地址（GID 与 RoCE 版本）"
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_addresses,
    ),
)
