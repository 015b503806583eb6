"""Checks which processes use the GPUs, and whether MIG divides them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.checks.readers.nvml import Device, Nvml
from holdfast.checks.readers.nvml_checks import asked, is_below, is_divided, nvml_spec, opened, read
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.gpu.readings import Unread
from holdfast.core.checks.gpu.use import Division, Holder, Use, judge_division, judge_use
from holdfast.model.checks import Finding, Scene

PARTS_MAX = 8
MEMORY_V2 = 0x02000028  # nvmlMemory_v2: reports the driver's reserve separately


def foreign(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    answers, unread = asked(library, "DeviceGetComputeRunningProcesses")
    proc = Path(scene.root) / "proc"
    own = frozenset(scene.own_pids)
    seen = [_use(library, device, answer.value, proc, own) for device, answer in answers]
    yield from judge_use(seen, unread, scene.training)


def _use(library: Nvml, device: Device, processes: Any, proc: Path, own: frozenset[int]) -> Use:
    gpu, handle = device
    exact = library.ask("DeviceGetMemoryInfo", handle, MEMORY_V2)
    memory = library.ask("DeviceGetMemoryInfo", handle).value if exact.trouble else exact.value
    return Use(
        gpu=gpu,
        holders=tuple(_holder(one, proc, own) for one in processes),
        used=int(memory.used) if memory else None,
        total=int(memory.total) if memory else None,
        is_exact=not exact.trouble,
        is_divided=is_divided(library, handle),
    )


def _holder(process: Any, proc: Path, own: frozenset[int]) -> Holder:
    pid = int(process.pid)
    return Holder(
        pid=pid,
        name=read(proc / str(pid) / "comm").strip(),
        bytes=int(process.usedGpuMemory) if process.usedGpuMemory is not None else None,
        is_own=is_below(pid, own, proc),
        is_here=(proc / str(pid)).is_dir(),
    )


def mig(scene: Scene) -> Iterator[Seen]:
    library = opened()
    if isinstance(library, Finding):
        yield library
        return
    devices, unread = library.readable()
    seen = []
    for gpu, handle in devices:
        mode = library.ask("DeviceGetMigMode", handle)
        if mode.trouble == "absent":
            seen.append(Division(gpu=gpu))
        elif mode.trouble:
            unread.append(Unread(gpu.where, mode.why))
        else:
            now, later = (bool(one) for one in mode.value)
            parts = _parts(library, handle) if now else None
            seen.append(Division(gpu=gpu, is_on=now, will_be_on=later, parts=parts))
    yield from judge_division(seen, unread, scene.ranks)


def _parts(library: Nvml, handle: Any) -> int | None:
    most = library.ask("DeviceGetMaxMigDeviceCount", handle)
    if most.trouble:
        return None
    answers = [
        library.ask("DeviceGetMigDeviceHandleByIndex", handle, place)
        for place in range(min(int(most.value), PARTS_MAX))
    ]
    if any(answer.trouble not in ("", "absent") for answer in answers):
        return None
    return sum(not answer.trouble for answer in answers)


CHECKS = (
    Check(
        nvml_spec("gpu-foreign", "no other process uses the GPUs", "GPU 未被他人占用", quick=True), foreign
    ),
    Check(nvml_spec("gpu-mig", "MIG mode of the GPUs fits the training", "MIG 模式与任务相符"), mig),
)
