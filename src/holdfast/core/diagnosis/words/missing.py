"""Lists logs that a diagnosis did not have: of ranks, of the kernel, of the scheduler. Pure.

A report shows the list, so that no reader takes an unread log for a healthy one.
"""

from collections.abc import Collection, Iterable

from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.telling import is_kernel_log
from holdfast.model.diagnoses import Diagnosis
from holdfast.model.matches import Search, Source
from holdfast.model.signatures import Words

NUMBER_MAX = 1 << 20  # of ranks and workers: a larger number in a file's name is no rank
# Classes of failures in which a device, the node or a killer of processes may be involved.
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
_SCHEDULER_TELLS = frozenset({"process", "unknown"})
NOTHING_READ = Diagnosis(
    category="unknown",
    class_="unknown",
    confidence=0.0,
    title=Words(en="there was nothing to read", zh="没有可读取的内容"),
    explanation=Words(
        en="The given path contains no log, or none that can be read.",
        zh="所给路径中没有日志，或日志无法读取。",
    ),
    advice=Words(
        en="Give the folder with the logs of the job's workers.", zh="请指定作业各 worker 日志所在的文件夹。"
    ),
)


def is_empty(search: Search) -> bool:
    return not any(source.size_bytes for source in search.sources)


def not_found(search: Search, known: KnowledgeBase, class_: str) -> tuple[Words, ...]:
    """Returns which logs are missing, the most important first.

    `class_`: class of the verdict; logs that are irrelevant for this class are left out.
    """
    if class_ == "healthy" or is_empty(search):
        return ()
    areas = {known[one.signature].area for one in search.matches if one.signature in known}
    found = [*_ranks(search.sources), *_workers(search.sources)]
    has_kernel_log = "kernel" in areas or any(is_kernel_log(source, known) for source in search.sources)
    if class_ in _KERNEL_TELLS and not has_kernel_log:
        found.append(known.text("no-kernel-log"))
    if class_ in _ENDED_TELLS and _waits_for_its_group(search, known):
        found.append(known.text("no-sign-of-meeting"))
    has_record = "scheduler" in areas or any(
        known.says("scheduler-record-name", source.name) for source in search.sources
    )
    if class_ in _SCHEDULER_TELLS and not has_record:
        found.append(known.text("no-scheduler-record"))
    return tuple(found)


def spans(numbers: Iterable[int]) -> str:
    """Returns numbers as ranges: `0-3, 5` for 0, 1, 2, 3, 5. Two consecutive numbers stay two: `6, 7`."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = [f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts]
    return ", ".join(words)


def _waits_for_its_group(search: Search, known: KnowledgeBase) -> bool:
    """Returns whether a job of several ranks was launched and nothing shows that its ranks connected."""
    ranks = {one.writer.rank for one in search.sources} | {one.writer.rank for one in search.matches}
    is_launched = len(ranks - {None}) > 1 or any(
        known.has("ranks-are-launched", one) for one in search.matches
    )
    has_met = any(known.says("signature-of-communication", one.signature) for one in search.matches) or any(
        source.last_step_offset is not None or known.says("communication-log", "".join(source.tail))
        for source in search.sources
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
                zh=f"缺少 rank {text} 的日志（已有日志的最大 rank 为 {last}）。",
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
            zh=f"缺少 worker {text} 的日志（已有日志的最大 worker 为 {last}）。",
        )
    ]


def _absent(found: Collection[int], first: int) -> list[int]:
    """Returns the missing numbers from `first` to the highest number found; empty if only one number was
    found.
    """
    known = {number for number in found if number < NUMBER_MAX}
    return sorted(set(range(first, max(known))) - known) if len(known) > 1 else []
