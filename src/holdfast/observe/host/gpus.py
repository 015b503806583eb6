"""Finds which GPUs a process has open, as PCI addresses, which kernel log lines of GPU faults contain.

Only reads.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
DEVICE = re.compile(r"/dev/nvidia(\d+)")
MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)


def gpus_of(pids: Iterable[int], proc: Path = PROC) -> frozenset[str]:
    """Returns PCI addresses of the GPUs that the processes have open, such as "0000:5d:00.0".

    Unknown ones are left out.

    source: NVIDIA driver README, "The /proc interface": driver/nvidia/gpus/ADDRESS/information
    """
    minors = {number for pid in pids for number in _minors(proc / str(pid) / "fd")}
    if not minors:
        return frozenset()
    try:
        folders = list((proc / "driver/nvidia/gpus").iterdir())
    except OSError:
        return frozenset()
    return frozenset(folder.name for folder in folders if _minor(folder) in minors)


def _minors(folder: Path) -> set[str]:
    try:
        links = [os.readlink(entry.path) for entry in os.scandir(folder)]
    except OSError:  # another user's process, or one that is gone
        return set()
    return {match[1] for link in links if (match := DEVICE.fullmatch(link))}


def _minor(folder: Path) -> str | None:
    try:
        found = MINOR.search((folder / "information").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return found[1] if found else None
