"""Judges CPUs, memory, processes and clock of a node against the requirements of a run. Pure.

sources: Linux, Documentation/admin-guide/pm/cpufreq.rst, filesystems/proc.rst (meminfo), accounting/psi.rst;
adjtimex(2); chronyc(1), tracking
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.checks.node_findings import passed, size, skipped, warned
from holdfast.core.plurals import counted
from holdfast.model.checks import ASKED, BASELINE, RULE, Finding

MIB, GIB = 1 << 20, 1 << 30
# With these drivers "powersave" is the default governor, and raises the frequency under load.
SCALES_BY_ITSELF = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")


def judge_governor(governors: Mapping[str, int], driver: str) -> Finding | None:
    """Returns a finding about CPU frequency governors; None if they cannot be judged.

    `governors`: number of CPUs with each governor.
    """
    if not governors:
        return None
    slow = governors.get("powersave", 0)
    if not slow or driver in SCALES_BY_ITSELF:
        return passed(", ".join(f"{name} on {count}" for name, count in sorted(governors.items())))
    return warned(
        f"powersave on {slow} of {sum(governors.values())} processors ({driver})",
        "performance, or one that scales up",
        RULE,
        why="the CPUs stay at their lowest frequency, so launching work on the GPUs is slow",
        en="`cpupower frequency-set -g performance`.",
        zh="执行 `cpupower frequency-set -g performance`。",
        category="straggler",
    )


def judge_cores(allowed: float, of_what: str, ranks: int | None) -> Finding:
    """Returns the finding about the number of CPUs that the run may use.

    `allowed`: this number, by affinity and quota; `of_what`: the name of the tighter limit.
    """
    measured = f"{allowed:g} processors"
    if ranks is None or allowed >= ranks:
        return passed(measured)
    return warned(
        f"{measured} for {counted(ranks, 'rank')}",
        f"at least {ranks}",
        ASKED,
        why=f"{counted(ranks, 'rank shares', 'ranks share')} {allowed:g} processors ({of_what}); they slow each other down",
        en="Give the container or job more processors (--cpus, cpu.max, --cpus-per-task), or start fewer ranks.",
        zh="为容器或作业分配更多 CPU（--cpus、cpu.max、--cpus-per-task），或减少 rank 数。",
        category="straggler",
    )


def judge_fewer(
    what: str, now: float, learned: float | None, shown: str, shown_before: str, share: float
) -> list[Finding]:
    """Returns a finding if the node has fewer CPUs or less memory than in the baseline.

    `what`: "less memory" or "fewer CPUs". `share`: the share that may be missing without a finding.
    """
    if not learned or now >= learned * (1 - share):
        return []
    return [
        warned(
            shown,
            shown_before,
            BASELINE,
            why=f"the node has {what} than at the first good boot: {shown}, not {shown_before}",
            en="A module or processor may have failed: check `dmesg`, `ipmitool sel list` and `edac-util`.",
            zh="可能有内存条或处理器失效：查看 `dmesg`、`ipmitool sel list` 与 `edac-util`。",
            category="mce_edac",
        )
    ]


RANK_BYTES = 512 * MIB  # a rank of PyTorch with CUDA uses more than this before its first step
SWAP_LEAST = 1 * GIB
AVAILABLE_SHARE = 0.10
STALLED_PERCENT = 10.0
HUGE_SHARE = 0.5


class Memory(Struct, frozen=True, kw_only=True):
    """The memory of a node, in bytes.

    `group_left`: memory left within the cgroup's limit; None without a limit. `stalled`: percent of the last minute
    in which all tasks waited for memory; None if unknown. `huge_idle`: memory reserved for unused huge pages.
    """

    total: int
    available: int
    swap_used: int = 0
    group_left: int | None = None
    group_limit: int = 0
    stalled: float | None = None
    huge_idle: int = 0


def judge_memory(memory: Memory, ranks: int | None) -> list[Finding]:
    """Returns findings on the memory available to a run."""
    found = [*_too_little(memory, ranks), *_swapping(memory)]
    if memory.huge_idle > memory.total * HUGE_SHARE:
        found.append(
            warned(
                f"{size(memory.huge_idle)} of {size(memory.total)} kept for unused huge pages",
                f"less than {HUGE_SHARE:.0%}",
                RULE,
                why=f"{size(memory.huge_idle)} are reserved for huge pages; the run cannot use them",
                en="`sysctl vm.nr_hugepages=0`, or as many as are used.",
                zh="执行 `sysctl vm.nr_hugepages=0`，或按实际使用量设置。",
                category="host_oom",
            )
        )
    return found or [passed(f"{size(memory.available)} available of {size(memory.total)}")]


def _too_little(memory: Memory, ranks: int | None) -> list[Finding]:
    need = max(ranks or 0, 1) * RANK_BYTES
    for_what = counted(ranks, "rank") if ranks else "a training"
    found = []
    if memory.available < need:
        found.append(
            warned(
                f"{size(memory.available)} available of {size(memory.total)}",
                f"at least {size(need)} for {for_what}",
                ASKED,
                why=f"only {size(memory.available)} of memory are available for {for_what}",
                en="Find which processes hold the memory (`ps aux --sort=-rss | head`, `df -h /dev/shm`), and end leftover ones.",
                zh="查看占用者（`ps aux --sort=-rss | head`、`df -h /dev/shm`），结束残留进程。",
                category="host_oom",
            )
        )
    if memory.group_left is not None and memory.group_left < need:
        found.append(
            warned(
                f"{size(memory.group_left)} left of the limit of {size(memory.group_limit)}",
                f"at least {size(need)} for {for_what}",
                ASKED,
                device="control group",
                why=f"the memory limit of the container or job leaves {size(memory.group_left)} for {for_what}",
                en="Raise the limit (resources.limits.memory, --mem, --memory), or start fewer ranks.",
                zh="提高内存限额（resources.limits.memory、--mem、--memory），或减少 rank 数。",
                category="cgroup_oom",
            )
        )
    return found


def _swapping(memory: Memory) -> list[Finding]:
    """Returns a finding on swapping.

    Unused swapped memory is harmless: memory must be short too, or tasks must wait for it.
    """
    short = memory.available < memory.total * AVAILABLE_SHARE
    stalled = memory.stalled is not None and memory.stalled >= STALLED_PERCENT
    if not (memory.swap_used >= SWAP_LEAST and short or stalled):
        return []
    wait = f"; all wait for memory {memory.stalled:.0f}% of the time" if memory.stalled else ""
    return [
        warned(
            f"{size(memory.swap_used)} in swap, {size(memory.available)} available{wait}",
            "no swapping",
            RULE,
            device="swap",
            why="the node is short of memory and swaps, which slows every rank down",
            en="End the processes that hold the memory (`ps aux --sort=-rss | head`), then `swapoff -a && swapon -a`.",
            zh="结束占用内存的进程（`ps aux --sort=-rss | head`），然后执行 `swapoff -a && swapon -a`。",
            category="host_oom",
        )
    ]


class NumaNode(Struct, frozen=True):
    """A NUMA node of the machine."""

    number: int
    processors: str  # "0-15"; empty: it has none
    memory_bytes: int


def judge_numa(nodes: Sequence[NumaNode]) -> list[Finding]:
    """Returns findings on NUMA nodes.

    Nodes without CPUs belong to accelerators or far memory; CPUs without memory are a fault.
    """
    empty = [one for one in nodes if one.processors and not one.memory_bytes]
    if len(nodes) < 2 or not empty:
        return [passed(f"{len(nodes)} NUMA nodes" if len(nodes) != 1 else "1 NUMA node")]
    return [
        warned(
            "no memory",
            "memory on every NUMA node that has CPUs",
            RULE,
            device=f"NUMA node {one.number}",
            why=f"processors {one.processors} have no local memory; all their memory is remote",
            en="Memory modules may be missing or switched off: check `dmidecode -t memory` and the firmware's log.",
            zh="内存条可能缺失或被停用：查看 `dmidecode -t memory` 与固件日志。",
            category="mce_edac",
        )
        for one in empty
    ]


ZOMBIES_MANY = 200


class Blocked(Struct, frozen=True):
    """A process that was in state D during the whole observation.

    `where`: the kernel function; empty if unknown.
    """

    pid: int
    name: str
    where: str
    seconds: float


def judge_processes(zombies: Mapping[str, int], blocked: Sequence[Blocked]) -> list[Finding]:
    """Returns findings on processes in state D and on zombies. `zombies`: number by parent, "name (pid)"."""
    found = []
    count = sum(zombies.values())
    if count >= ZOMBIES_MANY:
        parent = max(zombies, key=lambda name: zombies[name])
        found.append(
            warned(
                f"{count} zombies, {zombies[parent]} of {parent}",
                f"fewer than {ZOMBIES_MANY}",
                RULE,
                why=f"{counted(count, 'process has', 'processes have')} ended and {parent} does not collect {'it: it uses' if count == 1 else 'them; they use'} up process ids",
                en=f"Restart {parent}; in a container start a real init (--init).",
                zh=f"重启 {parent}；容器请使用真正的 init（--init）。",
                category="host_limit",
            )
        )
    found += [_blocked(one) for one in blocked[:16]]
    return found or [passed(f"{count} zombies, none blocked")]


def _blocked(one: Blocked) -> Finding:
    where = f" in {one.where}" if one.where else ""
    return warned(
        f"state D{where} for {one.seconds:g} s and longer",
        "none that lasts",
        RULE,
        device=f"pid {one.pid}",
        why=f"{one.name} (pid {one.pid}) waits in the kernel{where} and cannot be interrupted",
        en="A disk, a network file system or a driver does not answer: see io-mounts and the kernel log; a reboot clears it.",
        zh="磁盘、网络文件系统或驱动无应答：参见 io-mounts 与内核日志；重启可清除。",
        category="hung_task",
    )


OFFSET_WARN_S = 0.1


class ClockState(Struct, frozen=True, kw_only=True):
    """The synchronisation state of the system clock.

    `offset_s`: from the time source, if a tool reports it; `source`: that tool. `synced`: the kernel's flag;
    None if unknown.
    """

    synced: bool | None = None
    estimated_error_s: float | None = None
    offset_s: float | None = None
    source: str = ""


def judge_clock(clock: ClockState) -> Finding:
    """Returns the finding on the clock's offset."""
    if clock.offset_s is not None:
        measured = f"{clock.offset_s * 1000:+.1f} ms off ({clock.source})"
        return passed(measured) if abs(clock.offset_s) <= OFFSET_WARN_S else _off(measured)
    if clock.synced is None:
        return skipped("the kernel does not report the state of its clock")
    if not clock.synced:
        return skipped(
            "no time service reports synchronisation to the kernel, so the clock's offset is unknown"
        )
    error_s = clock.estimated_error_s or 0.0
    measured = f"synchronised, error about {error_s * 1000:.1f} ms"
    return passed(measured) if error_s <= OFFSET_WARN_S else _off(measured)


def _off(measured: str) -> Finding:
    return warned(
        measured,
        f"within {OFFSET_WARN_S * 1000:.0f} ms",
        RULE,
        why="the clock of this node is wrong, so times of different nodes cannot be compared",
        en="Check the time service (`chronyc sources`, `timedatectl`), and step the clock: `chronyc makestep`.",
        zh="检查时间服务（`chronyc sources`、`timedatectl`），并校正时钟：`chronyc makestep`。",
    )


def chrony_offset_s(line: str) -> float | None:
    """Parses the clock's offset in seconds from a line of `chronyc -c tracking`; None if chrony is not
    synchronised.

        A29FC87B,162.159.200.123,4,1606.1,0.000048,-0.0000123,...,0.5,Normal

    Field 5 is the system time's offset, positive if it is behind the source; the last is the leap status.
    """
    fields = line.strip().split(",")
    if len(fields) < 14 or fields[-1] == "Not synchronised":
        return None
    try:
        return float(fields[4])
    except ValueError:
        return None
