"""Checks the kernel version and the NUMA nodes."""

import platform
import re
from collections.abc import Iterator

from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.host import NumaNode, judge_numa
from holdfast.core.checks.node_findings import skipped
from holdfast.model.checks import (
    BOOT,
    CONTINUOUS,
    MANUAL,
    ON_FAILURE,
    PASS,
    PROLOG,
    RULE,
    SKIP,
    WARN,
    Fact,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

KERNEL_MIN = (5, 5)  # older ones can hang in distributed training: what PyTorch's launchers warn of
NODES = "/sys/devices/system/node"
_MEMORY = re.compile(r"MemTotal:\s*(\d+) kB")
_VERSION = re.compile(r"(\d+)\.(\d+)")


def kernel_version(scene: Scene) -> Iterator[Seen]:
    release = platform.release()
    found = _VERSION.match(release)
    if found is None:
        yield Finding(status=SKIP, why=f"the kernel version {release!r} cannot be parsed")
        return
    is_new = (int(found[1]), int(found[2])) >= KERNEL_MIN
    yield Fact(name="kernel", value=release, same=True)
    yield Finding(
        status=PASS if is_new else WARN,
        measured=release,
        expected="5.5 or newer",
        whence=RULE,
        why="" if is_new else f"kernel {release} is older than 5.5, with which processes can hang",
        advice=Words(en="Upgrade the kernel to 5.5 or newer.", zh="请将内核升级到 5.5 或更新版本。"),
    )


def memory_nodes(scene: Scene) -> Iterator[Seen]:
    """Records the NUMA nodes of the node and whether automatic NUMA balancing is on, for a comparison of nodes.

    Balancing is on by default and is no fault, so it yields no finding by itself.
    """
    files = NodeFiles(scene)
    nodes = tuple(_memory_nodes(files))
    if not nodes:
        yield skipped("the kernel shows no NUMA nodes")
        return
    yield from judge_numa(nodes)
    yield Fact(name="NUMA nodes", value=len(nodes), same=True)
    balancing = files.word("/proc/sys/kernel/numa_balancing")
    if balancing and len(nodes) > 1:
        yield Fact(name="numa_balancing", value=balancing, same=True)


def _memory_nodes(files: NodeFiles) -> Iterator[NumaNode]:
    """Yields the NUMA nodes with their CPUs and memory sizes.

    Node 0 MemTotal:       131072 kB
    """
    for name in files.entries(NODES):
        number = name.removeprefix("node")
        if number.isdigit():
            found = _MEMORY.search(files.text(f"{NODES}/{name}/meminfo"))
            size_bytes = int(found[1]) * 1024 if found else 0
            yield NumaNode(int(number), files.word(f"{NODES}/{name}/cpulist"), size_bytes)


CHECKS = (
    Check(
        Spec(
            name="host-kernel",
            area="host",
            what=Words(en="kernel version", zh="内核版本"),
            contexts=(BOOT, PROLOG, CONTINUOUS, ON_FAILURE, MANUAL),
            quick=True,
        ),
        kernel_version,
    ),
    Check(
        Spec(
            name="host-numa",
            area="host",
            what=Words(en="NUMA nodes", zh="NUMA 节点"),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            quick=True,
        ),
        memory_nodes,
    ),
)
