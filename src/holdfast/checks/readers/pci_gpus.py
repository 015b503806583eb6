"""Lists NVIDIA GPUs on the PCI bus, and whether they may be opened, from kernel files only."""

import os
import re
from pathlib import Path

from holdfast.checks.readers.nvml_checks import read
from holdfast.core.checks.gpu.presence import PciGpu

NVIDIA = "0x10de"
GPU_CLASS = "0x03"
_MINOR = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)


def pci_gpus(root: Path) -> tuple[PciGpu, ...] | None:
    """Returns the NVIDIA GPUs on the PCI bus; None if the kernel lists no PCI device, as in some virtual
    machines.
    """
    try:
        folders = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    if not folders:
        return None
    return tuple(_card(root, folder) for folder in folders if _is_gpu(folder))


def _is_gpu(folder: Path) -> bool:
    is_nvidia = read(folder / "vendor").strip() == NVIDIA
    return is_nvidia and read(folder / "class").startswith(GPU_CLASS)


def _card(root: Path, folder: Path) -> PciGpu:
    known = root / "proc/driver/nvidia/gpus" / folder.name
    minor = _MINOR.search(read(known / "information"))
    try:
        bound = os.path.basename(os.readlink(folder / "driver"))
    except OSError:
        bound = ""
    return PciGpu(
        address=folder.name,
        driver=bound,
        is_known=known.is_dir(),
        is_ours=minor is not None and os.access(root / f"dev/nvidia{minor[1]}", os.R_OK | os.W_OK),
    )
