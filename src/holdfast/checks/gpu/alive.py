"""Checks that the GPU driver responds and stays loaded, and that all GPUs are present."""

import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.checks.readers import nvml
from holdfast.checks.readers.nvml import NotOpen, Nvml
from holdfast.checks.readers.nvml_checks import nvml_spec, read
from holdfast.checks.readers.pci_gpus import pci_gpus
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.gpu.presence import (
    Away,
    Presence,
    Versions,
    judge_away,
    judge_count,
    judge_persistence,
    judge_versions,
    presence_facts,
    slow_driver,
)
from holdfast.core.checks.gpu.readings import Gpu, Unread
from holdfast.model.checks import SKIP, Fact, Finding, Scene

QUICK_S = 3.5  # within the 5 s of the quick suite
PATIENCE_S = 25.0  # eight GPUs that are attached one after another

_MODULE_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")


def driver(scene: Scene) -> Iterator[Seen]:
    library = nvml.opened()
    if isinstance(library, NotOpen):
        yield judge_away(_away(scene, library), bool(scene.baseline.devices("gpu")))
        return
    found, facts = judge_versions(_versions(scene, library))
    yield from facts
    yield from found


def count(scene: Scene) -> Iterator[Seen]:
    library = nvml.opened(QUICK_S if scene.quick else PATIENCE_S)
    if isinstance(library, NotOpen):
        if library.kind == nvml.SLOW:
            on_bus = len(pci_gpus(Path(scene.root)) or ())
            yield slow_driver(library.why, library.after_s, on_bus, is_kept_loaded=_is_kept_loaded(scene))
        else:
            yield Finding(status=SKIP, why=f"{library.why} (see gpu-driver)")
        return
    if library.why_not_counted:
        yield Finding(status=SKIP, why=f"the GPUs cannot be listed: {library.why_not_counted}")
        return
    seen = Presence(
        gpus=tuple(device.gpu for device in library.devices),
        pci=pci_gpus(Path(scene.root)),
        memory=_memory(library),
        ranks=scene.ranks,
        visible=scene.env.get("CUDA_VISIBLE_DEVICES"),
    )
    yield from presence_facts(seen)
    yield from judge_count(seen, scene.baseline)


def persistence(scene: Scene) -> Iterator[Seen]:
    library = nvml.opened()
    if isinstance(library, NotOpen):
        yield Finding(status=SKIP, why=library.why)
        return
    devices, unread = library.readable()
    modes: list[tuple[Gpu, bool, bool]] = []
    for gpu, handle in devices:
        mode = library.ask("DeviceGetPersistenceMode", handle)
        if mode.trouble:
            unread.append(Unread(gpu.where, mode.why))
            continue
        is_server = not library.ask("DeviceGetEccMode", handle).trouble
        modes.append((gpu, bool(mode.value), is_server))
        if gpu.key and mode.value:
            yield Fact(name="persistence", value=True, device=gpu.key, learn=True)
    yield from judge_persistence(modes, unread, scene.baseline)


def _versions(scene: Scene, library: Nvml) -> Versions:
    driver = library.ask("SystemGetDriverVersion").value
    cuda = library.ask("SystemGetCudaDriverVersion_v2").value
    return Versions(
        driver=str(driver) if driver else "",
        module=_loaded_module(Path(scene.root)),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) and cuda else "",
    )


def _away(scene: Scene, library: NotOpen) -> Away:
    root = Path(scene.root)
    cards = pci_gpus(root) or ()
    return Away(
        kind=library.kind,
        why=library.why,
        on_bus=sum(card.driver in ("", "nvidia") for card in cards),
        is_loaded=bool(_loaded_module(root)) or any(card.driver == "nvidia" for card in cards),
    )


def _loaded_module(root: Path) -> str:
    """Returns the version of the loaded NVIDIA kernel module; empty if it is not loaded.

        NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri ...     -> 550.90.07

    source: NVIDIA driver README, "The /proc interface"
    """
    found = _MODULE_VERSION.search(read(root / "proc/driver/nvidia/version"))
    return found[1] if found else ""


def _memory(library: Nvml) -> dict[str, int]:
    asked = {
        gpu.key: library.ask("DeviceGetMemoryInfo", handle)
        for gpu, handle in library.readable()[0]
        if gpu.key
    }
    return {key: int(answer.value.total) for key, answer in asked.items() if not answer.trouble}


def _is_kept_loaded(scene: Scene) -> bool:
    """Returns whether the NVIDIA persistence daemon runs, which keeps the driver state of idle GPUs
    loaded.
    """
    root = Path(scene.root)
    return any((root / place / "nvidia-persistenced/socket").exists() for place in ("run", "var/run"))


CHECKS = (
    Check(
        nvml_spec(
            "gpu-count",
            "all GPUs are present, and none is lost",
            "GPU 数量齐全且无掉卡",
            quick=True,
            timeout_s=PATIENCE_S + 3.0,
        ),
        count,
    ),
    Check(
        nvml_spec(
            "gpu-driver",
            "the GPU driver responds, and its version matches that of its library",
            "GPU 驱动有应答且版本一致",
            quick=True,
        ),
        driver,
    ),
    Check(
        nvml_spec("gpu-persistence", "persistence mode of GPUs is on", "persistence mode 已启用"),
        persistence,
    ),
)
