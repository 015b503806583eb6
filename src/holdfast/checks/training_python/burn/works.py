"""Lists the benchmarks by name, and the GPUs that torch can use."""

from __future__ import annotations

import sys
from typing import Any, Callable  # noqa: UP035 - as Python 3.8 has it

from .cores import cores
from .devices import Unable, library
from .matrices import matmul
from .memory import copy, triad
from .training import train

__all__ = ["WORKS", "Unable"]


def about() -> dict[str, Any]:
    """Returns the torch version and the GPUs that torch can use, with their UUIDs or PCI addresses.

    Raises Unable.
    """
    torch = library("torch")
    if not torch.cuda.is_available():
        built = torch.version.cuda or getattr(torch.version, "hip", None)
        why = "torch finds no usable GPU" if built else "torch is built without CUDA"
        raise Unable(f"torch {torch.__version__} of {sys.executable} cannot use a GPU: {why}")
    devices = []
    for index in range(torch.cuda.device_count()):
        of = torch.cuda.get_device_properties(index)
        devices.append(
            {
                "device": f"cuda:{index}",
                "name": of.name,
                "uuid": str(getattr(of, "uuid", "")),
                "address": f"{of.pci_domain_id:04x}:{of.pci_bus_id:02x}:{of.pci_device_id:02x}.0"
                if hasattr(of, "pci_device_id")  # missing in an older torch
                else "",
            }
        )
    return {"torch": torch.__version__, "devices": devices}


WORKS: dict[str, Callable[..., dict[str, Any]]] = {
    "about": about,
    "matmul": matmul,
    "cores": cores,
    "triad": triad,
    "copy": copy,
    "train": train,
}
