"""What an error that no signature knows is about, by the words of its message: a thing and what is wrong with it.

Every project words its own errors, so no list of messages is ever complete. But a message about a shard that cannot
be opened names a shard and says that it cannot be opened. Both must be there; a mere mention decides nothing. Pure.
"""

import re

from holdfast.core.diagnosis.clues import Ruling
from holdfast.model.sightings import Sighting
from holdfast.model.signatures import EXCEPTION

VAGUE = frozenset({EXCEPTION, "assertion-without-words", "tensorflow-invalid-argument"})
# Their messages name identifiers of the code, whatever these are called.
CODE_ERRORS = frozenset(
    {
        *("NameError", "UnboundLocalError", "TypeError", "AttributeError", "SyntaxError", "IndentationError"),
        *("ZeroDivisionError", "RecursionError", "NotImplementedError", "KeyboardInterrupt", "SystemExit"),
    }
)
WEIGHT = 0.7
MESSAGE = re.compile(r"[\w.]*(?:Error|Exception|Exit)\b:? ?(?P<message>.*)$")

DEFECT = (
    r"not found|missing|no such|cannot|can ?not|can't|could ?n[o']t|unable|fail(?:ed|ure)?|corrupt\w*|truncated|broken"
    r"|damaged|invalid|mismatch\w*|does ?n[o']t|is not|unexpected\w*|empty|absent|not present|bad\b|malformed|incomplete"
    r"|unsupported|differs?|not (?:a )?valid|expected .{1,60} (?:found|got|but)"
)
DATA = (
    r"shards?|data ?sets?|samples?|records?|images?|annotations?|tokens? file|(?<!config\.)\bjsonl?\b|parquet|arrow|tfrecords?|webdataset"
    r"|tar\b|npy|npz|hdf5|lmdb|memmap|index file|data files?|corpus|vocab\w*|tokenizer|label file|mmap|\w+\.(?:tsv|csv|txt|jsonl|npy|npz|tar|bin|idx|arrow|parquet)"
)
CHECKPOINT = r"check ?points?|ckpt|snapshot|state[_ ]?dict|optimizer state|pretrained weights|weights? file|safetensors"
TIMED_OUT = r"tim(?:ed|es|e) ?-?out|timeouts?|did not (?:answer|respond|arrive)|not respond\w*"
# What a kernel, a device, a transport or another process did: their words are the same in every program.
PLAIN = (
    (re.compile(r"(?i)\buncorrectable (?:memory |ecc )?(?:ecc )?error|\bdouble[- ]bit ecc\b|\becc error\b"), "ecc_uncorrectable"),
    (re.compile(r"(?i)\billegal (?:memory access|address)|\bmisaligned address|\bunspecified launch failure"), "cuda_illegal_access"),
    (re.compile(r"(?i)\bdevice-side assert"), "device_side_assert"),
    (re.compile(r"(?i)\bno (?:cuda|gpu|npu|hip|accelerator)[\w -]{0,30}\b(?:found|available|visible|detected)|\bno cuda-capable device|\bcould not find (?:any )?(?:gpu|cuda)"), "cuda_init_error"),
    (re.compile(r"(?i)\b(?:gpu|npu|device)\b.{0,40}\b(?:is lost|was lost|fell off|fallen off|disappeared)\b"), "gpu_missing"),
    (re.compile(r"CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|CUDNN_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)"), "gpu_oom_hidden"),
    (re.compile(r"(?i)\b(?:address|port)\b.{0,40}\b(?:already in use|is in use|occupied|taken)\b|\bEADDRINUSE\b"), "port_in_use"),
    (re.compile(r"(?i)\bbus error\b|\bSIGBUS\b|/dev/shm\b.*\b(?:full|space|small)"), "shm_oom"),
    (re.compile(r"(?i)\bsegmentation fault|\bSIGSEGV\b|\bsegfault"), "segfault"),
    (re.compile(r"(?i)\bOOM[- ]?kill|\bkilled by (?:the )?OOM|\bsignal: ?killed\b|\bSIGKILL\b"), "host_oom"),
    (re.compile(rf"(?i)\b(?:data ?loader|prefetch\w*|next batch|batch queue)\b.*\b(?:{TIMED_OUT})"), "dataloader_stuck"),
    (re.compile(rf"(?i)\b(?:rendezvous|(?:tcp ?)?store|master|coordinator|join\w*|all workers)\b.*\b(?:{TIMED_OUT})|\b(?:{TIMED_OUT})\b.*\b(?:rendezvous|to join|connect(?:ing)? to (?:the )?(?:master|store|coordinator))\b"), "rendezvous_timeout"),
    (re.compile(rf"(?i)\b(?:all_?-?reduce|all_?-?gather|reduce_?-?scatter|barrier|broadcast|collective|nccl|rccl|hccl|gloo)\w*\b.*\b(?:{TIMED_OUT})"), "collective_timeout"),
    (re.compile(r"(?i)\bconnection (?:was )?(?:refused|reset|aborted|lost|closed by (?:the )?(?:peer|remote))|\bbroken pipe\b|\bno route to host\b|\bnetwork is unreachable\b"), "nccl_network_error"),
    (re.compile(r"(?i)\b(?:nccl|rccl)\b.{0,20}\berror\b.*\b(?:system error|remote process|network)"), "nccl_network_error"),
    (re.compile(r"(?i)\b(?:executable|command|binary|program)\b.{0,40}\bnot found\b|\bnot found in \$?PATH\b|\bcommand not found\b"), "import_error"),
    (re.compile(r"(?i)\bunauthori[sz]ed\b|\bforbidden\b|\b40[13] (?:client error|forbidden|unauthori[sz]ed)"), "permission_error"),
    (re.compile(r"(?i)\binput/output error|\bstale (?:nfs )?file handle|\bread-only file ?system|\btransport endpoint is not connected"), "filesystem_error"),
    (re.compile(r"\bOOM\b"), "gpu_oom"),
)  # fmt: skip
RULES = (
    (
        re.compile(
            r"(?i)\b(?:nan|inf|non-?finite|infinit\w+|diverg\w+)\b.*\b(?:loss|grad\w*|norm|tensors?|values?|weights?|activations?)\b"
            r"|\b(?:loss|grad\w*|norm|tensors?|values?|weights?|activations?)\b.*\b(?:nan|inf|non-?finite|infinite|diverged)\b"
        ),
        "nan_loss",
    ),
    (
        re.compile(r"(?i)\b(?:gpu|cuda|device|hbm|vram|hip|xpu|npu)\b.*\bout of memory|out of memory.*\b(?:gpu|cuda|device|hbm|vram)\b"),
        "gpu_oom",
    ),
    (re.compile(r"(?i)\bfailed to allocate\b.*\b(?:cuda|gpu|hip|npu|xpu)(?::\d+)?\b"), "gpu_oom"),
    (re.compile(r"(?i)\berror while serializing\b|\bfailed to serialize\b"), "checkpoint_save_error"),
    (
        re.compile(r"(?i)\bresource temporarily unavailable\b|\btoo many open files\b|\bcan't start new thread\b"),
        "host_limit",
    ),
    (re.compile(r"\bundefined symbol: |\bsymbol not found in flat namespace\b"), "version_mismatch"),
    (re.compile(r"(?i)\bout of memory|memory exhausted|not enough memory|insufficient memory"), "host_oom"),
    (
        re.compile(
            r"(?i)\bversions?\b.*\b(?:unsupported|not supported|incompatible|mismatch\w*|(?:does|do) not match|too old|too new|older|newer|at least|required?s?)\b"
            r"|\b(?:unsupported|incompatible|requires?|upgrade|downgrade|needs)\b.*\bversions?\b"
        ),
        "version_mismatch",
    ),
    (re.compile(r"(?i)\b(?:could not|cannot|can't|unable to|failed to) import\b"), "import_error"),
    (re.compile(r"(?i)\b(?:package|module|library|plugin)s?\b.{0,40}\b(?:is|are)(?: not|n't)? installed\b"), "import_error"),
    (re.compile(r"(?i)\b(?:access|permission)s?\b.*\bdenied\b|\boperation not permitted\b"), "permission_error"),
    (re.compile(r"(?i)\bno (?:space|room) left\b|\bdisk (?:is )?full\b|\bquota (?:was |is )?exceeded\b"), "disk_full"),
    (re.compile(r"(?i)\b(?:could not|cannot|can't|unable to|failed to) (?:resume|restore)\b"), "checkpoint_load_error"),
    (re.compile(rf"(?i)\b(?:sav|writ|dump)\w*\b.*\b(?:{CHECKPOINT})\b.*\b(?:{DEFECT})|\b(?:{DEFECT})\b.*\b(?:sav|writ|dump)\w*\b.*\b(?:{CHECKPOINT})\b"), "checkpoint_save_error"),
    (re.compile(rf"(?i)\b(?:{CHECKPOINT})\b.*\b(?:{DEFECT})|\b(?:{DEFECT})\b.*\b(?:{CHECKPOINT})\b"), "checkpoint_load_error"),
    (re.compile(rf"(?i)\b(?:{DATA})\b.*\b(?:{DEFECT})|\b(?:{DEFECT})\b.*\b(?:{DATA})\b"), "data_error"),
)  # fmt: skip
# The message asks for another setting: the code is right, what it was told is not.
SETTING = re.compile(
    r"(?i)\b(?:must be|should be|expected one of|has to be|needs to be|choose from|valid (?:options|choices|values)|not a valid"
    r"|unknown (?:option|argument|model|optimizer|scheduler|config\w*)|unrecognized|please (?:re-?run|set|specify|provide|use|pass|enable|disable|increase|reduce)"
    r"|divisible by|config\w*|--\w[\w-]+|unsupported|not supported)\b"
)


# Where nothing else is known of a program than a line in which it speaks of its error.
SPOKEN = "program-error-complaint"
SPOKEN_WEIGHT = 0.5
SPOKEN_IN = ("message", "reason", "said")  # captures of the forms in which it does
# What syslog names as the writer of a line where a job, not a daemon, wrote it.
OF_A_JOB = r"(?:python|torchrun|deepspeed|accelerate|mpi|srun|sbatch|slurm|ray|bash|sh|train|launch|run|docker|podman|conda|\S*\.(?:sh|py))"
# The kernel and the daemons of a machine speak of errors all day, whatever becomes of a job.
OF_THE_SYSTEM = re.compile(
    r"\bkernel: |\bslurmstepd(?:-\S+)?: error: |\bACPI (?:BIOS )?(?:Error|Exception)\b|^\s*(?:<\d+>)?\[ *\d+\.\d{6}\] |Error: Driver '\S+' is already registered"
    r"|(?:^|\s)(?:systemd|modprobe|udev|sshd?|sudo|cron|CRON|dbus|snapd|dockerd|containerd|kubelet|crio|chronyd|ntpd|smartd|polkitd"
    r"|rsyslogd|NetworkManager|nscd|sssd|multipathd|iscsid|dhclient|cloud-init|automount|nvidia-persistenced)[\w./@-]{0,40}\[\d+\]: "
    rf"|^(?:[A-Z][a-z]{{2}} [ \d]?\d \d\d:\d\d:\d\d|\d{{4}}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)) [\w.-]+ (?!{OF_A_JOB})[\w./@-]+(?:\[\d+\])?: "
)
FILE = re.compile(
    r"(?i)\bno such file or directory|\b(?:file|directory|path)\b.{0,60}\b(?:not found|does not exist|missing)"
)
FILE_KINDS = frozenset({"FileNotFoundError", "NotADirectoryError", "IsADirectoryError"})
BY_KIND = {
    "ModuleNotFoundError": "import_error",
    "ImportError": "import_error",
    "PermissionError": "permission_error",
    "MemoryError": "host_oom",
    "ConnectionRefusedError": "nccl_network_error",
    "ConnectionResetError": "nccl_network_error",
    "BrokenPipeError": "nccl_network_error",
}

ENDED = "ended-with-a-code"
# What kills a process shows in its code: -N of Python's launchers, 128+N of shells and containers.
BY_CODE = {
    **dict.fromkeys(("-9", "137"), "process_killed"),
    **dict.fromkeys(("-11", "139", "-4", "132", "-8", "136", "-6", "134"), "segfault"),
    **dict.fromkeys(("-7", "135"), "shm_oom"),
    **dict.fromkeys(("-15", "143", "-2", "130", "-1", "129"), "terminated"),
}
BY_SIGNAL = {
    **dict.fromkeys(("9", "KILL"), "process_killed"),
    **dict.fromkeys(("11", "SEGV", "4", "ILL", "8", "FPE", "6", "ABRT"), "segfault"),
    **dict.fromkeys(("7", "BUS"), "shm_oom"),
    **dict.fromkeys(("15", "TERM", "INT", "HUP"), "terminated"),
}
CODE_WEIGHT = 0.4


def of_code(sighting: Sighting) -> Ruling | None:
    """What a bare code of a process says about its end; None for codes that say no more than that it failed."""
    if sighting.signature != ENDED:
        return None
    name = sighting.captures.get("name", "").upper()
    category = BY_SIGNAL.get(name) if name else BY_CODE.get(sighting.captures.get("code", ""))
    return Ruling(category=category, role="symptom", weight=CODE_WEIGHT) if category else None


def of_words(sighting: Sighting) -> Ruling | None:
    """None where its words do not tell, or the exception is a mistake of the code by its kind."""
    if sighting.signature == SPOKEN:
        return _of_spoken(sighting)
    kind = sighting.error_type.rpartition(".")[2]
    if sighting.signature not in VAGUE or not sighting.error_type or kind in CODE_ERRORS:
        return None
    found = MESSAGE.search(sighting.text)
    message = found["message"][:500] if found else ""
    category = meant(message) or BY_KIND.get(kind)
    if category is None and (kind in FILE_KINDS or FILE.search(message)):
        category = "data_error"
    if category:
        return Ruling(category=category, weight=WEIGHT)
    if SETTING.search(message):
        return Ruling(category=sighting.category, weight=WEIGHT, action="fix_config")
    return None


def meant(message: str) -> str | None:
    """The category that a message's words tell; None where they do not."""
    return next((category for pattern, category in (*PLAIN, *RULES) if pattern.search(message)), None)


def _of_spoken(sighting: Sighting) -> Ruling | None:
    if OF_THE_SYSTEM.search(sighting.text):
        return Ruling(category=sighting.category, role="context", severity="info", weight=SPOKEN_WEIGHT)
    message = next((sighting.captures[name] for name in SPOKEN_IN if name in sighting.captures), "")[:500]
    category = meant(message) or ("data_error" if FILE.search(message) else None)
    if category:
        return Ruling(category=category, severity="warning", weight=SPOKEN_WEIGHT)
    if SETTING.search(message):
        return Ruling(
            category=sighting.category, severity="warning", weight=SPOKEN_WEIGHT, action="fix_config"
        )
    return None
