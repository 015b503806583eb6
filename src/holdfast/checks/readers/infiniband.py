"""Reads RDMA devices and their ports from /sys/class/infiniband, without any tool.

source: Linux, Documentation/ABI/stable/sysfs-class-infiniband
"""

from collections.abc import Iterator

from holdfast.checks.readers.node_files import NodeFiles
from holdfast.core.checks.rdma import ETHERNET, LIMITS, NO_GID, Gid, Port

FOLDER = "/sys/class/infiniband"
GIDS_MAX = 256


def ports(files: NodeFiles, *, with_gids: bool = False) -> tuple[Port, ...]:
    return tuple(_port(files, device, number, with_gids) for device, number in _numbers(files))


def counters(files: NodeFiles, device: str, number: int) -> dict[str, int]:
    """Returns the error counters of one RDMA port by name. Counters that the driver lacks are left out."""
    found = {}
    for name in LIMITS:
        for folder in ("counters", "hw_counters"):
            value = files.number(f"{FOLDER}/{device}/ports/{number}/{folder}/{name}")
            if value is not None:
                found[name] = value
                break
    return found


def pci_address(files: NodeFiles, device: str) -> str:
    """Returns the PCI address of an RDMA device, such as "0000:3b:00.0"; empty if it is no PCI device."""
    name = files.link(f"{FOLDER}/{device}/device").rpartition("/")[2]
    return name if name.count(":") == 2 else ""


def _numbers(files: NodeFiles) -> Iterator[tuple[str, int]]:
    for device in files.entries(FOLDER):
        for number in files.entries(f"{FOLDER}/{device}/ports"):
            if number.isdigit():
                yield device, int(number)


def _port(files: NodeFiles, device: str, number: int, with_gids: bool) -> Port:
    here, card = f"{FOLDER}/{device}/ports/{number}", f"{FOLDER}/{device}"
    layer = files.word(f"{here}/link_layer")
    return Port(
        device=device,
        number=number,
        state=_after_colon(files.word(f"{here}/state")),
        physical=_after_colon(files.word(f"{here}/phys_state")),
        rate=files.word(f"{here}/rate"),
        layer=layer,
        lid=_lid(files.word(f"{here}/lid")),
        guid=files.word(f"{card}/node_guid"),
        model=files.word(f"{card}/hca_type"),
        pcie_width=max(0, files.number(f"{card}/device/current_link_width") or 0),
        pcie_speed=files.word(f"{card}/device/current_link_speed"),
        gids=tuple(_gids(files, here)) if with_gids and layer == ETHERNET else (),
    )


def _gids(files: NodeFiles, here: str) -> Iterator[Gid]:
    indices = sorted(int(name) for name in files.entries(f"{here}/gids") if name.isdigit())
    for index in indices[:GIDS_MAX]:
        address = files.word(f"{here}/gids/{index}")
        if address and address != NO_GID:
            yield Gid(index, address, files.word(f"{here}/gid_attrs/types/{index}"))


def _after_colon(text: str) -> str:
    """Returns the text after the colon: "ACTIVE" for `4: ACTIVE`."""
    return text.rpartition(": ")[2]


def _lid(text: str) -> int | None:
    try:
        return int(text, 16) if text else None
    except ValueError:
        return None
