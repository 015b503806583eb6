"""Classifies errors of the training program that cannot be judged by the words of one line. Pure.

- What filled a GPU: the sizes in an out-of-memory message show whether it was this process, or other processes on
  the device, or whether free memory was fragmented.
- Where an exception was raised: a KeyError below `load_checkpoint` is about the checkpoint.
- The same GPU fault on several ranks at once comes from the program and not from a device.

Tags, wordings and lookup tables are in signatures/rules/training.toml.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.wordings import of_code, of_words
from holdfast.model.matches import Match
from holdfast.model.signatures import EXCEPTION, Words

MIB = float(1 << 20)
GIB = float(1 << 30)
UNITS = {"B": 1.0, "bytes": 1.0, "KiB": 1024.0, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}
OWN_EXTRA_BYTES = 2 * GIB  # context and communication buffers of a process, beside what the allocator counts
OTHERS_MIN_BYTES = 4 * GIB
OTHERS_MIN_SHARE = 0.25  # of the device: less than that does not decide whether a model fits
UNUSED_MIN_BYTES = 1 * GIB
OTHERS_NAMED = 4
# The more clearly the place shows what the exception is about, the higher the weight.
PROGRAM_WEIGHT = 0.92
SHARED_WEIGHT = 0.9
DELETED_WEIGHT = 0.84
PLACE_WEIGHT = 0.76
FILE_WEIGHT = 0.68
KIND_WEIGHT = 0.66


class MemoryReport(Struct, frozen=True, kw_only=True):
    """Sizes in a PyTorch out-of-memory message, in bytes; None if not given.

    `device`: GPU index, "" if not given.
    """

    device: str
    tried: float
    total: float
    free: float
    this_process: float | None
    allocated: float | None
    unused: float | None

    @property
    def held_by_others(self) -> float | None:
        """Returns the bytes that are neither free nor held by this process; None if this process's part is
        unknown.

        In a container the driver's process ids differ from those of the container, and torch then lists this
        process as another one. Only what PyTorch itself counts is certain to belong to this process.
        """
        if self.this_process is not None:
            return self.total - self.free - self.this_process
        if self.allocated is not None:
            return self.total - self.free - self.allocated - (self.unused or 0.0) - OWN_EXTRA_BYTES
        return None


def rulings(matches: Sequence[Match], known: KnowledgeBase) -> dict[int, Ruling]:
    """Returns the rulings that replace signatures of training errors, by id() of the match."""
    found: dict[int, Ruling] = {}
    for match in matches:
        rules = (of_memory,) if known.has("gives-memory-sizes", match) else RULES
        ruling = next((ruling for rule in rules if (ruling := rule(match, known))), None)
        if ruling is not None:
            found[id(match)] = ruling
    return found | _of_many(matches, known)


def of_shared_memory(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling if an error means that /dev/shm, and not a disk, has no space for a lock or segment of shared
    memory; otherwise None.
    """
    if not (known.has("no-space-left", match) and known.says("keeps-shared-memory", match.innermost)):
        return None
    return Ruling(category="shm_oom", weight=SHARED_WEIGHT, decided_by=_raised_in(match.innermost))


def of_deletion(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling if an error is about a missing file that was to be deleted or moved: no data is lost, because
    another rank did it first; otherwise None.
    """
    if not known.has("file-missing-exception", match) or match.error_type != "FileNotFoundError":
        return None
    function = _function(match.innermost)
    deletes = known.says("deletes-files", function)
    if not deletes and not known.says("file-to-move-missing", match.text):
        return None
    return Ruling(
        category="python_exception",
        weight=DELETED_WEIGHT,
        action="fix_code",
        title=Words(
            en="a file that should be deleted or moved no longer exists",
            zh="要删除或移动的文件已不存在",
        ),
        explanation=Words(
            en="Several ranks clean up the same folder: only the first one finds the files.",
            zh="多个 rank 清理同一目录时会互相抢先：只有第一个能找到文件。",
        ),
        advice=Words(
            en="Let one rank per file system delete and rename while the others wait at a barrier; newer releases of most trainers do.",
            zh="每个文件系统只由一个 rank 删除和重命名，其余 rank 在 barrier 处等待；多数训练框架的新版本已如此处理。",
        ),
        decided_by=_raised_in(function) if deletes else None,
    )


def of_program(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling if an error means that Python could not start a program because it is not installed, so that
    no data is missing; otherwise None.
    """
    found = known.found("program-missing", match.text)
    if not known.has("file-missing-exception", match) or found is None:
        return None
    if not known.says("starts-program", _function(match.innermost)):
        return None
    name = found["name"]
    return Ruling(
        category="import_error",
        weight=PROGRAM_WEIGHT,
        title=Words(en=f"the program {name} is not installed", zh=f"此处未安装程序 {name}"),
        explanation=Words(
            en="Python tried to start it as a process, but it is not on PATH in this container or node.",
            zh="Python 需要启动该程序，但此容器或节点的 PATH 中没有它。",
        ),
        advice=Words(
            en=f"Install {name} in the image, or put its folder on PATH of the job.",
            zh=f"在镜像中安装 {name}，或将其所在目录加入作业的 PATH。",
        ),
        decided_by=_raised_in("subprocess.Popen"),
    )


def memory_report(text: str, known: KnowledgeBase) -> MemoryReport | None:
    """Returns the sizes in an out-of-memory message of a GPU allocator; None if the text has none."""
    tried = _size(known.found("memory-tried", text))
    total = _size(known.found("memory-total", text))
    free = _size(known.found("memory-free", text))
    if tried is None or total is None or free is None:
        return None
    allocated = _size(known.found("memory-allocated", text))
    reserved = _size(known.found("memory-reserved", text))
    unused = _size(known.found("memory-unused", text))
    if unused is None and reserved is not None and allocated is not None:
        unused = max(0.0, reserved - allocated)
    device = known.found("memory-device", text)
    return MemoryReport(
        device=device["device"] if device else "",
        tried=tried,
        total=total,
        free=free,
        this_process=_size(known.found("memory-this-process", text)),
        allocated=allocated,
        unused=unused,
    )


def of_memory(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling if other processes filled the GPU, or free memory was fragmented.

    None means that this process itself needs too much memory.
    """
    report = memory_report(match.text, known)
    if report is None:
        return None
    others = report.held_by_others
    if others is not None and others >= max(OTHERS_MIN_BYTES, OTHERS_MIN_SHARE * report.total):
        named = _others_named(match.text, known) if report.this_process else ""
        return _held_by_others(report, others, named, known)
    if report.unused is not None and report.unused >= max(report.tried, UNUSED_MIN_BYTES):
        return _fragmented(report, report.unused, known)
    return None


def of_place(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling for an exception whose message says little, by the user's function that raised it; None if
    that says nothing either.
    """
    function = _function(match.frame)
    is_of_none = known.has("none-in-place-of-value", match) and known.says("names-none", match.text)
    if is_of_none and known.says("reads-data", function):
        return Ruling(category="data_error", weight=PLACE_WEIGHT, decided_by=_raised_in(function))
    if not known.has("exception-judged-by-place", match) or known.says("mistake-of-names", _kind(match)):
        return None
    row = known.read("function-about", function) if function else None
    return (
        Ruling(category=row.category, weight=PLACE_WEIGHT, decided_by=_raised_in(function)) if row else None
    )


def of_file(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling for an exception whose message says little, by the user's file that raised it; None if that
    says nothing either.
    """
    place, _, function = match.frame.rpartition(" ")
    if not known.has("exception-judged-by-place", match) or not known.says("raised-for-input", _kind(match)):
        return None
    row = known.read("file-about", place.rpartition(":")[0])
    if row is None:
        return None
    saves = row.category == "checkpoint_load_error" and known.says("writes", function)
    category = "checkpoint_save_error" if saves else row.category
    return Ruling(category=category, weight=FILE_WEIGHT, decided_by=_raised_in(place))


def of_kind(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling for an exception without a signature, by its type name, such as a library's
    ConfigError.
    """
    row = known.read("own-exception-about", _kind(match)) if match.signature == EXCEPTION else None
    return Ruling(category=row.category, weight=KIND_WEIGHT, action=row.action) if row else None


def of_check(match: Match, known: KnowledgeBase) -> Ruling | None:
    """Returns a ruling for an exception of a settings check, recognised by its function or file."""
    if _kind(match) == "KeyError" and known.says("environment-lookup", match.innermost):
        return Ruling(
            category=match.category,
            weight=PLACE_WEIGHT,
            action="fix_config",
            decided_by=_raised_in("os.environ"),
        )
    place = _place_of_check(match, known)
    if not known.has("exception-judged-by-place", match) or not place:
        return None
    return Ruling(
        category=match.category, weight=FILE_WEIGHT, action="fix_config", decided_by=_raised_in(place)
    )


def is_raised_by_a_check(match: Match, known: KnowledgeBase) -> bool:
    """Returns whether a check of settings raised the exception, whatever its message."""
    return bool(_place_of_check(match, known))


def _place_of_check(match: Match, known: KnowledgeBase) -> str:
    """Returns the function or file that shows that the exception is from a settings check; "" if there is
    none.
    """
    place, _, function = match.innermost.rpartition(" ")
    file = place.rpartition(":")[0]
    if not known.says("raised-by-check", _kind(match)) or known.says("how-to-call-a-function", match.text):
        return ""
    if known.says("checks-settings", function):
        return function
    return file if known.says("file-of-settings", file) else ""


RULES = (
    of_shared_memory,
    of_deletion,
    of_program,
    of_place,
    of_words,
    of_kind,
    of_check,
    of_file,
    of_code,
)


def _of_many(matches: Sequence[Match], known: KnowledgeBase) -> dict[int, Ruling]:
    seen = [one for one in matches if known.has("device-suspected", one) and one.writer.rank is not None]
    if len({one.writer.rank for one in seen}) < 2:
        return {}
    return {
        id(one): Ruling(
            category=one.category,
            severity="fatal",
            weight=0.85,
            action="fix_code",
            decided_by=ON_SEVERAL_RANKS,
        )
        for one in seen
    }


def _others_named(text: str, known: KnowledgeBase) -> str:
    """Returns the other processes in a message, as "88112: 61.20 GiB, 88113: 512.00 MiB"; "" if it names
    none.
    """
    return ", ".join(f"{one['pid']}: {one['size']}" for one in islice(_others(text, known), OTHERS_NAMED))


def _others(text: str, known: KnowledgeBase) -> Iterator[re.Match[str]]:
    while found := known.found("memory-of-other-process", text):
        yield found
        text = text[found.end() :]


def _held_by_others(report: MemoryReport, others: float, named: str, known: KnowledgeBase) -> Ruling:
    """Returns the ruling that other processes filled the GPU.

    `named`: the processes that the message lists, with process ids of the host.
    """
    held, total = gib(others), gib(report.total)
    return Ruling(
        category="gpu_oom_external_process",
        severity="fatal",
        weight=0.93,
        action="restart",
        title=Words(
            en=(
                f"{f'GPU {report.device}' if report.device else 'the GPU'} is full, but not because of this "
                f"process: other processes hold {held} of {total}"
            ),
            zh=f"GPU{f' {report.device} ' if report.device else ' '}显存已满，但并非本进程所致：其他进程占用 {held}（共 {total}）",
        ),
        explanation=Words(
            en="The sizes in the message show that another process uses the same GPU."
            + (f" The message names process {named}." if named else ""),
            zh="报错中的数值表明同一 GPU 上还有其他进程占用显存。"
            + (f"报错中的进程：{named}。" if named else ""),
        ),
        advice=known.text("memory-held-by-others-advice"),
        decided_by=BY_SIZES,
    )


def _fragmented(report: MemoryReport, unused: float, known: KnowledgeBase) -> Ruling:
    lay, tried = gib(unused), gib(report.tried)
    return Ruling(
        category="gpu_oom",
        severity="fatal",
        weight=0.97,
        title=Words(
            en=f"GPU memory is fragmented: {lay} are reserved but unused, yet {tried} could not be allocated",
            zh=f"显存碎片化：已保留未使用 {lay}，却无法分配 {tried}",
        ),
        explanation=Words(
            en="The allocator's cache holds more free memory than was requested, but in pieces that are too small.",
            zh="分配器缓存中的空闲显存多于请求量，但都是过小的碎片。",
        ),
        advice=known.text("memory-fragmented-advice"),
        decided_by=BY_SIZES,
    )


def gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.0f} MiB"


def _size(found: re.Match[str] | None) -> float | None:
    return _number(found["size"]) * UNITS[found["unit"]] if found else None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # "1.2.3"
        return 0.0


def _kind(match: Match) -> str:
    """Returns the exception's type name without its module."""
    return match.error_type.rpartition(".")[2]


def _function(frame: str) -> str:
    """Returns the function of a frame: "main" of "train.py:31 main"."""
    return frame.rpartition(" ")[2]


def _raised_in(function: str) -> Words:
    return Words(en=f"the function that raised it: {function}", zh=f"抛出异常的函数：{function}")


BY_SIZES = Words(en="the sizes in the message", zh="报错中的显存数值")
ON_SEVERAL_RANKS = Words(en="the same fault on several ranks", zh="多个 rank 出现相同故障")
