"""Benchmarks the CPUs and host memory: matrix products compared bit by bit, memory bandwidth, a small
training.
"""

import os
import platform
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.checks.registry import Check, Seen
from holdfast.checks.training_python.bench import SINGLE, Burnt, burnt, python_with
from holdfast.core.checks.bench import (
    Bench,
    Measure,
    OptionRefused,
    disturbed,
    judged,
    measure,
    option,
    wrong_always,
    wrong_result,
)
from holdfast.core.plurals import counted
from holdfast.model.checks import (
    DEVICE_FAULT,
    FAIL,
    MANUAL,
    NODE,
    PASS,
    PEERS,
    RULE,
    SKIP,
    WARN,
    Finding,
    Scene,
    Spec,
)
from holdfast.model.signatures import Words

SECONDS_MAX = 3600.0
START_S = 120.0  # torch from a slow network disk
TIMEOUT_S = SECONDS_MAX + 2 * START_S
GIGA = 1e9
SLOW_CORE = 0.5  # of the median of those like it
# A memory controller, a core: signals after which the processor has reported an error.
_BROKEN = {signal.SIGBUS, signal.SIGILL}
_CACHE = re.compile(r"(\d+)K")
ARRAY_BYTES_MIN, ARRAY_BYTES_MAX = 64 << 20, 4 << 30


def host_burn(scene: Scene) -> Iterator[Seen]:
    name = "host-burn"
    try:
        seconds = option(scene, name, "seconds", 10.0, 0.1, SECONDS_MAX)
        size = int(option(scene, name, "size", 1024, 64, 8192))
    except OptionRefused as error:
        yield Finding(status=SKIP, why=str(error))
        return
    python, why = python_with(scene, name, "torch", "numpy")
    if why:
        yield Finding(status=SKIP, why=why)
        return
    asks = [{"work": "cores", "seconds": seconds, "size": size}]
    (one,) = burnt(python, scene, asks, seconds + START_S, more_env=SINGLE)
    if (trouble := _trouble(one)) is not None:
        yield trouble
        return
    yield from judged_cores(scene, one.answer, _fastest(scene))


def judged_cores(scene: Scene, answer: Mapping[str, Any], fastest_khz: Mapping[int, int]) -> Iterator[Seen]:
    """Evaluates the result of the CPU benchmark `burn.cores`. Yields findings about wrong products and slow cores.
    Pure.

    `fastest_khz`: the highest clock rate of each core in kHz; empty if the kernel does not report it.
    """
    ran = [core for core in answer["cores"] if "rates" in core]
    broken = [finding for core in answer["cores"] if (finding := _broken_core(core)) is not None]
    yield from broken
    if not answer["is_exact"]:
        why = f"{answer['library']} computes a product that differs from integer arithmetic"
        yield wrong_always("", why, others_are_right=False)
    if not ran:
        yield Finding(status=SKIP, why="no core could be measured")
        return
    if not broken and answer["is_exact"]:
        repeats = sum(core["repeats"] for core in ran)
        yield Finding(
            status=PASS,
            measured=f"{counted(repeats, 'product')} on {counted(len(ran), 'core')}, all with the same bits",
            whence=RULE,
        )
    quarters = [sum(core["rates"][at] for core in ran) for at in range(4)]
    had = sum(core["had"] for core in ran) / len(ran)
    model = cpu_model(scene, len(ran))
    bench = Bench(
        key=f"cpu:{model}",
        model=model,
        measures=(measure(f"matmul fp32 {answer['size']}, {answer['library']}", quarters, "GFLOP/s", GIGA),),
        beside=f"{counted(len(ran), 'core')} at once",
        disturbed=disturbed(had),
    )
    yield from judged([bench], scene.baseline)
    if not bench.disturbed:
        yield from slow_cores(ran, fastest_khz)


def _broken_core(core: Mapping[str, Any]) -> Finding | None:
    where = f"core {core['core']}"
    if core.get("wrong_repeats"):
        return wrong_result(where, core["wrong_repeats"], core["repeats"], core["where"], what=where)
    if "rates" in core:
        return None
    if "error" in core:
        return Finding(status=SKIP, device=where, why=f"{where}: {core['error']}")
    number = os.WTERMSIG(core["ended"]) if os.WIFSIGNALED(core["ended"]) else 0
    ending = (
        f"its process ended by signal {number}" if number else f"its process ended with {core['ended'] >> 8}"
    )
    if number not in _BROKEN:
        return Finding(status=SKIP, device=where, why=f"{where}: {ending}")
    return Finding(
        status=FAIL,
        device=where,
        measured=ending,
        expected="the product",
        whence=RULE,
        why=f"{where}: {ending} in a matrix product that the other cores compute correctly",
        advice=Words(
            en="Keep the node out of training and check for machine check errors in the kernel log (dmesg, rasdaemon).",
            zh="请隔离该节点，并在内核日志（dmesg、rasdaemon）中查找 machine check 错误。",
        ),
        fault=DEVICE_FAULT,
        category="mce_edac",
    )


def slow_cores(ran: Sequence[Mapping[str, Any]], fastest_khz: Mapping[int, int]) -> Iterator[Finding]:
    """Yields a finding for each core slower than half the median of the cores with the same highest clock
    rate.
    """
    for core in ran:
        like = sorted(
            float(one["rates"][1])
            for one in ran
            if fastest_khz.get(one["core"]) == fastest_khz.get(core["core"])
        )
        middle, rate = like[len(like) // 2], float(core["rates"][1])
        if len(like) > 2 and rate < SLOW_CORE * middle:
            yield Finding(
                status=WARN,
                device=f"core {core['core']}",
                measured=f"{rate / GIGA:.4g} GFLOP/s",
                expected=f"about {middle / GIGA:.4g} GFLOP/s",
                whence=PEERS,
                why=f"core {core['core']} is at {rate / middle:.0%} of the median of the {len(like)} cores like it",
                advice=Words(
                    en="Check its clock, governor and temperature (turbostat, cpupower), and which other processes are bound to it.",
                    zh="请检查该核心的频率、调频策略与温度（turbostat、cpupower），以及是否有其他任务绑定在其上。",
                ),
            )


def host_memory_bandwidth(scene: Scene) -> Iterator[Seen]:
    name = "host-memory-bandwidth"
    try:
        seconds = option(scene, name, "seconds", 4.0, 0.1, SECONDS_MAX)
        asked = option(scene, name, "mebibytes", 0.0, 0.0, 1 << 20)
    except OptionRefused as error:
        yield Finding(status=SKIP, why=str(error))
        return
    each = int(asked) << 20 or array_bytes(_cache_bytes(scene), _free_bytes(scene))
    if not each:
        yield Finding(status=SKIP, why="too little memory is free for arrays that are larger than the caches")
        return
    python, why = python_with(scene, name, "torch", "numpy")
    if why:
        yield Finding(status=SKIP, why=why)
        return
    asks = [{"work": "triad", "device": "cpu", "seconds": seconds, "bytes_each": each}]
    (one,) = burnt(python, scene, asks, seconds + START_S)
    if (trouble := _trouble(one)) is not None:
        yield trouble
        return
    yield from judged_triad(scene, one.answer)


def judged_triad(scene: Scene, answer: Mapping[str, Any]) -> Iterator[Seen]:
    """Evaluates the result of the memory bandwidth benchmark `burn.triad` on host memory. Yields findings and
    measurements. Pure.
    """
    if answer["wrong_elements"]:
        why = f"{answer['wrong_elements']} elements of the sum of two arrays are wrong"
        yield wrong_always("", why, others_are_right=True, category="mce_edac")
    model = cpu_model(scene, answer["threads"])
    bench = Bench(
        key=f"cpu:{model}",
        model=model,
        measures=(measure(f"memory triad, {answer['library']}", answer["rates"], "GB/s", GIGA, best=True),),
        beside=f"{counted(answer['threads'], 'thread')}, arrays of {answer['bytes_each'] >> 20} MiB",
        disturbed=disturbed(answer["had"]),
    )
    yield from judged([bench], scene.baseline)


def host_training_step(scene: Scene) -> Iterator[Seen]:
    name = "host-training-step"
    try:
        seconds = option(scene, name, "seconds", 6.0, 0.1, SECONDS_MAX)
        layers = int(option(scene, name, "layers", 2, 1, 64))
        width = int(option(scene, name, "width", 256, 64, 4096)) // 64 * 64
    except OptionRefused as error:
        yield Finding(status=SKIP, why=str(error))
        return
    python, why = python_with(scene, name, "torch")
    if why:
        yield Finding(status=SKIP, why=why)
        return
    ask = {"work": "train", "device": "cpu", "seconds": seconds, "layers": layers, "width": width}
    (one,) = burnt(python, scene, [ask | {"length": 128, "batch": 4}], seconds + START_S)
    if (trouble := _trouble(one)) is not None:
        yield trouble
        return
    model = cpu_model(scene, len(os.sched_getaffinity(0)))
    yield from judged_training(scene, one.answer, f"cpu:{model}", model, f"{layers} layers of {width}")


def judged_training(
    scene: Scene, answer: Mapping[str, Any], key: str, model: str, shape: str
) -> Iterator[Seen]:
    """Evaluates the result of the training benchmark `burn.train`. Yields findings and measurements. Pure.

    `key`, `model`: which device it ran on. `shape`: size of the model in words.
    """
    yield from no_number(answer, "")
    yield from judged(
        [
            Bench(
                key=key,
                model=model,
                measures=(training_measure(answer, shape),),
                beside=training_words(answer),
                disturbed=disturbed(answer["had"]),
            )
        ],
        scene.baseline,
    )


def training_measure(answer: Mapping[str, Any], shape: str) -> Measure:
    name = f"training {answer['type']}, {shape}, {answer['library']}"
    return measure(name, answer["rates"], "tokens/s", 1.0)


def training_words(answer: Mapping[str, Any]) -> str:
    return f"{answer['step_s'] * 1000:.4g} ms a step, median of {answer['repeats']}"


def no_number(answer: Mapping[str, Any], where: str) -> Iterator[Finding]:
    """Yields a finding if the loss of the training benchmark is NaN or infinite. `where`: the device that computed
    it.
    """
    if not answer["is_finite"]:
        yield Finding(
            status=WARN,
            device=where,
            measured="the loss is not a number",
            expected="a number",
            whence=RULE,
            why="the loss of a small training from fixed weights is not a number",
            advice=Words(
                en="Run gpu-burn or host-burn for longer: this node may compute wrong results.",
                zh="请延长运行 gpu-burn 或 host-burn：该节点的计算可能有误。",
            ),
            category="nan_loss",
        )


def _trouble(one: Burnt) -> Finding | None:
    """Returns a skip if the benchmark could not run, because a missing library is no sign of broken
    hardware.
    """
    if not (one.unable or one.error):
        return None
    return Finding(status=SKIP, why=one.unable or one.error)


# The machine ---------------------------------------------------------------------------------------------


def cpu_model(scene: Scene, count: int) -> str:
    """Returns the CPU model and the number of processors used, such as `AMD EPYC 9654 96-Core Processor
    x192`.
    """
    found = re.search(r"^model name\s*:\s*(.+)$", _text(scene, "proc/cpuinfo"), re.MULTILINE)
    return f"{' '.join(found[1].split()) if found else platform.machine()} x{count}"


def _fastest(scene: Scene) -> dict[int, int]:
    found = {}
    for core in os.sched_getaffinity(0):
        text = _text(scene, f"sys/devices/system/cpu/cpu{core}/cpufreq/cpuinfo_max_freq").strip()
        if text.isdigit():
            found[core] = int(text)
    return found


def _cache_bytes(scene: Scene) -> int:
    """Returns the total size of all L3 caches in bytes; a cache shared by several cores counts once."""
    caches: dict[str, int] = {}
    root = Path(scene.root) / "sys/devices/system/cpu"
    for folder in root.glob("cpu[0-9]*/cache/index3"):
        place = folder.relative_to(scene.root)
        size = _CACHE.match(_text(scene, f"{place}/size"))
        if size:
            caches[_text(scene, f"{place}/shared_cpu_list").strip() or str(folder)] = int(size[1]) << 10
    return sum(caches.values())


def array_bytes(cache_bytes: int, free_bytes: int) -> int:
    """Returns the size in bytes of each of the three arrays of a bandwidth benchmark; 0 if there is too
    little free memory.

    It is four times the size of the caches, and at most a tenth of the free memory.
    """
    most = min(free_bytes // 10, ARRAY_BYTES_MAX)
    wanted = max(4 * cache_bytes, ARRAY_BYTES_MIN)
    if most < max(cache_bytes, ARRAY_BYTES_MIN):
        return 0
    return min(wanted, most) >> 20 << 20


def _free_bytes(scene: Scene) -> int:
    """Returns the free memory of the node in bytes, or of this process's cgroup if that is less."""
    found = re.search(r"^MemAvailable:\s*(\d+) kB", _text(scene, "proc/meminfo"), re.MULTILINE)
    free = int(found[1]) << 10 if found else 0
    limit = _text(scene, "sys/fs/cgroup/memory.max").strip()
    used = _text(scene, "sys/fs/cgroup/memory.current").strip()
    if limit.isdigit() and used.isdigit():
        free = min(free, max(0, int(limit) - int(used)))
    return free


def _text(scene: Scene, place: str) -> str:
    try:
        return (Path(scene.root) / place).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _spec(name: str, en: str, zh: str) -> Spec:
    return Spec(
        name=name,
        area="host",
        what=Words(en=en, zh=zh),
        contexts=(MANUAL,),
        cost=NODE,
        timeout_s=TIMEOUT_S,
        needs=("torch",) if name == "host-training-step" else ("torch or numpy",),
        bench=True,
    )


CHECKS = (
    Check(
        _spec(
            "host-burn",
            "matrix products on every core, compared bit by bit between repeats and cores",
            "各核心矩阵乘法，比对重复运算与各核心结果的每一位",
        ),
        host_burn,
    ),
    Check(
        _spec("host-memory-bandwidth", "memory bandwidth (triad)", "内存带宽（triad）"), host_memory_bandwidth
    ),
    Check(
        _spec("host-training-step", "step time of a small training on the CPUs", "CPU 上小型训练的单步耗时"),
        host_training_step,
    ),
)
