"""Reads performance counters of the node once a second: network interfaces, TCP, RDMA ports, disks, memory.

It only reads, never raises, and leaves out what does not exist. RDMA ports are read in a thread, because each
read may query the device's firmware, which a faulty device answers late or never.

source: proc(5); Linux, Documentation/admin-guide/iostats.rst and
Documentation/ABI/stable/sysfs-class-infiniband
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from holdfast.model.nodes.samples import DiskSample, InterfaceSample, NodeSample, PortSample
from holdfast.observe.host.aside import Aside

ROOT = Path("/")
SECTOR_BYTES = 512  # of /proc/diskstats, whatever the device's own is
PORT_WORD_BYTES = 4  # port_xmit_data and port_rcv_data count 32-bit words
KIB = 1024
FILE_BYTES_MAX = 256 << 10  # /proc/net/dev with 1,000 interfaces has 130 KB
LINKS_EVERY = 5  # samples between two looks at which interfaces are up
ERRORS_EVERY = 5  # likewise, at the error counters of ports: some 30 files each
NAMES_EVERY = 60  # likewise, at which disks and ports there are
NAMED_MAX = 32  # interfaces, disks and ports each, those that have moved most
NO_DISKS = ("loop", "ram", "zram", "fd", "sr")
LINK_STATES = {"up": True, "down": False, "lowerlayerdown": False, "notpresent": False}
# Of counters/ and hw_counters/: signs of a bad cable, a full fabric or a silent peer.
PORT_ERRORS = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_discards",
    "port_xmit_constraint_errors",
    "port_rcv_constraint_errors",
    "port_xmit_wait",
    "VL15_dropped",
)
HARDWARE_ERRORS = (
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "req_cqe_error",
    "resp_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_flush_error",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "rx_icrc_encapsulated",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "np_cnp_sent",
    "rp_cnp_handled",
    "np_ecn_marked_roce_packets",
    "retrans_pkts",
    "retrans_timeout_events",
    "rx_drop_packets",
    "tx_drop_packets",
)


class NodeCounters:
    """Reader of the node's performance counters.

    `root`: the folder that holds proc and sys. `clock`: returns seconds, for the age of RDMA counters.
    """

    def __init__(self, root: Path = ROOT, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._sys = root / "proc", root / "sys"
        self._samples = 0
        self._links: dict[str, bool | None] = {}
        self._disks: frozenset[str] | None = None
        self._has_ports = False
        reader = PortReader(self._sys / "class/infiniband")
        self._ports: Aside[tuple[PortSample, ...]] = Aside(reader.read, "holdfast-ports", clock)

    def sample(self) -> NodeSample:
        """Returns the current counters of the node; those of RDMA ports are the last ones read."""
        if self._samples % NAMES_EVERY == 0:
            self._disks = _whole_disks(self._sys / "block")
            self._has_ports = _has_entries(self._sys / "class/infiniband")
        memory = parse_meminfo(_text(self._proc / "meminfo"))
        tcp = parse_paired_lines(_text(self._proc / "net/snmp")).get("Tcp", {})
        tcp_more = parse_paired_lines(_text(self._proc / "net/netstat")).get("TcpExt", {})
        sample = NodeSample(
            interfaces=self._interfaces(),
            disks=parse_diskstats(_text(self._proc / "diskstats"), self._disks),
            dirty_bytes=memory.get("Dirty"),
            writeback_bytes=memory.get("Writeback"),
            available_bytes=memory.get("MemAvailable"),
            tcp_sent=tcp.get("OutSegs"),
            tcp_retransmitted=tcp.get("RetransSegs"),
            tcp_timeouts=tcp_more.get("TCPTimeouts"),
        )
        self._samples += 1
        return self._with_ports(sample)

    def close(self) -> None:
        self._ports.close()

    def wait_for_ports(self, timeout_s: float) -> bool:
        """Waits until the RDMA counters requested by the last `sample` are read.

        Returns False at the timeout.
        """
        return self._ports.wait(timeout_s)

    def _with_ports(self, sample: NodeSample) -> NodeSample:
        if not self._has_ports:
            return sample
        answer = self._ports.last()
        self._ports.ask()
        return replace(sample, ports=answer.value, ports_age_s=round(answer.age_s, 1)) if answer else sample

    def _interfaces(self) -> tuple[InterfaceSample, ...]:
        found = parse_net_dev(_text(self._proc / "net/dev"))
        if self._samples % LINKS_EVERY == 0:
            self._links = {one.name: self._is_up(one.name) for one in found}
        return tuple(replace(one, is_up=self._links.get(one.name)) for one in found)

    def _is_up(self, name: str) -> bool | None:
        return LINK_STATES.get(_text(self._sys / "class/net" / name / "operstate").strip())


class PortReader:
    """Reader of the counters of RDMA ports in `folder` (/sys/class/infiniband), for use by one thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reads = 0
        self._errors: dict[Path, dict[str, int]] = {}

    def read(self) -> tuple[PortSample, ...]:
        with_errors = self._reads % ERRORS_EVERY == 0
        self._reads += 1
        found = []
        for port in list(_ports_below(self._folder))[:NAMED_MAX]:
            if with_errors:
                self._errors[port] = _port_errors(port)
            received, sent = (
                _number(port / "counters" / name) for name in ("port_rcv_data", "port_xmit_data")
            )
            found.append(
                PortSample(
                    device=port.parent.parent.name,
                    port=int(port.name),
                    state=_text(port / "state").strip().rpartition(": ")[2],
                    received_bytes=None if received is None else received * PORT_WORD_BYTES,
                    sent_bytes=None if sent is None else sent * PORT_WORD_BYTES,
                    errors=self._errors.get(port, {}),
                )
            )
        return tuple(found)


def parse_net_dev(text: str) -> tuple[InterfaceSample, ...]:
    """Parses /proc/net/dev and returns the interfaces with traffic.

        eth0: 954684947 27997 0 0 0 0 0 0 1663182 19184 0 0 0 0 0 0

    Eight numbers received (bytes packets errs drop fifo frame compressed multicast), then eight sent.
    """
    found = []
    for line in text.splitlines()[2:]:
        name, _, rest = line.rpartition(":")
        numbers = _numbers(rest.split()[:16])
        if len(numbers) < 16 or not numbers[0] + numbers[8]:
            continue
        found.append(
            InterfaceSample(
                name=name.strip(),
                received_bytes=numbers[0],
                sent_bytes=numbers[8],
                errors=numbers[2] + numbers[10],
                dropped=numbers[3] + numbers[11],
            )
        )
    found.sort(key=lambda one: (-one.received_bytes - one.sent_bytes, one.name))
    return tuple(found[:NAMED_MAX])


def parse_diskstats(text: str, whole: frozenset[str] | None = None) -> tuple[DiskSample, ...]:
    """Parses /proc/diskstats and returns the disks with reads or writes.

        254 0 vda 373152 40760 25968858 376981 278145 393138 178362792 982301 0 195668 1494516 ...

    Fields after the name: reads, merged, sectors read, ms, writes, merged, sectors written, ms, in flight, ms
    busy. `whole`: names of whole disks, so that partitions are left out; None keeps all.
    """
    found = []
    for line in text.splitlines():
        fields = line.split()
        numbers = _numbers(fields[3:13])
        if len(numbers) < 10 or not numbers[0] + numbers[4] or fields[2].startswith(NO_DISKS):
            continue
        if whole is None or fields[2].replace("/", "!") in whole:
            found.append(
                DiskSample(
                    name=fields[2],
                    read_bytes=numbers[2] * SECTOR_BYTES,
                    written_bytes=numbers[6] * SECTOR_BYTES,
                    in_flight=numbers[8],
                    busy_s=numbers[9] / 1000,
                )
            )
    found.sort(key=lambda one: (-one.read_bytes - one.written_bytes, one.name))
    return tuple(found[:NAMED_MAX])


def parse_meminfo(text: str) -> dict[str, int]:
    """Parses /proc/meminfo and returns bytes by name: {"Dirty": 1351680} for `Dirty:   1320 kB`.

    Lines without a unit are left out.
    """
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and _is_number(words[0]):
            found[name] = int(words[0]) * KIB
    return found


def parse_paired_lines(text: str) -> dict[str, dict[str, int]]:
    """Parses a file of /proc/net with pairs of lines, names above values, into a dictionary.

    Tcp: OutSegs RetransSegs
    Tcp: 3325887 2132          -> {"Tcp": {"OutSegs": 3325887, "RetransSegs": 2132}}
    """
    found: dict[str, dict[str, int]] = {}
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        head, _, rest = names.partition(":")
        if head and values.startswith(f"{head}:"):
            pairs = zip(rest.split(), values[len(head) + 1 :].split(), strict=False)
            found[head] = {name: int(value) for name, value in pairs if _is_number(value)}
    return found


def _ports_below(folder: Path) -> Iterator[Path]:
    for device in _entries(folder):
        for port in _entries(folder / device / "ports"):
            if _is_number(port):
                yield folder / device / "ports" / port


def _port_errors(port: Path) -> dict[str, int]:
    read = [(name, _number(port / "counters" / name)) for name in PORT_ERRORS]
    read += [(name, _number(port / "hw_counters" / name)) for name in HARDWARE_ERRORS]
    return {name: value for name, value in read if value}


def _whole_disks(folder: Path) -> frozenset[str] | None:
    return frozenset(_entries(folder)) or None


def _has_entries(folder: Path) -> bool:
    return bool(_entries(folder))


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _text(path: Path) -> str:
    """Returns the text of a file; empty if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        text = b""
        while len(text) < FILE_BYTES_MAX and (part := os.read(fd, FILE_BYTES_MAX)):
            text += part
        return text.decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if _is_number(text) else None


def _numbers(words: list[str]) -> list[int]:
    return [int(word) for word in words if _is_number(word)]


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 20
