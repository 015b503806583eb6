"""Rules for errors of the training program where the words of one line do not suffice. Pure.

- Who filled a GPU: the sizes in an out-of-memory message tell whether this process did, or others on the same
  device, or whether memory was there but in pieces.
- Where an exception was raised: a KeyError below `load_checkpoint` is about the checkpoint.
- The same fault of a GPU on several ranks at once is the program, not a device.

source of the message: torch, c10/cuda/CUDACachingAllocator.cpp, versions 1.0 to 2.13
"""

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.diagnosis.candidates import Ruling
from holdfast.core.diagnosis.words.wordings import OF_A_CALL, of_code, of_words
from holdfast.late_pattern import late
from holdfast.model.matches import Match
from holdfast.model.signatures import EXCEPTION, Words

OUT_OF_MEMORY = "gpu-out-of-memory"
MIB = float(1 << 20)
GIB = float(1 << 30)
UNITS = {"B": 1.0, "bytes": 1.0, "KiB": 1024.0, "MiB": MIB, "GiB": GIB, "TiB": 1024 * GIB}
SIZE = r"(?P<{}>[\d.]+) (?P<{}_unit>[KMGT]iB|bytes|B)"
SIZES = {
    "tried": r"Tried to allocate {}",
    "total": r"total capac\w*ty of {}|{} total capacity",
    "free": r"of which {} is free|; {} free",
    "this_process": r"this process has {} memory in use",
    "allocated": r"{} is allocated by PyTorch|{} already allocated",
    "reserved": r"{} (?:reserved in total by PyTorch|cached\b)",
    "unused": r"{} is reserved by PyTorch but unallocated",
}
DEVICE = late(r"\bGPU (?P<device>\d+)")
# Who deletes or moves a file of several ranks is the second to do so where it is not there.
MISSING_FILE = frozenset({"file-not-found", "checkpoint-file-missing", EXCEPTION})
DELETES = late(
    r"_*(?:rm_?tree|unlink|remove|rmdir|del(?:ete)?|rotate|prune|purge|clean(?:_?up)?|rename|replace|move)(?:_\w+)?"
)
MOVES = late(r"No such file or directory: '[^']+' -> '")
DELETED_WEIGHT = 0.84
# A program that Python was to start, by its bare name, is looked for on PATH.
STARTS_PROGRAM = "_execute_child"
PROGRAM = late(r"No such file or directory: '(?P<name>[^'/\\]+)'\s*$")
PROGRAM_WEIGHT = 0.92
DISK_FULL = "disk-full"
KEEPS_SHARED = late(r"[/\\]multiprocessing[/\\](?:synchronize|shared_memory|heap)\.py:")
SHARED_WEIGHT = 0.9
OWN_EXTRA_BYTES = 2 * GIB  # context, NCCL and cuBLAS buffers of a process, beside what PyTorch counts
OTHERS_MIN_BYTES = 4 * GIB
OTHERS_MIN_SHARE = 0.25  # of the device: less than that does not decide whether a model fits
UNUSED_MIN_BYTES = 1 * GIB

# Exceptions whose words say too little; their place may say more.
VAGUE = frozenset({EXCEPTION, "key-or-index-missing", "assertion-without-words", "checkpoint-key-missing"})
# What a file of its kind raises for what it was given, and not for how it is written.
OF_FILES = frozenset(
    {"KeyError", "ValueError", "AssertionError", "IndexError", "RuntimeError", "EOFError", "Exception"}
)
CODE_ERRORS = frozenset({"NameError", "UnboundLocalError", "TypeError", "AttributeError", "SyntaxError"})
# Raised where None stands for what should be there: a reader of images or rows gives it for what it cannot read.
OF_NONE = VAGUE | {"none-has-no-attribute", "wrong-type"}
READS_DATA = (
    r"_*(?:load|read|open|decode|parse|fetch)_\w*"
    r"(?:sample|image|record|shard|data|dataset|video|audio|example|annotation|tfrecord)s?"
)
STATE = r"check_?point|ckpt|state(?:_?dict)?|weights|snapshot|pretrained|optim(?:izer)?"
PLACES = (
    (
        late(rf"_*(?:load|restore|resume|read)\w*(?:{STATE})\w*|resume\w*|from_pretrained"),
        "checkpoint_load_error",
    ),
    (late(rf"_*(?:save|write|dump)\w*(?:{STATE}|model)\w*"), "checkpoint_save_error"),
    (late(rf"__getitems?__|{READS_DATA}"), "data_error"),
)
GAVE_NONE = late(READS_DATA)
# Where the function has no telling name, its file may: who reads data, who reads checkpoints.
FILES = (
    (
        late(r"(?:.*[/\\])?\w*(?:zero_to_fp32|check_?point(?:er|ing|s)?|ckpt\w*|state_dict\w*)\.py|.*[/\\]dist_checkpointing[/\\].*"),
        "checkpoint_load_error",
    ),
    (
        late(
            r"(?:.*[/\\])?(?:\w*_)?(?:datasets?|data_?loaders?|data_?(?:utils|module|pipeline|processing|collators?|prep\w*)|collat\w+|tokeni[sz]\w+)\.py"
            r"|.*[/\\](?:datasets?|dataloaders?|tokenizers?)[/\\](?:tokenizers?[/\\])?\w+\.py"
        ),
        "data_error",
    ),
)  # fmt: skip
# What checks settings raises for what was set, however it words that: by its function, or its file.
CHECKED = frozenset({"ValueError", "AssertionError", "RuntimeError", "Exception"})
SETTINGS = r"(?:(?<!kw)args?|arguments?|config\w*|cfg|options?|settings?|flags|hparams)"
CHECKS_SETTINGS = late(
    rf"__post_init__|_*(?:validate|verify|check|ensure|sanity|finali[sz]e|parse|resolve)_(?:\w+_)?{SETTINGS}"
    rf"|(?:\w+_)?{SETTINGS}_(?:check|valid\w*|finali[sz]e|sanity)\w*"
)
OF_SETTINGS = late(
    r"(?:.*[/\\])?(?:\w+_)?(?:configs?|configuration|cfg|arg(?:s|uments?|parser)?|options|settings|hparams)(?:_\w+)?\.py"
)
OF_THE_ENVIRONMENT = late(r"(?:<frozen os>|[/\\]os\.py):\d+ __getitem__$")  # a variable that is not set
WRITES = late(r"_*(?:save|write|dump|store)\w*")
PLACE_WEIGHT = 0.76
FILE_WEIGHT = 0.68

# What libraries name their own exceptions after; (category, action).
KINDS_OF_THEIR_OWN = (
    (
        late(
            r"\w*(?:[Cc]onfig(?:uration)?|Settings?|Validation|Usage|Option|Flags?)\w{0,12}(?:Error|Exception)"
        ),
        ("python_exception", "fix_config"),
    ),
    (
        late(
            r"(?:Path|File|Object|Dataset|Shard|Sample|Array|Table|Split)s?(?:NotFound|Missing|Corrupt\w*)(?:Error)?"
        ),
        ("data_error", ""),
    ),
    (late(r"\w*(?:OutOfMemory|OOM)\w*"), ("gpu_oom", "")),
    (late(r"\w*(?:NoSpace|DiskFull|Quota)\w*"), ("disk_full", "")),
    (late(r"\w*Versions?(?:Mismatch|Conflict|Incompatib\w*|NotSupported|Unsupported)?\w*(?:Error|Exception)|\w*VersionConflict"), ("version_mismatch", "")),
    (late(r"\w*(?:Import|Dependenc(?:y|ies)|Packages?|Modules?)(?:NotFound|Missing|Unavailable)?(?:Error|Exception)"), ("import_error", "")),
    (late(r"\w*(?:Permission|Forbidden|AccessDenied|Unauthori[sz]ed|Authentication|Authori[sz]ation|Credentials?)\w*"), ("permission_error", "")),
    (late(r"\w*(?:Checkpoint\w*|Ckpt|StateDict|Safetensors?|Unpickling)(?:Error|Exception)"), ("checkpoint_load_error", "")),
    (late(r"\w*(?:Compil\w+|Lowering|Codegen)\w*(?:Error|Exception|Failed|Failure)"), ("compile_error", "")),
    (late(r"\w*(?:N[Aa]N|NonFinite|Diverge\w*)\w*(?:Error|Exception|Loss\w*|Training)"), ("nan_loss", "")),
    (late(r"(?:Data|Dataset\w*|Shard|Sample|Record|Image|Audio|Video|Arrow|Parquet|Avro|Tar|Zip|Decod(?:e|ing|er)|Tokeni[sz]\w*|\w*[Ss]ndfile|HDF5|Lmdb|LMDB|TFRecord)s?(?:Read|Load|Format|Decod\w*|Integrity|Corruption)?(?:Error|Exception|Invalid)"), ("data_error", "")),
)  # fmt: skip
KIND_WEIGHT = 0.66

# Faults for which one GPU is suspected; several at once exonerate it.
DEVICE_SUSPECTED = frozenset({"cuda-launch-failure", "cuda-illegal-instruction"})


# Who else holds memory, as PyTorch's message lists them since 2.0.
OTHER_PROCESS = late(r"\bProcess (\d+) has ([\d.]+ [KMGT]iB) memory in use")
OTHERS_NAMED = 4


class MemoryReport(Struct, frozen=True, kw_only=True):
    """The sizes in one out-of-memory message, in bytes; None: it does not say. `device`: index, empty if not said."""

    device: str
    tried: float
    total: float
    free: float
    this_process: float | None
    allocated: float | None
    unused: float | None

    @property
    def held_by_others(self) -> float | None:
        """What is neither free nor this process's. None where its own part is not known.

        In a container the driver's process numbers are not ours: torch then lists this process as another, and
        only what PyTorch itself counts is sure to be its own.
        """
        if self.this_process is not None:
            return self.total - self.free - self.this_process
        if self.allocated is not None:
            return self.total - self.free - self.allocated - (self.unused or 0.0) - OWN_EXTRA_BYTES
        return None


def rulings(matches: Sequence[Match]) -> dict[int, Ruling]:
    """By id() of the match: what holds in place of its signature."""
    found: dict[int, Ruling] = {}
    for match in matches:
        if match.signature == OUT_OF_MEMORY:
            ruling = of_memory(match)
        else:
            ruling = (
                of_shared_memory(match)
                or of_deletion(match)
                or of_program(match)
                or of_place(match)
                or of_words(match)
                or of_kind(match)
                or of_check(match)
                or of_file(match)
                or of_code(match)
            )
        if ruling is not None:
            found[id(match)] = ruling
    return found | _of_many(matches)


def of_shared_memory(match: Match) -> Ruling | None:
    """No space for a lock or a segment of shared memory: these are files of /dev/shm, and no disk has them."""
    if match.signature != DISK_FULL or not KEEPS_SHARED.search(match.innermost):
        return None
    return Ruling(category="shm_oom", weight=SHARED_WEIGHT, decided_by=_raised_in(match.innermost))


def of_deletion(match: Match) -> Ruling | None:
    """A file that was to be deleted or moved, and is not there: no data is missing, another rank was faster."""
    if match.signature not in MISSING_FILE or match.error_type != "FileNotFoundError":
        return None
    function = match.innermost.rpartition(" ")[2]
    if not DELETES.fullmatch(function) and not MOVES.search(match.text):
        return None
    return Ruling(
        category="python_exception",
        weight=DELETED_WEIGHT,
        action="fix_code",
        title=Words(
            en="a file that should be deleted or moved is not there any more",
            zh="要删除或移动的文件已不存在",
        ),
        explanation=Words(
            en="Ranks that tidy up the same folder take files away from each other: only the first of them finds any.",
            zh="多个 rank 清理同一目录时会互相抢先:只有第一个能找到文件。",
        ),
        advice=Words(
            en="Let one rank of each file system delete and rename, and the others wait at a barrier; newer releases of most trainers do.",
            zh="每个文件系统只由一个 rank 删除和重命名,其余 rank 在 barrier 处等待;多数训练框架的新版本已如此处理。",
        ),
        decided_by=_raised_in(function) if DELETES.fullmatch(function) else None,
    )


def of_program(match: Match) -> Ruling | None:
    """A program that Python could not start: it is not installed here, no data is missing."""
    found = PROGRAM.search(match.text)
    if match.signature not in MISSING_FILE or found is None:
        return None
    if match.innermost.rpartition(" ")[2] != STARTS_PROGRAM:
        return None
    name = found["name"]
    return Ruling(
        category="import_error",
        weight=PROGRAM_WEIGHT,
        title=Words(en=f"the program {name} is not installed here", zh=f"此处未安装程序 {name}"),
        explanation=Words(
            en="Python was to start it as a process of its own, and it is not on PATH in this container or node.",
            zh="Python 需要启动该程序,但此容器或节点的 PATH 中没有它。",
        ),
        advice=Words(
            en=f"Install {name} in the image, or put its folder on PATH of the job.",
            zh=f"在镜像中安装 {name},或将其所在目录加入作业的 PATH。",
        ),
        decided_by=_raised_in("subprocess.Popen"),
    )


def memory_report(text: str) -> MemoryReport | None:
    """The sizes in a message of the CUDA, HIP, XPU or NPU allocator; None where it does not give them."""
    sizes = {name: _size(text, name) for name in SIZES}
    tried, total, free, reserved = sizes["tried"], sizes["total"], sizes["free"], sizes["reserved"]
    if tried is None or total is None or free is None:
        return None
    allocated, unused = sizes["allocated"], sizes["unused"]
    if unused is None and reserved is not None and allocated is not None:
        unused = max(0.0, reserved - allocated)
    device = DEVICE.search(text)
    return MemoryReport(
        device=device["device"] if device else "",
        tried=tried,
        total=total,
        free=free,
        this_process=sizes["this_process"],
        allocated=allocated,
        unused=unused,
    )


def of_memory(match: Match) -> Ruling | None:
    """Whether others filled the GPU, or free memory lay in pieces; None: this process simply needs too much."""
    report = memory_report(match.text)
    if report is None:
        return None
    others = report.held_by_others
    if others is not None and others >= max(OTHERS_MIN_BYTES, OTHERS_MIN_SHARE * report.total):
        return _held_by_others(report, others, _others_named(match.text) if report.this_process else "")
    if report.unused is not None and report.unused >= max(report.tried, UNUSED_MIN_BYTES):
        return _fragmented(report, report.unused)
    return None


def of_place(match: Match) -> Ruling | None:
    """What a vague exception is about, by the function of the user's own code that it was raised in."""
    kind = match.error_type.rpartition(".")[2]
    function = match.frame.rpartition(" ")[2]
    if match.signature in OF_NONE and "NoneType" in match.text and GAVE_NONE.fullmatch(function):
        return Ruling(category="data_error", weight=PLACE_WEIGHT, decided_by=_raised_in(function))
    if match.signature not in VAGUE or not function or kind in CODE_ERRORS:
        return None
    for pattern, category in PLACES:
        if pattern.fullmatch(function):
            return Ruling(category=category, weight=PLACE_WEIGHT, decided_by=_raised_in(function))
    return None


def of_file(match: Match) -> Ruling | None:
    """What a vague exception is about, by the file of the user's own code that it was raised in."""
    kind = match.error_type.rpartition(".")[2]
    place, _, function = match.frame.rpartition(" ")
    if match.signature not in VAGUE or kind not in OF_FILES:
        return None
    for pattern, category in FILES:
        if pattern.fullmatch(place.rpartition(":")[0]):
            if category == "checkpoint_load_error" and WRITES.fullmatch(function):
                category = "checkpoint_save_error"
            return Ruling(category=category, weight=FILE_WEIGHT, decided_by=_raised_in(place))
    return None


def of_kind(match: Match) -> Ruling | None:
    """What an exception that no signature knows is about, by its own name: a library's ConfigError."""
    kind = match.error_type.rpartition(".")[2]
    if match.signature != EXCEPTION or not kind:
        return None
    for pattern, (category, action) in KINDS_OF_THEIR_OWN:
        if pattern.fullmatch(kind):
            return Ruling(category=category, weight=KIND_WEIGHT, action=action)
    return None


def of_check(match: Match) -> Ruling | None:
    """An exception that a check of settings raised: by the function or file it was raised in, the user's or not."""
    kind = match.error_type.rpartition(".")[2]
    if kind == "KeyError" and OF_THE_ENVIRONMENT.search(match.innermost):
        return Ruling(
            category=match.category,
            weight=PLACE_WEIGHT,
            action="fix_config",
            decided_by=_raised_in("os.environ"),
        )
    place = _place_of_check(match)
    if match.signature not in VAGUE or not place:
        return None
    return Ruling(
        category=match.category, weight=FILE_WEIGHT, action="fix_config", decided_by=_raised_in(place)
    )


def is_raised_by_a_check(match: Match) -> bool:
    """Whether a check of settings raised it, whatever its words."""
    return bool(_place_of_check(match))


def _place_of_check(match: Match) -> str:
    """The function or file by which it is one; "" if it is none."""
    place, _, function = match.innermost.rpartition(" ")
    file = place.rpartition(":")[0]
    if match.error_type.rpartition(".")[2] not in CHECKED or OF_A_CALL.search(match.text):
        return ""
    if CHECKS_SETTINGS.fullmatch(function):
        return function
    return file if OF_SETTINGS.fullmatch(file) else ""


def _of_many(matches: Sequence[Match]) -> dict[int, Ruling]:
    seen = [one for one in matches if one.signature in DEVICE_SUSPECTED and one.writer.rank is not None]
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


def _others_named(text: str) -> str:
    """ "88112: 61.20 GiB, 88113: 512.00 MiB"; "" where the message names no process."""
    return ", ".join(f"{pid}: {size}" for pid, size in OTHER_PROCESS.findall(text)[:OTHERS_NAMED])


def _held_by_others(report: MemoryReport, others: float, named: str) -> Ruling:
    """`named`: who they are, as the message says; their numbers are those of the host."""
    held, total = gib(others), gib(report.total)
    return Ruling(
        category="gpu_oom_external_process",
        severity="fatal",
        weight=0.93,
        action="restart",
        title=Words(
            en=f"{f'GPU {report.device}' if report.device else 'the GPU'} is full, but not by this process: others hold {held} of {total}",
            zh=f"GPU{f' {report.device} ' if report.device else ' '}显存已满,但并非本进程所致:其他进程占用 {held}(共 {total})",
        ),
        explanation=Words(
            en="The sizes in the message do not add up without another process on the same GPU."
            + (f" By the message, process {named}." if named else ""),
            zh="报错中的数值表明同一 GPU 上还有其他进程占用显存。"
            + (f"报错中的进程:{named}。" if named else ""),
        ),
        advice=Words(
            en="Look with nvidia-smi (in a container: on the host) at who is on the GPU. End what an earlier run left "
            "behind, give the job GPUs of its own, and check that each rank uses its own LOCAL_RANK; then start again.",
            zh="用 nvidia-smi(容器内则在宿主机上)查看谁在占用该 GPU。清理先前运行的残留进程,为作业分配独占 GPU,"
            "并确认每个 rank 使用各自的 LOCAL_RANK,然后重新启动。",
        ),
        decided_by=BY_SIZES,
    )


def _fragmented(report: MemoryReport, unused: float) -> Ruling:
    lay, tried = gib(unused), gib(report.tried)
    return Ruling(
        category="gpu_oom",
        severity="fatal",
        weight=0.97,
        title=Words(
            en=f"GPU memory is fragmented: {lay} reserved but unused, yet {tried} could not be allocated",
            zh=f"显存碎片化:已保留未使用 {lay},却无法分配 {tried}",
        ),
        explanation=Words(
            en="More than was asked for lies in the allocator's cache, in pieces that are too small.",
            zh="分配器缓存中的空闲显存多于请求量,但都是过小的碎片。",
        ),
        advice=Words(
            en="Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PYTORCH_ALLOC_CONF since torch 2.9; before 2.1 "
            "max_split_size_mb:128). Pad batches to few distinct lengths; empty the cache between phases.",
            zh="设置 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True(torch 2.9 起为 PYTORCH_ALLOC_CONF;"
            "2.1 之前用 max_split_size_mb:128)。将 batch 填充到少数几种长度;在不同阶段之间清空缓存。",
        ),
        decided_by=BY_SIZES,
    )


def gib(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB" if size_bytes >= GIB else f"{size_bytes / MIB:.0f} MiB"


def _size(text: str, name: str) -> float | None:
    found = PATTERNS[name].search(text)
    if found is None:
        return None
    for index in range(FORMS[name]):
        number, unit = found[f"a{index}"], found[f"a{index}_unit"]
        if number is not None and unit is not None:
            return _number(number) * UNITS[unit]
    return None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # "1.2.3"
        return 0.0


def _with_names(form: str) -> str:
    parts = form.split("{}")
    named = (SIZE.format(f"a{index}", f"a{index}") for index in range(len(parts) - 1))
    return parts[0] + "".join(size + part for size, part in zip(named, parts[1:], strict=True))


def _raised_in(function: str) -> Words:
    return Words(en=f"the function it was raised in: {function}", zh=f"抛出异常的函数:{function}")


PATTERNS: Mapping[str, re.Pattern[str]] = {name: late(_with_names(form)) for name, form in SIZES.items()}
FORMS: Mapping[str, int] = {name: form.count("{}") for name, form in SIZES.items()}
BY_SIZES = Words(en="the sizes in the message", zh="报错中的显存数值")
ON_SEVERAL_RANKS = Words(en="the same fault on several ranks", zh="多个 rank 出现相同故障")
