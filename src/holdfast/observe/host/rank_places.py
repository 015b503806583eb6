"""Reads where a process of this machine runs: the NUMA nodes of its CPUs, its GPU, its network devices. Only reads
files.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

ENVIRON_BYTES_MAX = 4 << 20
VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
HCA = "NCCL_IB_HCA"


class ProcessPlace(Struct, frozen=True, kw_only=True):
    """Where a process runs. `gpu`: PCI address of its GPU, from the environment's device list and LOCAL_RANK; empty
    if not known.
    """

    cpu_numa: tuple[int, ...] = ()
    gpu: str = ""
    gpu_numa: int | None = None
    nics: tuple[tuple[str, int], ...] = ()


def process_place(pid: int, root: Path = Path("/")) -> ProcessPlace | None:
    """Returns where a process runs; None if it cannot be read."""
    process = root / "proc" / str(pid)
    try:
        status = (process / "status").read_text(errors="replace")
        with open(process / "environ", "rb") as file:
            pairs = file.read(ENVIRON_BYTES_MAX).split(b"\0")
    except OSError:
        return None
    env = dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)
    allowed = next(
        (line.split(":", 1)[1] for line in status.splitlines() if line.startswith("Cpus_allowed_list:")), ""
    )
    gpu = _gpu(env, root)
    return ProcessPlace(
        cpu_numa=_numa_of(set(_listed(allowed)), root),
        gpu=gpu,
        gpu_numa=_number(root / "sys/bus/pci/devices" / gpu / "numa_node") if gpu else None,
        nics=_nics(env.get(HCA, ""), root),
    )


def _gpu(env: dict[str, str], root: Path) -> str:
    """The GPU that a rank takes by custom: the one of its LOCAL_RANK among the visible ones."""
    try:
        known = sorted(os.listdir(root / "proc/driver/nvidia/gpus"))
    except OSError:
        return ""
    named = next((env[name] for name in VISIBLE if env.get(name, "").replace(",", "").isdecimal()), "")
    visible = [int(number) for number in named.split(",") if number] if named else list(range(len(known)))
    local = env.get("LOCAL_RANK", "")
    if not local.isdecimal() and len(visible) != 1:
        return ""
    place = 0 if len(visible) == 1 else int(local)
    return known[visible[place]] if place < len(visible) and visible[place] < len(known) else ""


def _numa_of(cpus: set[int], root: Path) -> tuple[int, ...]:
    """NUMA nodes that have some of the processors; empty where the machine has but one."""
    nodes: dict[int, set[int]] = {}
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        with suppress(OSError, ValueError):
            nodes[int(folder.name[4:])] = set(_listed((folder / "cpulist").read_text()))
    if len(nodes) < 2:
        return ()
    return tuple(sorted(node for node, own in nodes.items() if own & cpus))


def _nics(named: str, root: Path) -> tuple[tuple[str, int], ...]:
    """The devices that NCCL_IB_HCA allows, with their NUMA nodes; empty where it excludes or matches by prefix none."""
    if not named or named.startswith("^"):
        return ()
    is_exact = named.startswith("=")
    wanted = [word.split(":", 1)[0] for word in named.lstrip("=").split(",") if word]
    try:
        devices = sorted(os.listdir(root / "sys/class/infiniband"))
    except OSError:
        return ()
    found = []
    for device in devices:
        if any(device == word if is_exact else device.startswith(word) for word in wanted):
            numa = _number(root / "sys/class/infiniband" / device / "device/numa_node")
            found.append((device, -1 if numa is None else numa))
    return tuple(found)


def _listed(text: str) -> Iterator[int]:
    """Numbers of a kernel list: "0-3,8"."""
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            yield from range(int(first), int(last or first) + 1)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
