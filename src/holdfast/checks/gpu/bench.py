"""Benchmarks GPUs: matrix products compared bit by bit, memory bandwidth, copies from and to the host, a
small training.

Each GPU is measured in a process of its own with the torch of the training's Python, so that a failure names
its GPU. A GPU that other processes use is skipped.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.checks.host.bench import no_number, training_measure, training_words
from holdfast.checks.readers.nvml import Device, Nvml, opened
from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.bench import Burnt, burnt, python_with
from holdfast.checks.training_python.burn.matrices import TYPES
from holdfast.core.checks.bench import Bench, OptionRefused, choice, judged, option
from holdfast.core.checks.gpu.bench import (
    Loaded,
    Ran,
    burn_bench,
    copy_bench,
    failed,
    training_bench,
    triad_bench,
    wrong_copies,
    wrong_products,
    wrong_sums,
)
from holdfast.core.checks.gpu.readings import key_of
from holdfast.model.checks import DEVICE, MANUAL, SKIP, WARN, Finding, Scene, Spec
from holdfast.model.signatures import Words

SECONDS_MAX = 3600.0
START_S = 120.0  # torch from a slow network disk, and every GPU attached
TIMEOUT_S = 2 * SECONDS_MAX
SAMPLES_MAX = 4096
CLOCK_SM = 1  # NVML_CLOCK_SM
TEMPERATURE_GPU = 0  # NVML_TEMPERATURE_GPU
FILES = ("dev/nvidiactl", "dev/nvidia0", "dev/kfd", "dev/dxg")
DEVICE_SHAPE = {"layers": 4, "width": 1024, "length": 512, "batch": 8}


class Target(NamedTuple):
    """A GPU to benchmark: its device name in torch, and a key that does not change between boots.

    `nvml`: the same GPU in NVML; None if NVML does not list it.
    """

    device: str
    key: str
    model: str
    where: str
    address: str
    nvml: Device | None


class Bed(NamedTuple):
    """The GPUs to benchmark, and the Python interpreter that runs the benchmark in one process for each GPU."""

    python: str
    targets: tuple[Target, ...]
    nvml: Nvml | None


# What is here --------------------------------------------------------------------------------------------


def _bed(scene: Scene, check: str) -> Bed | str:
    """Returns the GPUs to benchmark, or a text that says why none can be."""
    if not any((Path(scene.root) / name).exists() for name in FILES):
        return "there is no GPU here (no /dev/nvidia*, /dev/kfd)"
    python, why = python_with(scene, check, "torch")
    if why:
        return why
    (about,) = burnt(python, scene, [{"work": "about"}], START_S)
    if about.unable or about.error:
        return about.unable or about.error
    nvml = opened()
    known = nvml if isinstance(nvml, Nvml) else None
    devices = known.devices if known else ()
    return Bed(python, tuple(target_of(one, devices) for one in about.answer["devices"]), known)


def target_of(one: Mapping[str, Any], devices: Sequence[Device]) -> Target:
    """Returns the benchmark target for a GPU that torch lists, with its NVML device. Pure.

    The two are matched by UUID, or by PCI address if torch reports no UUID. A MIG instance has a UUID of its
    own, and the PCI address of its GPU.
    """
    uuid, address = str(one["uuid"]).removeprefix("GPU-").lower(), str(one["address"])
    found = None
    for device in devices:
        same = device.gpu.uuid.removeprefix("GPU-").lower() == uuid if uuid else device.gpu.address == address
        if same:
            found = device
    address = found.gpu.address if found and found.gpu.address else address
    where = address or str(one["device"])
    key = found.gpu.key if found else key_of("", f"GPU-{uuid}" if uuid else "", address)
    return Target(str(one["device"]), key or f"gpu:{where}", str(one["name"]), where, address, found)


def _free(bed: Bed, scene: Scene, check: str) -> tuple[list[Target], list[Finding]]:
    """Returns the GPUs that no other process uses, and a finding for each of the others."""
    if bed.nvml is None or scene.options.get(f"{check}.busy") == "yes":
        return list(bed.targets), []
    free, left = [], []
    for target in bed.targets:
        pids = _users(bed.nvml, target)
        if pids:
            why = (
                f"{target.where} is in use by process {', '.join(map(str, pids[:4]))}, which a benchmark would slow"
                f" (--option {check}.busy=yes runs it all the same)"
            )
            left.append(Finding(status=SKIP, device=target.where, why=why))
        else:
            free.append(target)
    return free, left


def _users(nvml: Nvml, target: Target) -> list[int]:
    if target.nvml is None:
        return []
    processes = nvml.ask("DeviceGetComputeRunningProcesses", target.nvml.handle)
    return sorted(int(process.pid) for process in processes.value or ())


class _Watch:
    """Clocks, temperature and power of the GPUs, sampled through NVML while a benchmark runs."""

    def __init__(self, nvml: Nvml | None, targets: Sequence[Target]) -> None:
        self._nvml = nvml
        self.seen: dict[str, list[Loaded]] = {target.key: [] for target in targets}
        self._targets = targets

    def look(self) -> None:
        for target in self._targets:
            seen = self.seen[target.key]
            if self._nvml is not None and target.nvml is not None and len(seen) < SAMPLES_MAX:
                seen.append(self._sample(self._nvml, target.nvml.handle))

    def _sample(self, nvml: Nvml, handle: Any) -> Loaded:
        clock = nvml.ask("DeviceGetClockInfo", handle, nvml.constant("NVML_CLOCK_SM", CLOCK_SM))
        heat = nvml.ask(
            "DeviceGetTemperature", handle, nvml.constant("NVML_TEMPERATURE_GPU", TEMPERATURE_GPU)
        )
        power = nvml.ask("DeviceGetPowerUsage", handle)
        busy = nvml.ask("DeviceGetUtilizationRates", handle)
        reasons = nvml.ask("DeviceGetCurrentClocksEventReasons", handle)
        if reasons.trouble:
            reasons = nvml.ask("DeviceGetCurrentClocksThrottleReasons", handle)
        return Loaded(
            clock_mhz=clock.value,
            temperature_c=heat.value,
            power_w=None if power.trouble else power.value / 1000,
            busy_percent=None if busy.trouble else int(busy.value.gpu),
            reasons=0 if reasons.trouble else int(reasons.value),
        )


def _run(
    scene: Scene,
    check: str,
    seconds: float,
    ask: Callable[[Target], Mapping[str, Any]],
    *,
    one_by_one: bool = False,
) -> tuple[list[Finding], list[Ran]]:
    """Runs one benchmark on each unused GPU.

    Returns findings of GPUs that were not measured, and the measurements.
    """
    bed = _bed(scene, check)
    if isinstance(bed, str):
        return [Finding(status=SKIP, why=bed)], []
    targets, left = _free(bed, scene, check)
    watch = _Watch(bed.nvml, targets)
    asks = [{"device": target.device, "seconds": seconds, **ask(target)} for target in targets]
    answers = burnt(bed.python, scene, asks, seconds + START_S, one_by_one=one_by_one, meanwhile=watch.look)
    runs = [_ran(target, one, watch.seen[target.key]) for target, one in zip(targets, answers, strict=True)]
    return [*left, *failed(runs)], runs


def _ran(target: Target, one: Burnt, seen: Sequence[Loaded]) -> Ran:
    return Ran(
        key=target.key,
        model=target.model,
        where=target.where,
        answer=one.answer,
        unable=one.unable,
        error=one.error,
        is_late=one.is_late,
        seen=tuple(seen),
    )


def _judged(scene: Scene, runs: Sequence[Ran], bench: Callable[[Ran], Bench]) -> Iterator[Seen]:
    yield from judged([bench(run) for run in runs if run.is_done], scene.baseline)


# The checks ----------------------------------------------------------------------------------------------


def gpu_burn(scene: Scene) -> Iterator[Seen]:
    name = "gpu-burn"
    try:
        seconds = option(scene, name, "seconds", 20.0, 0.1, SECONDS_MAX)
        size = int(option(scene, name, "size", 8192, 128, 32768))
        type_ = choice(scene.options, name, "type", ("auto", *TYPES), "auto")
    except OptionRefused as error:
        yield Finding(status=SKIP, why=str(error))
        return
    found, runs = _run(scene, name, seconds, lambda _: {"work": "matmul", "size": size, "type": type_})
    yield from found
    yield from wrong_products(runs)
    yield from _judged(scene, runs, burn_bench)


def gpu_memory_bandwidth(scene: Scene) -> Iterator[Seen]:
    name = "gpu-memory-bandwidth"
    try:
        seconds = option(scene, name, "seconds", 3.0, 0.1, SECONDS_MAX)
        each = int(option(scene, name, "mebibytes", 1024, 16, 1 << 20)) << 20
    except OptionRefused as error:
        yield Finding(status=SKIP, why=str(error))
        return
    found, runs = _run(scene, name, seconds, lambda _: {"work": "triad", "bytes_each": each})
    yield from found
    yield from wrong_sums(runs)
    yield from _judged(scene, runs, triad_bench)


def gpu_copy(scene: Scene) -> Iterator[Seen]:
    name = "gpu-copy"
    try:
        seconds = option(scene, name, "seconds", 2.0, 0.1, SECONDS_MAX)
        each = int(option(scene, name, "mebibytes", 256, 1, 1 << 16)) << 20
    except OptionRefused as error:
        yield Finding(status=SKIP, why=str(error))
        return

    def ask(target: Target) -> dict[str, Any]:
        return {"work": "copy", "bytes_each": each, "cpus": near_cpus(scene, target.address)}

    found, runs = _run(scene, name, seconds, ask, one_by_one=True)
    yield from found
    yield from wrong_copies(runs)
    yield from _judged(scene, runs, copy_bench)


def gpu_training_step(scene: Scene) -> Iterator[Seen]:
    name = "gpu-training-step"
    try:
        seconds = option(scene, name, "seconds", 6.0, 0.1, SECONDS_MAX)
        shape = {
            key: int(option(scene, name, key, default, 1, 1 << 16)) for key, default in DEVICE_SHAPE.items()
        }
        if shape["width"] % 64:
            raise OptionRefused(f"--option {name}.width={shape['width']}: a multiple of 64 is required")
    except OptionRefused as error:
        yield Finding(status=SKIP, why=str(error))
        return
    found, runs = _run(scene, name, seconds, lambda _: {"work": "train", **shape})
    yield from found
    for run in runs:
        if run.is_done:
            yield from no_number(run.answer, run.where)
    words = f"{shape['layers']} layers of {shape['width']}, {shape['batch']} x {shape['length']} tokens"
    yield from _judged(
        scene,
        runs,
        lambda run: training_bench(run, (training_measure(run.answer, words),), training_words(run.answer)),
    )


def near_cpus(scene: Scene, address: str) -> list[int]:
    """Returns the CPUs on the same NUMA node as a GPU; empty if the kernel does not report them."""
    if not address:
        return []
    try:
        text = (Path(scene.root) / "sys/bus/pci/devices" / address / "local_cpulist").read_text(
            encoding="ascii"
        )
    except (OSError, UnicodeDecodeError):
        return []
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def _check(name: str, en: str, zh: str, look: Callable[[Scene], Iterator[Seen]]) -> Check:
    return Check(
        Spec(
            name=name,
            area="gpu",
            what=Words(en=en, zh=zh),
            contexts=(MANUAL,),
            cost=DEVICE,
            timeout_s=TIMEOUT_S,
            needs=("GPU", "torch"),
            bench=True,
            on_hang=WARN,
            hang_advice=Words(
                en="Look for Xid messages in the kernel log; reset the GPU or reboot the node.",
                zh="请查看内核日志中的 Xid 信息；重置 GPU 或重启节点。",
            ),
        ),
        look,
    )


CHECKS = (
    _check(
        "gpu-burn",
        (
            "matrix products on all GPUs at once, compared bit by bit between repeats, between GPUs and "
            "with exact results"
        ),
        "所有 GPU 同时进行矩阵乘法，比对重复运算、各 GPU 及精确算术结果的每一位",
        gpu_burn,
    ),
    _check(
        "gpu-memory-bandwidth",
        "memory bandwidth of GPUs (triad)",
        "GPU 显存带宽（triad）",
        gpu_memory_bandwidth,
    ),
    _check(
        "gpu-copy",
        "copy bandwidth between host and GPU, both directions",
        "主机与 GPU 之间的双向拷贝",
        gpu_copy,
    ),
    _check(
        "gpu-training-step",
        "step time of a small training on each GPU",
        "各 GPU 上小型训练的单步耗时",
        gpu_training_step,
    ),
)
