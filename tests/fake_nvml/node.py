"""A node with GPUs that are not there: the stand-in for NVML, and the files that the kernel and the driver would show.

node = Node(tmp_path, library)
node.says(count=8, **{"gpu.3.ecc_unc_vol": 2})
node.outcomes(("gpu-ecc",))
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from holdfast.checks.registry import all_checks
from holdfast.checks.runner import SuiteRun
from holdfast.model.checks import Outcome, Scene

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"
BOOTED_S = 1_900_000_000
FIRST_BUS, NEXT_BUS = 0x1A, 0x0B  # as the stand-in numbers them
FAST = {"gpu-clocks.between_s": "0.01", "gpu-nvlink.during_s": "0.01", "gpu-pcie.during_s": "0.05"}
ALL_GPU = tuple(check.spec.name for check in all_checks(("gpu",)) if "nvml" in check.spec.needs) + (
    "gpu-xid",
)


def build(folder: Path, *, old: bool = False) -> Path:
    """Compiles the stand-in into `folder`. raises: LookupError, where there is no compiler"""
    compiler = shutil.which("cc")
    if compiler is None:
        raise LookupError("no C compiler (cc): the stand-in for NVML cannot be built")
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-DOLD_DRIVER"] if old else []
    words = [compiler, *flags, "-O1", "-shared", "-fPIC", "-o", str(folder / LIBRARY), str(SOURCE)]
    subprocess.run(words, check=True, capture_output=True, timeout=200)
    return folder


def address(index: int) -> str:
    return f"0000:{FIRST_BUS + index * NEXT_BUS:02x}:00.0"


class Node:
    """`folder`: where its files go. `library`: the folder of the stand-in."""

    def __init__(self, folder: Path, library: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir(parents=True, exist_ok=True)
        self.state = folder / "nvml"
        self.known: dict[str, Any] = {}
        self.env = dict(os.environ, LD_LIBRARY_PATH=str(library), FAKE_NVML=str(self.state))
        self.env.pop("CUDA_VISIBLE_DEVICES", None)
        self.says()

    def says(self, state: Mapping[str, Any] | None = None, **more: Any) -> None:
        """What NVML says from now on, added to what it said before."""
        self.known |= dict(state or {}) | more
        text = "".join(f"{key}={value}\n" for key, value in self.known.items())
        fresh = self.state.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.state)

    def file(self, path: str, text: str = "") -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        return place

    def on_bus(self, index: int, *, driver: str = "nvidia", known: bool = True, ours: bool = True) -> None:
        """A GPU as PCI and the driver's /proc folder show it."""
        place = f"sys/bus/pci/devices/{address(index)}"
        self.file(f"{place}/vendor", "0x10de\n")
        self.file(f"{place}/class", "0x030200\n")
        if driver:
            (self.root / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True, exist_ok=True)
            (self.root / place / "driver").symlink_to(f"../../drivers/{driver}")
        if known:
            self.file(
                f"proc/driver/nvidia/gpus/{address(index)}/information",
                f"Model: \t\t NVIDIA H100\nBus Location: \t {address(index)}\nDevice Minor: \t {index}\n",
            )
        if ours:
            self.file(f"dev/nvidia{index}")

    def switch(self, number: int) -> None:
        """An NVSwitch on the PCI bus."""
        place = f"sys/bus/pci/devices/0000:{0xC0 + number:02x}:00.0"
        self.file(f"{place}/vendor", "0x10de\n")
        self.file(f"{place}/class", "0x068000\n")

    def process(self, pid: int, name: str, parent: int = 1) -> None:
        self.file(f"proc/{pid}/comm", f"{name}\n")
        self.file(f"proc/{pid}/stat", f"{pid} ({name}) S {parent} 0 0\n")

    def driver_loaded(self, version: str = "550.90.07") -> None:
        self.file(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Fri May 31 09:35:42 UTC 2024\n",
        )
        self.file("dev/nvidiactl")

    def kernel_says(self, *lines: str, after_s: Iterable[float] = (), level: int = 4) -> None:
        """The kernel's log: lines, and how long after the boot each was written. level: 12 is a program's warning."""
        times = [*after_s, *(100.0 + number for number in range(len(lines)))]
        records = [
            f"{level},{number},{int(at_s * 1e6)},-;{line}\n"
            for number, (line, at_s) in enumerate(zip(lines, times, strict=False))
        ]
        self.file("dev/kmsg", "".join(records))
        self.file("proc/stat", f"cpu  1 2 3\nbtime {BOOTED_S}\n")

    def scene(self, **more: Any) -> Scene:
        options = FAST | dict(more.pop("options", {}))
        return replace(Scene(root=str(self.root), host="here", options=options), **more)

    def outcomes(
        self, names: Iterable[str] = ALL_GPU, within_s: float = 60.0, **more: Any
    ) -> dict[str, Outcome]:
        """Runs these checks as a suite does, in processes of their own."""
        chosen = set(names)
        specs = [check.spec for check in all_checks(("gpu", "npu")) if check.spec.name in chosen]
        run = SuiteRun(specs, self.scene(**more), time.monotonic() + within_s, env=self.env)
        try:
            return {outcome.check: outcome for outcome in run.wait()}
        finally:
            run.close()
