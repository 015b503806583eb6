"""Runs the burn with GPUs that are not there: torch's own arithmetic on the processor, under the names of GPUs.

    python gpus_on_cpu.py BURN REQUEST

GPUS of them, with the UUIDs of the stand-in for NVML. FAULTS="1:flip,3:ecc" gives some a fault: `flip` turns one bit of
the third product and each tenth after it, `wrong` one of every product and of the first, `ecc` fails as a driver does,
`copy` damages what comes back, `die` ends the process.
"""

import contextlib
import functools
import os
import runpy
import sys
import time
from types import SimpleNamespace

import torch

FLIP_EVERY = 10
current = ""
products = 0


def on_cpu(device):
    return "cpu" if str(device).startswith("cuda") else device


def without_gpu(function):
    @functools.wraps(function)
    def made(*given, **named):
        if "device" in named:
            named["device"] = on_cpu(named["device"])
        named.pop("pin_memory", None)
        return function(*given, **named)

    return made


def moved(function):
    @functools.wraps(function)
    def to(self, *given, **named):
        return function(self, *(on_cpu(one) if isinstance(one, str) else one for one in given), **named)

    return to


def has_fault(name):
    return f"{current.removeprefix('cuda:')}:{name}" in os.environ.get("FAULTS", "").split(",")


def multiplied(function):
    def mm(left, right, *, out=None):
        global products
        products += 1
        if has_fault("ecc") and products > 2:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
        if has_fault("die") and products > 2:
            os.abort()
        result = function(left, right) if out is None else function(left, right, out=out)
        if (has_fault("flip") and products % FLIP_EVERY == 3) or has_fault("wrong"):
            result.view(torch.int16 if result.element_size() == 2 else torch.int32)[0, 3] ^= 1 << 6
        return result

    return mm


def copied(function):
    def copy_(self, source, **named):
        result = function(self, source)
        if has_fault("copy"):
            self[17] += 1
        return result

    return copy_


class Event:
    def __init__(self, enable_timing=False):
        self._at_s = 0.0

    def record(self, stream):
        self._at_s = time.perf_counter()

    def elapsed_time(self, other):
        return (other._at_s - self._at_s) * 1000


def properties(index):
    return SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", uuid=f"00000000-0000-0000-0000-{index:012}", pci_domain_id=0,
        pci_bus_id=0x1A + 0x0B * index, pci_device_id=0, multi_processor_count=132, total_memory=80 << 30,
    )  # fmt: skip


def set_device(device):
    global current
    current = device


def put_in_place():
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: int(os.environ["GPUS"])
    torch.cuda.get_device_properties = properties
    torch.cuda.get_device_capability = lambda device: (9, 0)
    torch.cuda.mem_get_info = lambda device: (79 << 30, 80 << 30)
    torch.cuda.set_device = set_device
    torch.cuda.synchronize = torch.cuda.current_stream = lambda device: None
    torch.cuda.Event = Event
    for name in ("full", "zeros_like"):
        setattr(torch, name, without_gpu(getattr(torch, name)))
    torch.Tensor.to, torch.nn.Module.to = moved(torch.Tensor.to), moved(torch.nn.Module.to)
    torch.Tensor.pin_memory = torch.Tensor.clone
    torch.Tensor.copy_ = copied(torch.Tensor.copy_)
    torch.mm = multiplied(torch.mm)
    torch.autocast = lambda kind, **named: contextlib.nullcontext()


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    torch.set_num_threads(1)
    put_in_place()
    runpy.run_path(sys.argv[0], run_name="__main__")
