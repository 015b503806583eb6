"""Checks CPUs and memory: how much the node has, and how much the training may use."""

import os
import re
from collections import Counter
from collections.abc import Iterator

from holdfast.checks.readers.node_files import NodeFiles
from holdfast.checks.readers.own_cgroup import cpu_quota, memory_limit
from holdfast.checks.registry import Check, Seen
from holdfast.core.checks.host import (
    Memory,
    judge_cores,
    judge_fewer,
    judge_governor,
    judge_memory,
)
from holdfast.core.checks.node_findings import size, skipped
from holdfast.model.checks import BOOT, CONTINUOUS, MANUAL, ON_FAILURE, PROLOG, Fact, Scene, Spec
from holdfast.model.signatures import Words
from holdfast.observe.host.node_counters import parse_meminfo

CPUS = "/sys/devices/system/cpu"
MEMORY_SHARE = 0.05  # what kernels, firmware and crash dumps set aside differs by less
_CORES = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)
_FULL = re.compile(r"^full avg10=\S+ avg60=(\S+)", re.MULTILINE)


def look_at_processors(scene: Scene) -> Iterator[Seen]:
    files = NodeFiles(scene)
    online = count_of_list(files.word(f"{CPUS}/online"))
    allowed, of_what = _allowed(files)
    yield judge_cores(allowed, of_what, scene.ranks)
    governor = judge_governor(*_governors(files))
    if governor is not None:
        yield governor
    if online:
        before = scene.baseline.of("node", "processors")
        yield from judge_fewer("fewer processors", online, before, str(online), str(before), 0.0)
        yield Fact(name="processors", value=online, learn=True)


def _allowed(files: NodeFiles) -> tuple[float, str]:
    found = _CORES.search(files.text("/proc/self/status"))
    cores = count_of_list(found[1]) if found else 0
    cores, quota = cores or len(os.sched_getaffinity(0)), cpu_quota(files)
    if quota is not None and quota < cores:
        return quota, "CPU limit of the cgroup"
    return cores, "CPU affinity of this process"


def count_of_list(text: str) -> int:
    """Returns the number of CPUs in a kernel CPU list: 5 for `0-3,8`. 0 if the text is not such a list."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return 0
        count += int(last or first) - int(first) + 1
    return count


def _governors(files: NodeFiles) -> tuple[Counter[str], str]:
    governors: Counter[str] = Counter()
    driver = ""
    for name in files.entries(f"{CPUS}/cpufreq"):
        here = f"{CPUS}/cpufreq/{name}"
        governor = files.word(f"{here}/scaling_governor")
        if governor:
            cores = files.word(f"{here}/affected_cpus").split()
            governors[governor] += len(cores) or 1
            driver = driver or files.word(f"{here}/scaling_driver")
    return governors, driver


def look_at_memory(scene: Scene) -> Iterator[Seen]:
    files = NodeFiles(scene)
    fields = parse_meminfo(files.text("/proc/meminfo"))
    total, available = fields.get("MemTotal", 0), fields.get("MemAvailable")
    if not total or available is None:
        yield skipped("/proc/meminfo cannot be read")
        return
    limit = memory_limit(files)
    stalled = _FULL.search(files.text("/proc/pressure/memory"))
    memory = Memory(
        total=total,
        available=available,
        swap_used=max(
            0, fields.get("SwapTotal", 0) - fields.get("SwapFree", 0) - fields.get("SwapCached", 0)
        ),
        group_left=limit.limit_bytes - limit.used_bytes if limit else None,
        group_limit=limit.limit_bytes if limit else 0,
        stalled=float(stalled[1]) if stalled else None,
        huge_idle=_idle_huge(files),
    )
    yield from judge_memory(memory, scene.ranks)
    before = scene.baseline.of("node", "memory")
    yield from judge_fewer("less memory", total, before, size(total), size(before or 0), MEMORY_SHARE)
    yield Fact(name="memory", value=total, learn=True, unit="B")


def _idle_huge(files: NodeFiles) -> int:
    """Returns the bytes of free huge pages, over all page sizes."""
    folder = "/sys/kernel/mm/hugepages"
    idle = 0
    for name in files.entries(folder):
        found = re.fullmatch(r"hugepages-(\d+)kB", name)
        if found:
            idle += int(found[1]) * 1024 * (files.number(f"{folder}/{name}/free_hugepages") or 0)
    return idle


CHECKS = (
    Check(
        Spec(
            name="host-cpu",
            area="host",
            what=Words(
                en="CPUs that the training may use, and their frequency governor",
                zh="训练可用的 CPU 核心及其调频策略",
            ),
            contexts=(BOOT, PROLOG, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_processors,
    ),
    Check(
        Spec(
            name="host-memory",
            area="host",
            what=Words(en="free memory, memory limits, swap, huge pages", zh="可用内存、限额、交换与大页"),
            contexts=(BOOT, PROLOG, CONTINUOUS, ON_FAILURE, MANUAL),
            quick=True,
        ),
        look_at_memory,
    ),
)
