"""Measures whether a node's disks and links are busy, which distinguishes a long flush from a frozen file
system. Pure.
"""

from holdfast.model.nodes.samples import NodeSample

# A job's logs and a monitor: some KiB; the slowest flush worth waiting for: some MiB.
BUSY_BYTES_PER_S = 1 << 20


def moved_bytes(before: NodeSample, now: NodeSample) -> int:
    """Returns the bytes that disks, RDMA ports and network interfaces (without `lo`) moved between two
    samples of a node.
    """
    was = _totals(before)
    return sum(max(0, total - was.get(name, total)) for name, total in _totals(now).items())


def is_busy(before: NodeSample, now: NodeSample, for_s: float) -> bool:
    """Returns whether the node moved at least BUSY_BYTES_PER_S on average over `for_s` seconds."""
    return moved_bytes(before, now) >= BUSY_BYTES_PER_S * for_s


def _totals(sample: NodeSample) -> dict[str, int]:
    found = {f"disk {one.name}": one.read_bytes + one.written_bytes for one in sample.disks}
    found |= {
        f"link {one.name}": one.received_bytes + one.sent_bytes
        for one in sample.interfaces
        if one.name != "lo"
    }
    found |= {
        f"port {one.device}/{one.port}": (one.received_bytes or 0) + (one.sent_bytes or 0)
        for one in sample.ports
    }
    return found
