"""Checks AMD GPUs with the vendor tool `amd-smi`."""

import os
from collections.abc import Iterator
from pathlib import Path

from holdfast.checks.readers.nvml_checks import read
from holdfast.checks.readers.vendor_tools import tool_place, tool_says
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.gpu.amd import amd_facts, amd_gpus, judge_amd
from holdfast.model.checks import BOOT, EPILOG, LIGHT, MANUAL, ON_FAILURE, PROLOG, SKIP, Finding, Scene, Spec
from holdfast.model.signatures import Words

TOOL = "amd-smi"
WITHIN_S = 8.0
AMD, DRIVER = "0x1002", "amdgpu"


def amd(scene: Scene) -> Iterator[Seen]:
    place = tool_place(TOOL)
    on_bus = _on_bus(Path(scene.root))
    if place is None:
        why = (
            f"{on_bus} AMD GPUs on the PCI bus, but amd-smi is not installed"
            if on_bus
            else "no AMD GPU (no amd-smi)"
        )
        yield Finding(status=SKIP, why=why)
        return
    static = tool_says(place, ("static", "--json"), WITHIN_S)
    metric = tool_says(place, ("metric", "--json"), WITHIN_S)
    gpus = amd_gpus(static.text, metric.text)
    if not gpus and (static.why_not or metric.why_not):
        yield Finding(status=SKIP, why=static.why_not or metric.why_not)
        return
    yield from amd_facts(gpus)
    yield from judge_amd(gpus, on_bus, scene.baseline)


def _on_bus(root: Path) -> int | None:
    """Returns the number of GPUs on the PCI bus that the driver amdgpu has claimed; None if the bus is not
    visible.
    """
    try:
        folders = list((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    return sum(read(folder / "vendor").strip() == AMD and _driver(folder) == DRIVER for folder in folders)


def _driver(folder: Path) -> str:
    try:
        return os.path.basename(os.readlink(folder / "driver"))
    except OSError:
        return ""


CHECKS = (
    Check(
        Spec(
            name="gpu-amd",
            area="gpu",
            what=Words(
                en="number, errors, temperature and links of AMD GPUs", zh="AMD GPU 数量、错误、温度与链路"
            ),
            contexts=(BOOT, PROLOG, EPILOG, ON_FAILURE, MANUAL),
            cost=LIGHT,
            timeout_s=2 * WITHIN_S + 2.0,
            needs=(TOOL,),
        ),
        amd,
    ),
)
