"""What one would have wished to read and was not given: logs of ranks, the kernel's log, the scheduler's. Pure.

It is said beside a diagnosis, so that nobody takes what was not looked at for healthy.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from holdfast.late_pattern import late
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.matches import Search, Source
from holdfast.model.signatures import Signature, Words

NUMBER_MAX = 1 << 20  # of ranks and workers: a larger number in a file's name is none
# Where a device, the node or whoever kills processes may have had a hand in it.
_KERNEL_TELLS = frozenset(
    {
        "hardware",
        "gpu_software",
        "communication",
        "memory",
        "process",
        "host",
        "network",
        "scheduler",
        "unknown",
    }
)
# A job that was ended from outside, or by its limit.
_ENDED_TELLS = frozenset({"process", "scheduler", "unknown"})
_LAUNCHED = frozenset(
    {"omp-threads-notice", "torchrun-starts", "deepspeed-launch-command", "torch-store-joined"}
)
_COLLECTIVES = late(r"^(?:nccl|rccl|hccl|gloo|torch-watchdog|collective)")
_SCHEDULER_TELLS = frozenset({"process", "unknown"})
_KERNEL_NAME = late(r"(?i)(?:^|[/._-])(?:dmesg|kmsg|kern(?:el)?|messages|syslog|journal)(?:$|[/._-])")
_KERNEL_LINE = late(
    r"^\s*(?:<\d+>)?\s*\[\s*\d{1,9}\.\d{6}\] |^\w{3} +\d+ [\d:]{8} \S+ kernel: |^\S+ \S+ kernel: "
)
_SCHEDULER_NAME = late(
    r"(?i)(?:^|[/._-])(?:slurm(?:ctld|d)?|sacct|scontrol|k8s|kube\w*|events?|pods?)(?:$|[/._-])"
)

NOTHING_READ = Diagnosis(
    category="unknown",
    class_="unknown",
    confidence=0.0,
    title=Words(en="there was nothing to read", zh="没有可读取的内容"),
    explanation=Words(
        en="What was named holds no log, or none that can be read.", zh="所给路径中没有日志,或日志无法读取。"
    ),
    advice=Words(
        en="Name the folder with the logs of the job's workers.", zh="请指定作业各 worker 日志所在的文件夹。"
    ),
)


def is_empty(search: Search) -> bool:
    return not any(source.size_bytes for source in search.sources)


def not_found(search: Search, signatures: Mapping[str, Signature], class_: str) -> tuple[Words, ...]:
    """In the order of weight. class_: of the verdict; what could not matter to it is not asked for."""
    if class_ == "healthy" or is_empty(search):
        return ()
    areas = {signatures[one.signature].area for one in search.matches if one.signature in signatures}
    found = [*_ranks(search.sources), *_workers(search.sources)]
    if class_ in _KERNEL_TELLS and "kernel" not in areas and not any(map(_is_kernel_log, search.sources)):
        found.append(
            Words(
                en="No kernel log was given (dmesg -T, journalctl -k): faults of devices and kills for want of "
                "memory may stand there.",
                zh="未提供内核日志(dmesg -T、journalctl -k):设备故障和内存不足导致的终止可能记录在其中。",
            )
        )
    if class_ in _ENDED_TELLS and _waits_for_its_group(search):
        found.append(
            Words(
                en="No line of NCCL and no step stands in the logs: if the ranks still waited for one another, compare "
                "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE of each; NCCL_DEBUG=INFO shows how far they came.",
                zh="日志中没有 NCCL 的任何输出,也没有训练步:若各 rank 仍在互相等待,请核对每个 rank 的 MASTER_ADDR、"
                "MASTER_PORT、RANK 与 WORLD_SIZE;设置 NCCL_DEBUG=INFO 可看到进展到哪一步。",
            )
        )
    if (
        class_ in _SCHEDULER_TELLS
        and "scheduler" not in areas
        and not _named(search.sources, _SCHEDULER_NAME)
    ):
        found.append(
            Words(
                en="No scheduler's record was given (sacct, kubectl get events): it may say who ended the job.",
                zh="未提供调度器记录(sacct、kubectl get events):其中可能说明是谁结束了作业。",
            )
        )
    return tuple(found)


def spans(numbers: Iterable[int]) -> str:
    """`0-3, 5` for 0, 1, 2, 3, 5; two in a row stay two: `6, 7`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = [f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts]
    return ", ".join(words)


def _waits_for_its_group(search: Search) -> bool:
    """Whether a job of several ranks was launched and nothing shows that they met."""
    seen = {one.signature for one in search.matches}
    ranks = {one.writer.rank for one in search.sources} | {one.writer.rank for one in search.matches}
    is_launched = bool(seen & _LAUNCHED) or len(ranks - {None}) > 1
    has_met = any(map(_COLLECTIVES.match, seen)) or any(
        source.last_step_offset is not None or "NCCL" in "".join(source.tail) for source in search.sources
    )
    return is_launched and not has_met


def _ranks(sources: Collection[Source]) -> list[Words]:
    found = {one.writer.rank for one in sources if one.writer.rank is not None}
    absent = _absent(found, 0)
    heard = {one.writer.rank for one in sources if one.size_bytes}
    silent = found - heard
    words = []
    if absent:
        text, last = spans(absent), max(found)
        words.append(
            Words(
                en=f"No log of {_ranks_named(absent)}, though there are logs up to rank {last}.",
                zh=f"缺少 rank {text} 的日志(已有日志的最大 rank 为 {last})。",
            )
        )
    if silent:
        text = spans(silent)
        words.append(Words(en=f"The log of {_ranks_named(silent)} is empty.", zh=f"rank {text} 的日志为空。"))
    return words


def _ranks_named(ranks: Collection[int]) -> str:
    return f"rank{'' if len(ranks) == 1 else 's'} {spans(ranks)}"


def _workers(sources: Collection[Source]) -> list[Words]:
    found = {one.writer.worker for one in sources if one.writer.worker is not None}
    absent = _absent(found, 0 if 0 in found else 1)
    if not absent:
        return []
    text, last = spans(absent), max(found)
    return [
        Words(
            en=f"No log of worker {text}, though there are logs up to worker {last}.",
            zh=f"缺少 worker {text} 的日志(已有日志的最大 worker 为 {last})。",
        )
    ]


def _absent(found: Collection[int], first: int) -> list[int]:
    """The numbers from `first` on that are not there. One number alone tells nothing of the others."""
    known = {number for number in found if number < NUMBER_MAX}
    return sorted(set(range(first, max(known))) - known) if len(known) > 1 else []


def _is_kernel_log(source: Source) -> bool:
    return bool(_KERNEL_NAME.search(source.name)) or any(_KERNEL_LINE.search(line) for line in source.tail)


def _named(sources: Iterable[Source], pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(source.name) for source in sources)
