"""What an error that no signature knows is about, by the words of its message: a thing and what is wrong with it.

Every project words its own errors, so no list of messages is ever complete. But a message about a shard that cannot
be opened names a shard and says that it cannot be opened. Both must be there; a mere mention decides nothing. Pure.
"""

from collections.abc import Mapping

from holdfast.core.diagnosis.candidates import TRIES_AGAIN, TRIES_MANY, Ruling, filled
from holdfast.late_pattern import late
from holdfast.model.matches import Match
from holdfast.model.signatures import EXCEPTION, SPOKEN, Signature, Words

OF_ASSERTIONS = "assertion-without-words"
VAGUE = frozenset({EXCEPTION, OF_ASSERTIONS, "tensorflow-invalid-argument", "exception-shown-by-hydra"})
# Their messages name identifiers of the code, whatever these are called.
CODE_ERRORS = frozenset(
    {
        *("NameError", "UnboundLocalError", "TypeError", "AttributeError", "SyntaxError", "IndentationError"),
        *("ZeroDivisionError", "RecursionError", "NotImplementedError", "KeyboardInterrupt", "SystemExit"),
    }
)
# What has no code: for what was chosen, or because nobody wrote what a class asks of those derived from it.
NOT_IMPLEMENTED = "not-implemented"
ABSTRACT = late(
    r"(?i)\b(?:sub-?class\w*|derived|child|inherit\w*)\b|\b(?:must|should|needs? to|has to) (?:be )?(?:implement|overrid)\w*"
)
WEIGHT = 0.7
MESSAGE = late(r"[\w.]*(?:Error|Exception|Exit)\b[:(]? ?(?P<message>.*)$")

DEFECT = (
    r"not found|missing|no such|cannot|can ?not|can't|could ?n[o']t|unable|fail(?:ed|ure)?|corrupt\w*|truncated|broken"
    r"|damaged|invalid|mismatch\w*|does ?n[o']t|is not|unexpected\w*|empty|absent|not present|bad\b|malformed|incomplete"
    r"|unsupported|differs?|not (?:a )?valid|expected .{1,60} (?:found|got|but)"
)
DATA = (
    r"shards?|data ?sets?|samples?|records?|images?|annotations?|tokens? file|(?<!config\.)\bjsonl?\b|parquet|arrow|tfrecords?|webdataset"
    r"|tar\b|npy|npz|hdf5|lmdb|memmap|index file|data files?|(?:idx|bin) (?:and \w+ )?files?|corpus|vocab\w*|tokenizer|label file|mmap|\w+\.(?:tsv|csv|txt|jsonl|npy|npz|tar|bin|idx|arrow|parquet)"
)
CHECKPOINT = r"check ?points?|ckpt|snapshot|state[_ ]?dict|optimizer state|pretrained weights|weights? file|safetensors"
TIMED_OUT = r"tim(?:ed|es|e) ?-?out|timeouts?|did not (?:answer|respond|arrive)|not respond\w*"
# What a kernel, a device, a transport or another process did: their words are the same in every program.
PLAIN = (
    (late(r"(?i)\buncorrectable (?:memory |ecc )?(?:ecc )?error|\bdouble[- ]bit ecc\b|\becc error\b"), "ecc_uncorrectable"),
    (late(r"(?i)\billegal (?:memory access|address)|\bmisaligned address|\bunspecified launch failure"), "cuda_illegal_access"),
    (late(r"(?i)\bdevice-side assert"), "device_side_assert"),
    (late(r"(?i)\bno (?:cuda|gpu|npu|hip|accelerator)[\w -]{0,30}\b(?:found|available|visible|detected)|\bno cuda-capable device|\bcould not find (?:any )?(?:gpu|cuda)"), "cuda_init_error"),
    (late(r"(?i)\b(?:gpu|npu|device)\b.{0,40}\b(?:is lost|was lost|fell off|fallen off|disappeared)\b"), "gpu_missing"),
    (late(r"CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)|CUDNN_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED)"), "gpu_oom_hidden"),
    (late(r"(?i)\b(?:address|port)\b.{0,40}\b(?:already in use|is in use|occupied|taken)\b|\bEADDRINUSE\b"), "port_in_use"),
    (late(r"(?i)\bbus error\b|\bSIGBUS\b|/dev/shm\b.*\b(?:full|space|small)"), "shm_oom"),
    (late(r"(?i)\bsegmentation fault|\bSIGSEGV\b|\bsegfault"), "segfault"),
    (late(r"(?i)\bOOM[- ]?kill|\bkilled by (?:the )?OOM|\bsignal: ?killed\b|\bSIGKILL\b"), "host_oom"),
    (late(rf"(?i)\b(?:data ?loader|prefetch\w*|next batch|batch queue)\b.*\b(?:{TIMED_OUT})"), "dataloader_stuck"),
    (late(rf"(?i)\b(?:rendezvous|(?:tcp ?)?store|master|coordinator|join\w*|all workers)\b.*\b(?:{TIMED_OUT})|\b(?:{TIMED_OUT})\b.*\b(?:rendezvous|to join|connect(?:ing)? to (?:the )?(?:master|store|coordinator))\b"), "rendezvous_timeout"),
    (late(rf"(?i)\b(?:all_?-?reduce|all_?-?gather|reduce_?-?scatter|barrier|broadcast|collective|nccl|rccl|hccl|gloo)\w*\b.*\b(?:{TIMED_OUT})"), "collective_timeout"),
    (late(r"(?i)\bconnection (?:was )?(?:refused|reset|aborted|lost|closed by (?:the )?(?:peer|remote))|\bbroken pipe\b|\bno route to host\b|\bnetwork is unreachable\b"), "nccl_network_error"),
    (late(r"(?i)\b(?:nccl|rccl)\b.{0,20}\berror\b.*\b(?:system error|remote process|network)"), "nccl_network_error"),
    (late(r"(?i)\b(?:executable|command|binary|program)\b.{0,40}\bnot found\b|\bnot found in \$?PATH\b|\bcommand not found\b"), "import_error"),
    (late(r"(?i)\bunauthori[sz]ed\b|\bforbidden\b|\b40[13] (?:client error|forbidden|unauthori[sz]ed)"), "permission_error"),
    (late(r"(?i)\binput/output error|\bstale (?:nfs )?file handle|\bread-only file ?system|\btransport endpoint is not connected"), "filesystem_error"),
    (late(r"\bOOM\b"), "gpu_oom"),
)  # fmt: skip
RULES = (
    (
        late(
            r"(?i)\b(?:nan|inf|non-?finite|infinit\w+|diverg\w+)\b.*\b(?:loss|grad\w*|norm|tensors?|values?|weights?|activations?)\b"
            r"|\b(?:loss|grad\w*|norm|tensors?|values?|weights?|activations?)\b.*\b(?:nan|inf|non-?finite|infinite|diverged)\b"
        ),
        "nan_loss",
    ),
    (
        late(r"(?i)\b(?:gpu|cuda|device|hbm|vram|hip|xpu|npu)\b.*\bout of memory|out of memory.*\b(?:gpu|cuda|device|hbm|vram)\b"),
        "gpu_oom",
    ),
    (late(r"(?i)\bfailed to allocate\b.*\b(?:cuda|gpu|hip|npu|xpu)(?::\d+)?\b"), "gpu_oom"),
    (late(r"(?i)\berror while serializing\b|\bfailed to serialize\b"), "checkpoint_save_error"),
    (
        late(r"(?i)\bresource temporarily unavailable\b|\btoo many open files\b|\bcan't start new thread\b"),
        "host_limit",
    ),
    (late(r"\bundefined symbol: |\bsymbol not found in flat namespace\b"), "version_mismatch"),
    (late(r"(?i)\bout of memory|memory exhausted|not enough memory|insufficient memory"), "host_oom"),
    (
        late(
            r"(?i)\bversions?\b.*\b(?:unsupported|not supported|incompatible|mismatch\w*|(?:does|do) not match|too old|too new|older|newer|at least|required?s?)\b"
            r"|\b(?:unsupported|incompatible|requires?|upgrade|downgrade|needs)\b.*\bversions?\b"
            r"|\b(?:compiled|built) (?:with|for|against) (?:an?other|(?:a )?different|incompatible)\b|\bplease (?:re-?install|upgrade|downgrade)\b|\bconsider (?:up|down)grading\b|\binstall [`'\"]?[\w.-]+(?:\[\w+\])? ?(?:[<>=]=|[<>])"
            r"|\b(?:ptxas|drivers?|compilers?|toolkit|librar(?:y|ies)|packages?|gcc|glibc|cuda|cudnn|nccl|torch|pytorch|triton|transformers)\b.{0,40}\b(?:is|are) too (?:old|new)\b"
        ),
        "version_mismatch",
    ),
    (late(r"(?i)\b(?:could not|cannot|can't|unable to|failed to) import\b"), "import_error"),
    (late(r"(?i)\b(?:could not|cannot|can't|unable to|failed to|error) (?:jit[- ]?)?(?:load|build|compil)\w*\b.{0,40}\b(?:ops?|extensions?|kernels?|sources?)\b"), "compile_error"),
    (
        late(
            r"(?i)\b(?:package|module|library|plugin)s?\b.{0,40}\b(?:is|are)(?: not|n't)? installed\b|\bnot (?:been )?installed\b|\b(?:to|must|should) be installed\b"
            r"|\bplease (?:run )?[`'\"]?(?:(?:pip3?|conda|uv|apt(?:-get)?) )?install\b|\b(?:pip3?|conda|uv pip|apt(?:-get)?) install [\w-]"
        ),
        "import_error",
    ),
    (late(r"(?i)\b(?:access|permission)s?\b.*\bdenied\b|\boperation not permitted\b"), "permission_error"),
    (late(r"(?i)\bno (?:space|room) left\b|\bdisk (?:is )?full\b|\bquota (?:was |is )?exceeded\b"), "disk_full"),
    (late(r"(?i)\b(?:could not|cannot|can't|unable to|failed to) (?:resume|restore)\b"), "checkpoint_load_error"),
    (late(rf"(?i)\b(?:sav|writ|dump)\w*\b.*\b(?:{CHECKPOINT})\b.*\b(?:{DEFECT})|\b(?:{DEFECT})\b.*\b(?:sav|writ|dump)\w*\b.*\b(?:{CHECKPOINT})\b"), "checkpoint_save_error"),
    (late(rf"(?i)\b(?:{CHECKPOINT})\b.*\b(?:{DEFECT})|\b(?:{DEFECT})\b.*\b(?:{CHECKPOINT})\b"), "checkpoint_load_error"),
    (late(rf"(?i)\b(?:{DATA})\b.*\b(?:{DEFECT})|\b(?:{DEFECT})\b.*\b(?:{DATA})\b"), "data_error"),
)  # fmt: skip
# The message asks for another setting: the code is right, what it was told is not.
SETTING = late(
    r"(?i)\b(?:must (?:evenly )?(?:divide|equal)|expected one of|choose from|(?:valid|supported|allowed|available|possible) (?:options|choices|values|\w+s (?:are|is))|not a valid|not recogni[sz]ed"
    r"|(?:unknown|unrecogni[sz]ed|invalid|unsupported) (?:value|option|choice|argument|setting|combination|mode|backend|strategy|model|optimizer|scheduler|precision|format|loss|task|config\w*)|unrecognized"
    r"|please (?!report|file|open|(?:re)?install|upgrade|downgrade|download|refer|see|contact|wait)\w+|make sure|check your|(?:requires?|needs?|by|consider|try) (?:setting|passing|enabling|disabling|specifying|--)|environment variable|(?:is|are|was) not (?:been )?(?:set|specified|configured|provided)"
    r"|divisible|multiples? of|(?:can ?not|can't|can only|may not|may only) be (?:used|combined|set|enabled|specified|empty|mixed|None)|only supports?|(?:is|are) only (?:supported|available|allowed|valid|implemented|compatible)|incompatible with|not compatible|mutually exclusive"
    r"|(?:template|preset|optimizer|scheduler|backend|policy|strategy|environment|task|metric|loss|algorithm|agent|profile|option|method|mode|processor|recipe|criterion) (?:['\"`][^'\"`]{0,80}['\"`]|(?!\d+ |(?:files?|path|dir\w*|folders?|is|was|are|does|has|to|with|in|for|of|variables?|cards?|states?|values?|queue) )[\w.+-]{2,60}) (?:is |was |does )?(?:not (?:found|known|defined|registered|available|exist)|unknown)"
    r"|(?:unknown|unrecogni[sz]ed|undefined|unregistered) (?:data ?(?:sets?|sources?)|corpus|splits?)"
    r"|(?:unknown|unrecogni[sz]ed|invalid|unsupported|undefined) (?:[\w/-]+ ){0,3}(?:method|algorithm|policy|recipe|activation|norm\w*|engine|impl\w*|preset|template|variant|arch\w*|environment|reward|estimator|sampler|framework|optimizer|scheduler|backend|strategy|mode|option|choice)"
    r"|set(?:ting)? [`'\"]?[\w.]{2,60}(?:\[[^\]]{1,40}\]){0,3} ?(?:=|to) ?(?:True|False|None|\d|['\"])"
    r"|\bnum_(?:classes|labels)\b|not enough (?:gpus|devices|nodes)|exceeds? (?:the )?(?:max\w*|limit)"
    r"|(?:tensor|pipeline|data|context|expert|sequence)[_ -](?:model[_ -])?parallel\w*[_ -](?:size|degree)|world[_ ]size|(?:micro|global|train)[_ -]?batch[_ -]?size|(?<!engine )config\w*)\b|(?<![\w-])--\w[\w-]+"
    r"|(?-i:\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+ ?(?:=|to\b))"  # a variable of the environment, with its value
    # a name that was given, at the end of a chain of those that are known
    r"|^(?:unknown|unrecogni[sz]ed|unsupported|invalid) (?!labels?\b|tokens?\b|index|ids?\b|keys?\b|class|word|char|byte|literal|dtype|shape|tensor|input|device|state|header|magic)"
    r"[\w/ -]{2,40}?: ?['\"`]?[\w./+-]+['\"`]?\.?$"
    # a name that was given, and the list of those there are
    r"|(?<!not )(?<!been )(?<!already )\b(?:available|supported|valid|allowed|known|registered)(?: [\w-]+){0,4}(?: (?:are|is))? ?: ?[\w\[({'\"`]"
    r"|\bonly works? (?:in|with|when|for|on)\b|\bset the [`'\"]?\w+[`'\"]? (?:flag|argument|option|parameter|field)\b|\b(?:available|visible|requested|desired) gpus\b.{0,80}\b(?:less|fewer|more|only|but)\b"
)
# So speaks a check of a setting, and also one of what a function is given.
DEMAND = late(
    r"(?i)\b(?:must (?:not )?be|should (?:not )?be|(?:has|have|needs?) to be|(?:is|are) required (?:for|to use|when|with)|(?:not|does ?n[o']t) (?:yet )?(?:allowed|support(?:ed)?)|unsupported"
    r"|(?:does|do|is|are) ?(?:not|n't) (?:yet )?(?:work|possible|available|compatible|usable|permitted)|(?:can(?:not|'t| not)|must not|do not|don't) (?:both )?(?:use|set|enable|specify|combine|mix|have)"
    r"|can(?:not|'t| not) (?:both )?be (?:both )?(?:enabled|True|set|used|combined|mixed)|can(?:not|'t| not) .{1,80} without|only (?:[\w,/'\"`-]+ ){1,8}(?:(?:is|are) (?:currently )?(?:supported|available|allowed|valid)|support)|can only be"
    r"|(?:is|are) (?:outside|out) of (?:the )?range)\b|\brequires? (?:[`'\"][\w.=-]+[`'\"]|[\w.-]+ ?(?:[=<>]|to be\b|in [\[(]))"
    r"|(?<![\w.\[(])(?-i:[a-z])[\w.]*_\w+[`'\"]? ?(?:[=!<>]=|[=<>]) ?(?:True|False|None|-?\d|['\"])"  # a setting, with its value
)
OF_TENSORS = late(
    r"(?i)\b(?:tensors?(?![ _-](?:model[ _-])?parallel)|matri(?:x|ces)|vectors?|dims?|dimensions?|shapes?|dtypes?|contiguous|scalars?|mat\d|inputs?|outputs?|operands?|grad\w*|indices|\d-?D|lists?|tuples?|dicts?|iterables?|callables?|strings?|str|int|integers?|floats?|None(?:Type)?|subclass|instance|meta device)\b"
)
# Names of what a model is given at each step, where the message begins: nobody set them.
OF_INPUTS = late(
    r"(?i)^[^.]{0,160}?(?<![\w.])(?!num_)\w*(?:(?:(?:input|position|token|pixel|prompt|image|video|audio|class|label|cond)_(?:ids?|embeds?|values|features|mask|indices|grid\w*)|(?:attention|padding|token|loss|key|causal|head|bbox)_masks?"
    r"|hidden_states?|past_key_values?|encoder_outputs|_embeds|_latents|_logits|labels)\b|(?:sequence lengths?|(?:attention|query|key|value)s? (?:mask|states?|weights?|lengths?)|forward (?:pass|function)|mel (?:input )?features|spectrograms?)\b)"
)
# What is set all the same, whatever else the message names.
OF_OPTIONS = late(
    r"(?<![\w-])--\w[\w-]+|\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+ ?(?:=|to\b)|(?i:environment variable|config)"
)
# What a framework asks of the user's own methods.
OF_HOOKS = late(
    r"\bself\.\w+\(|\bhook\b|\b(?:must|should|needs? to|has to) be (?:implemented|overrid\w+)|\b(?:to|should|must) (?:implement|override)\b|\bdid you (?:forget to )?call\b"
)
# The message tells how a function is to be called.
OF_A_CALL = late(r"\b(?:passed|given) to [`'\"]?\w[\w.]*\(\)")
# What is said of data is about a setting all the same where it is told which one to set.
ASKS = late(
    r"(?i)\b(?:please (?:set|pass|specify|provide|select|choose|enable|disable|increase|reduce|use|add)|set [`'\"]?[\w.]{2,60} ?= ?\w+)\b|\b(?:has to|must|should|needs? to) be (?:specified|set|provided|passed|(?:of|in) (?:the )?form(?:at)?)\b|\btry (?:setting|passing)\b"
    r"|\bnot (?:yet )?(?:supported (?:with|when|for|in|by|yet|on)|applicable|possible (?:with|when|to)|compatible with|allowed (?:with|when|for|in)|configured)\b|\bcan(?:not|'t) be (?:combined|mixed|used|enabled|specified)\b"
    r"|\bdo(?:es)?(?:n't| not) (?:yet )?support\b|\bonly supports?\b|\bis only (?:supported|available|allowed|valid|compatible)\b|\bmutually exclusive\b|\bincompatible with\b"
    r"|\b(?:class|type|architecture) ['\"]?[\w.-]{1,80}['\"]? (?:does not exist|is not (?:registered|known|supported|defined))\b"
)
# What Python's own functions say of their arguments: nobody set them.
OF_PYTHON = late(
    r"^(?:\w+\(\)[: ]|(?:not enough|too many) values to unpack|list index|pop from|\S+ is not in list|max\(|min\(|math domain|empty range|invalid literal for)"
)


# Where nothing else is known of a program than a line in which it speaks of its error.
SPOKEN_WEIGHT = 0.5
SPOKEN_IN = ("message", "reason", "said", "told", "marked")  # captures of the forms in which it does
# What syslog names as the writer of a line where a job, not a daemon, wrote it.
OF_A_JOB = r"(?:python|torchrun|deepspeed|accelerate|mpi|srun|sbatch|slurm|ray|bash|sh|train|launch|run|docker|podman|conda|\S*\.(?:sh|py))"
# The kernel and the daemons of a machine speak of errors all day, whatever becomes of a job.
OF_THE_SYSTEM = late(
    r"\bkernel: |\bslurmstepd(?:-\S+)?: error: |\bACPI (?:BIOS )?(?:Error|Exception)\b|^\s*(?:<\d+>)?\[ *\d+\.\d{6}\] |Error: Driver '\S+' is already registered"
    r"|(?:^|\s)(?:systemd|modprobe|udev|sshd?|sudo|cron|CRON|dbus|snapd|dockerd|containerd|kubelet|crio|chronyd|ntpd|smartd|polkitd"
    r"|rsyslogd|NetworkManager|nscd|sssd|multipathd|iscsid|dhclient|cloud-init|automount|nvidia-persistenced)[\w./@-]{0,40}\[\d+\]: "
    rf"|^(?:[A-Z][a-z]{{2}} [ \d]?\d \d\d:\d\d:\d\d|\d{{4}}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)) [\w.-]+ (?!{OF_A_JOB})[\w./@-]+(?:\[\d+\])?: "
)
COMPLAINT = "-complaint"
PASSES = late(
    r"(?i)\berrors? ?[:=] ?(?:0|none|null|no error|success)\b|\b(?:ignored|ignoring|skipped|skipping|falling back|fell back|continuing|recovered)\b"
)
# The writer calls it a warning: "srun: warning: ", "RuntimeWarning: ", "[WARNING]", "W tensorflow/core/a.cc:12]".
WARNS = late(
    r"(?i:\bwarning: )|\b[A-Z]\w*Warning: |\b(?:WARN|WARNING)\b"
    r"|(?<![\w.])W(?:\d{4})? (?:[\d:.]{5,20} {1,4}\d{1,8} )?[\w/.-]{1,120}\.(?:cc|cpp|cu|h|py|go):\d{1,5}\]"
)
FILE = late(
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
GIVE_CODES = frozenset({ENDED, "called-process-failed"})
# What kills a process shows in its code: -N of Python's launchers, 128+N of shells and containers.
BY_CODE = {
    **dict.fromkeys(("-9", "137"), "process_killed"),
    **dict.fromkeys(("-11", "139", "-4", "132", "-8", "136", "-6", "134"), "segfault"),
    **dict.fromkeys(("-7", "135"), "shm_oom"),
    **dict.fromkeys(("-15", "143", "-2", "130", "-1", "129"), "terminated"),
    # Windows: 0xC0000005, C000001D, C00000FD, C0000374 and C0000409, also as signed numbers; C000013A is Ctrl-C.
    **dict.fromkeys(("3221225477", "3221225501", "3221225725", "3221226356", "3221226505"), "segfault"),
    **dict.fromkeys(("-1073741819", "-1073741795", "-1073741571", "-1073740940", "-1073740791"), "segfault"),
    **dict.fromkeys(("3221225786", "-1073741510"), "terminated"),
}
BY_SIGNAL = {
    **dict.fromkeys(("9", "KILL"), "process_killed"),
    **dict.fromkeys(("11", "SEGV", "4", "ILL", "8", "FPE", "6", "ABRT"), "segfault"),
    **dict.fromkeys(("7", "BUS"), "shm_oom"),
    **dict.fromkeys(("15", "TERM", "INT", "HUP"), "terminated"),
}
CODE_WEIGHT = 0.4


def of_code(match: Match) -> Ruling | None:
    """What a bare code of a process says about its end; None for codes that say no more than that it failed."""
    if match.signature not in GIVE_CODES:
        return None
    name = match.captures.get("name", "").upper()
    category = BY_SIGNAL.get(name) if name else BY_CODE.get(match.captures.get("code", ""))
    return Ruling(category=category, role="symptom", weight=CODE_WEIGHT) if category else None


def of_words(match: Match) -> Ruling | None:
    """None where its words do not tell, or the exception is a mistake of the code by its kind."""
    if match.signature.endswith(COMPLAINT) and _passes(match):
        return Ruling(category=match.category, role="context", severity="info", weight=SPOKEN_WEIGHT)
    if match.signature == SPOKEN:
        return _of_spoken(match)
    if match.signature == NOT_IMPLEMENTED:
        return _of_what_is_not_implemented(match)
    kind = kind_of_exception(match)
    if match.signature not in VAGUE or not kind or kind in CODE_ERRORS:
        return None
    found = MESSAGE.search(match.text)
    message = found["message"][:500] if found else ""
    if OF_PYTHON.search(message):
        return None
    if match.signature == EXCEPTION and OF_HOOKS.search(message):
        return Ruling(category=match.category, weight=WEIGHT, action="fix_code")
    category = meant(message) or BY_KIND.get(kind)
    if category is None and (kind in FILE_KINDS or FILE.search(message)):
        category = "data_error"
    if category == "data_error" and ASKS.search(message):
        return Ruling(category=match.category, weight=WEIGHT, action="fix_config")
    if category:
        return Ruling(category=category, weight=WEIGHT)
    if asks_for_a_setting(message):
        return Ruling(category=match.category, weight=WEIGHT, action="fix_config")
    return None


def _of_what_is_not_implemented(match: Match) -> Ruling | None:
    message = match.captures.get("message", "")[:500]
    if ABSTRACT.search(message) or not asks_for_a_setting(message):
        return None
    return Ruling(category=match.category, weight=WEIGHT, action="fix_config")


def asks_for_a_setting(message: str) -> bool:
    """Whether the code is right, and what it was told is not."""
    if OF_A_CALL.search(message) or OF_INPUTS.search(message) and not OF_OPTIONS.search(message):
        return False
    if SETTING.search(message):
        return True
    return DEMAND.search(message) is not None and OF_TENSORS.search(message) is None


def kind_of_exception(match: Match) -> str:
    """Without its module. As the traceback tells; of a line whose traceback is cut off, as the line itself does."""
    kind = match.error_type or match.captures.get("type", "")
    if not kind and match.signature == OF_ASSERTIONS:
        kind = "AssertionError"
    return kind.rpartition(".")[2]


def _passes(match: Match) -> bool:
    """Whether a complaint says itself that it is none, or that its writer goes on; who tries again for ever does not."""
    tries_again = TRIES_AGAIN.search(match.text)
    return bool(PASSES.search(match.text)) or bool(tries_again) and match.count < TRIES_MANY


def meant(message: str) -> str | None:
    """The category that a message's words tell; None where they do not."""
    return next((category for pattern, category in (*PLAIN, *RULES) if pattern.search(message)), None)


def _of_spoken(match: Match) -> Ruling | None:
    if _is_of_no_program(match):
        return Ruling(category=match.category, role="context", severity="info", weight=SPOKEN_WEIGHT)
    message = next((match.captures[name] for name in SPOKEN_IN if name in match.captures), "")[:500]
    category = meant(message) or ("data_error" if FILE.search(message) else None)
    if category:
        return Ruling(category=category, severity="warning", weight=SPOKEN_WEIGHT)
    if asks_for_a_setting(message):
        return Ruling(category=match.category, severity="warning", weight=SPOKEN_WEIGHT, action="fix_config")
    return None


def of_likeness(match: Match, signatures: Mapping[str, Signature]) -> Ruling | None:
    """What a program says of its error, where the message is one that its exception's signature knows.

    It stays what somebody says, and no more: others have seen more of the same failure.
    """
    known = signatures.get(match.known_as.signature) if match.known_as else None
    if known is None or _passes(match) or _is_of_no_program(match):
        return None
    captures = match.known_as.captures if match.known_as else {}
    return Ruling(
        category=known.category,
        role=known.role,
        severity="warning",
        weight=SPOKEN_WEIGHT,
        action=known.action,
        title=_filled(known.title, captures),
        explanation=_filled(known.explanation, captures),
        advice=_filled(known.advice, captures),
    )


def _filled(words: Words, captures: Mapping[str, str]) -> Words:
    return Words(en=filled(words.en, captures), zh=filled(words.zh, captures))


def _is_of_no_program(match: Match) -> bool:
    """A line of the system's, or no more than a warning."""
    return bool(OF_THE_SYSTEM.search(match.text) or WARNS.search(match.text))
