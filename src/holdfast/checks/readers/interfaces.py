"""Reads network interfaces from /sys/class/net, and from /proc/net which of them have an address.

source: Linux, Documentation/ABI/testing/sysfs-class-net; proc_net(5)
"""

from collections.abc import Iterator

from holdfast.checks.readers.node_files import NodeFiles
from holdfast.core.checks.net import IFF_UP, Interface, Traffic

FOLDER = "/sys/class/net"
ERRORS = ("rx_crc_errors", "rx_frame_errors", "rx_length_errors", "tx_carrier_errors", "tx_aborted_errors")
MISSED = ("rx_missed_errors", "rx_fifo_errors", "tx_fifo_errors")
INTERFACES_MAX = 512  # of one node with many containers


def interfaces(files: NodeFiles) -> tuple[Interface, ...]:
    able = _with_address(files)
    names = [name for name in files.entries(FOLDER) if files.exists(f"{FOLDER}/{name}/mtu")]
    return tuple(_interface(files, name, name in able) for name in names[:INTERFACES_MAX])


def traffic(files: NodeFiles, name: str) -> Traffic:
    here = f"{FOLDER}/{name}/statistics"

    def total(names: tuple[str, ...]) -> int:
        return sum(files.number(f"{here}/{one}") or 0 for one in names)

    return Traffic(
        packets=total(("rx_packets", "tx_packets")),
        errors=total(ERRORS),
        missed=total(MISSED),
        carrier_lost=files.number(f"{FOLDER}/{name}/carrier_down_count") or 0,
    )


def _interface(files: NodeFiles, name: str, has_address: bool) -> Interface:
    here = f"{FOLDER}/{name}"
    carrier = files.number(f"{here}/carrier")  # cannot be read of one that is not set up
    return Interface(
        name=name,
        is_set_up=bool(_hexadecimal(files.word(f"{here}/flags")) & IFF_UP),
        state=files.word(f"{here}/operstate"),
        has_carrier=None if carrier is None else carrier == 1,
        mtu=files.number(f"{here}/mtu") or 0,
        speed_mbps=max(0, files.number(f"{here}/speed") or 0),
        duplex=files.word(f"{here}/duplex"),
        is_physical=files.exists(f"{here}/device"),
        has_address=has_address,
        members=dict(_members(files, name)),
    )


def _members(files: NodeFiles, bond: str) -> Iterator[tuple[str, bool]]:
    for member in files.text(f"{FOLDER}/{bond}/bonding/slaves").split():
        status = files.word(f"{FOLDER}/{member}/bonding_slave/mii_status")
        yield member, status != "down"


def _with_address(files: NodeFiles) -> set[str]:
    r"""Returns the interfaces that have a route or an IPv6 address in this network namespace.

    eth0\t0014A8C0\t00000000\t0001...
    fe80...e0f0 02 40 20 80     eth0
    """
    routes = files.text("/proc/net/route").splitlines()[1:]
    addresses = files.text("/proc/net/if_inet6").splitlines()
    return {line.split()[0] for line in routes if line.strip()} | {
        line.split()[-1] for line in addresses if line.strip()
    }


def _hexadecimal(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return 0
