"""Defines patterns of the prefixes that launchers, loggers and kernels print before a line, for `line_heads`.

Data only.

Groups: rank, local (rank), worker, task (of srun), host, device, pid, up_us (since boot), epoch_ms, at and
ran_on (time and host of a Slurm notice). Each form begins at the end of the previous one, includes at most
one space after it, so that indentation stays, and limits its repetitions.

source: torch, distributed/elastic/multiprocessing; srun(1) --label; mpirun(1) --tag-output; NCCL,
src/debug.cc; Ray, _private/ray_logging; vLLM, utils/system_utils.py; Composer; Megatron and NeMo loggers;
Ascend plog; RFC 3164, RFC 5424
"""

import re
from collections.abc import Mapping

from holdfast.late_pattern import late

DIGITS = "0123456789"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

HOST = r"[A-Za-z0-9](?:[\w.-]{0,80}\w)?"
LEVEL = r"(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|NOTICE|EVENT|TRACE|SUCCESS|ALERT)"
KMSG_LEVEL = r"(?:emerg|alert|crit|err|warn|warning|notice|info|debug)"
SYSLOG_LEVEL = r"(?:DEBUG|INFO|NOTICE|WARNING|ERR|CRIT|ALERT|EMERG)"  # of SONiC, between host and program
SOURCE_LINE = r"[\w./\\+<>-]{1,200}\.(?:py|pyx|cc|cpp|c|cu|cuh|h|hpp|rs|go|java|scala):\d{1,6}"
RAY_HOST = r"(?:, (?:ip=)?(?P<host>[\w.:-]{1,60}))?"

# A word before a colon is a host only if it is numbered like a host, and is no device, dtype, step or metric.
NO_HOST = (
    r"(?:[bf]p|bf|u?int|float|sha|md|utf|x|mlx|eth|ib|bond|en[opsx]|nvme|sd|dm|loop|tty|cuda|npu|hip|xpu|tpu|nvidia(?:-(?:nvswitch|nvlink|modeset|uvm|drm|fs))?|hfi"
    r"|nvswitch|rank|step|iter|iteration|epoch|layer|stage|fold|run|exp|experiment|top|acc|val|conv|fc|head|group|gpus"
    r"|device|thread|pid|tid|task|bucket|part|shard|chunk|block|level|attempt|trial|version|v|p|loss|lr|cpu|line|error"
    r"|warn|warning|info|test|batch|phase|try|arg|param|key|seed|docker|veth|cali|br|lo|mce|ata|usb|pci|scsi|kworker"
    r"|python|py|torch|cudnn|nccl|gcc|libc|module|model|expert|token|sample|image|video|frame|page|size|rate|port|job"
    r"|core|socket|numa|node[-_]rank|local[-_]rank|world[-_]size|slot|id|no|num|n|t|k|q|r|s|w|h|d|c|b|a|i|j)"
)
NUMBERED_HOST = (
    rf"(?!{NO_HOST}[-_]?\d{{1,9}}(?![a-z\d-]))"
    r"(?:(?:node|host|worker|server)-?\d{1,6}|gpu-?\d{2,6}|(?!gpu-?\d:)(?=[a-z][\w.-]{0,60}\d)[a-z][a-z\d]{0,40}(?:[.-][a-z\d]{1,40}){1,8}"
    r"|[a-z]{1,12}\d{2,6}|[a-z]{1,3}\d{1,4}[a-z]\d{1,4}(?:[a-z]\d{1,4}){0,3})"
)

BRACKET = (
    r"\[(?:[Rr]ank|RANK)[ :=]{0,2}(?P<rank>\d{1,7})\](?::|(?= |$)) ?",
    r"\[PG (?:ID 0 |(?:ID \d{1,6} PG GUID )?0(?:\(default_pg\))? |(?:ID \d{1,6} PG GUID )?\d{1,6} ?\(default_pg\) )"
    r"(?:PG GUID 0(?:\(default_pg\))? )?Rank (?P<rank>\d{1,7})\] ?",
    r"\[[\w.-]{0,40}?(?P<rank>\d{1,7})\|(?P<local>\d{1,5})\]: ?",
    r"\[(?:default|[\w.-]{0,30}trainer|[\w.-]{0,30}worker)_?(?P<local>\d{1,5})\]: ?",
    rf"\[(?:{HOST}@)?(?:\d{{1,9}},)?(?P<rank>\d{{1,7}})\]<std(?:out|err|diag)>: ?",
    rf"\[pod/(?P<host>{HOST})/[\w.-]{{1,80}}\] ",
    rf"\[(?P<host>{HOST}):(?P<pid>\d{{1,9}})(?: {{0,2}}:\d{{1,9}}){{0,2}}\] ?",
    rf"\[(?P<host>{NUMBERED_HOST})\] ?(?=\[)",
    r"\[NeMo [IWED] ",
    rf"\[{LEVEL}\] [A-Z_]{{2,16}}\((?P<pid>\d{{1,9}}),[^)]{{1,60}}\):",
    rf"\[{LEVEL}(?:\|{SOURCE_LINE})?\] ?",
    r"\[tid \d{1,9}\] ?",
    rf"\[[IWEFCDV]? ?{SOURCE_LINE}(?::[\w<>]{{1,80}})?\] ?",
    r"\[[a-z][a-z0-9_-]{0,20}\] (?=\d{4}-)",
)
PAREN = (
    rf"\(\w{{1,60}}(?:\[rank=| rank=)(?P<rank>\d{{1,7}})\]? pid=(?P<pid>\d{{1,9}}){RAY_HOST}\) ?",
    # The rank among the workers of one engine, which only tensor parallelism numbers here.
    r"\(Worker_TP(?P<rank>\d{1,7})(?:_EP\d{1,7})? pid=(?P<pid>\d{1,9})\) ?",
    rf"\((?:[\w.:<>\[\]=-]{{1,80}} )?pid=(?P<pid>\d{{0,9}}){RAY_HOST}\) ?",
    rf"\((?:raylet|gcs_server|autoscaler[^)]{{0,20}}|scheduler[^)]{{0,20}}){RAY_HOST}\) ?",
)
ANGLE = (r"<\d{1,3}>(?:1 (?=\d{4}-)|(?=[\[A-Z\d]))",)
COLON = (r':::MLLOG (?=\{[^}]{0,80}"time_ms": (?P<epoch_ms>\d{13}),)',)
LETTER = (
    rf"(?P<host>{HOST}):(?P<pid>\d{{1,9}}):\d{{1,9}} (?:\[(?:-1|(?P<device>\d{{1,4}}))\] |(?=[NRH]CCL ))",
    rf"{LEVEL} (?=\d\d-\d\d \d)",
    rf"{LEVEL} ?[:|] ?(?=\d{{4}}-)",
    rf"(?:kern|daemon|user|syslog) +:{KMSG_LEVEL} *: ?",
    rf"(?:kern|daemon|user|syslog)\.{KMSG_LEVEL} (?:<\d{{1,3}}> ?)?",
    r"rank(?P<rank>\d{1,7})\[(?P<pid>\d{1,9})\]\[\w{1,40}\]: ?",
    rf"slurmstepd(?:-(?P<host>{HOST}))?: error: (?=\*\*\* .{{1,80}} ON (?P<ran_on>{HOST}) CANCELLED AT (?P<at>[\dT:-]{{19}}))",
    rf"slurmstepd-(?P<host>{HOST}): (?=error: )",
    rf"srun: error: (?P<host>{HOST}): tasks? (?:(?P<task>\d{{1,6}})|\d[\d,-]{{0,200}}): ",
)
TALOSCTL = rf"(?P<host>{HOST}): (?:kern|daemon|user|syslog): {{1,8}}{KMSG_LEVEL}: (?=\[[12]\d{{3}}-)"
# Only at the beginning of the line: later, a word before a colon is the subject of the line.
DIGIT_FIRST = (
    TALOSCTL,
    r"(?P<task>\d{1,6}):(?: |$)",
    r"\d{1,3},\d{1,12},(?P<up_us>\d{1,18}),[-c](?:,[^;]{0,80})?;",
)
# More spaces are the indentation of a source line, except before torch's own prefixes, in indented pastes.
SPACE_FIRST = (r" {1,3}(?P<task>\d{1,5}):(?: |$)", r" {1,12}(?=\[(?:rank|default)\d{1,7}\]:)")
LETTER_FIRST = (
    TALOSCTL,
    # The file that grep names before each line.
    r"[\w./-]{1,120}:(?=[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |\d{4}-\d\d-\d\dT\d\d:)",
    rf"(?P<host>{NUMBERED_HOST}): (?!\d{{1,12}}(?:\.\d{{0,12}})?(?:$|[ ,%]))",
    r"(?P<host>[a-z][a-z\d-]{1,60}-(?:worker|master|launcher|head)-\d{1,5}|[a-z][a-z\d-]{1,60}-[\da-f]{8,10}-[a-z\d]{5})"
    r" (?:\xe2\x80\xba )?[a-z][a-z\d-]{0,40} (?:\xe2\x80\xba )?",
    rf"(?P<host>{HOST}) {{1,8}}\| ",
)
# After a time stamp, by their first character. Loggers write names and the level there, in any order.
LOGGER = (
    rf"(?:- |\| )?(?:[\w.<>:-]{{1,120}} - |\[[\w. -]{{1,80}}\] ?){{0,2}}\[?{LEVEL}\]? {{0,8}}(?:- |\| |: ?|(?<=   )|(?=\[)|$)"
    r"(?:[\w.:<>]{1,120} - |\[[\w.:]{1,80}\] )?"
)
GLOG_SOURCE = rf" {{0,8}}(?:(?P<pid>\d{{1,16}}) {{1,4}})?(?:{SOURCE_LINE}|[\w.]{{1,60}}:\d{{1,6}})\] ?"
POD = r"(?P<host>(?:\d{1,3}\.){3}\d{1,3}) \[\d{1,4}\] ?"  # of TPUs: by the address of the host
AFTER_STAMP = {
    "[": (rf"\[{SOURCE_LINE}(?::[\w<>]{{1,80}})?\] ?", LOGGER),
    "-": (r"- (?P<rank>\d{1,6}) - [\w.]{1,80} - [\w.]{1,60}:\d{1,6} - [A-Z]{1,10} :: ?", LOGGER),
    "|": (LOGGER,),
    ":": (r": [IWEF] [\w./-]{1,120}:\d{1,6}\] ?", r": (?=\S)"),
    ">": (r">> ?",),
    " /." + DIGITS: (GLOG_SOURCE, POD),
    LETTERS: (
        r"std(?:out|err) [FP] ",
        rf"(?P<host>{HOST}):(?P<local>\d{{1,4}})\t[\w.]{{1,80}}:\d{{1,6}}\t[A-Z]{{1,10}}\t",
        rf"{LEVEL} [\w.]{{1,60}}\.py:\d{{1,6}} -- ?",
        r"Node\[(?P<worker>\d{1,6})\] ",
        GLOG_SOURCE,
        LOGGER,
        rf"(?P<host>{HOST}) (?:{SYSLOG_LEVEL} )?(?:kernel|[\w./@-]{{1,60}}\[(?P<pid>\d{{1,9}})\]): ?",
        rf"(?P<host>{HOST}) [\w./-]{{1,48}} (?:(?P<pid>\d{{1,9}})|-) [\w.-]{{1,32}} (?:-|\[[^\]]{{0,200}}\]) ",
    ),
}
AFTER_SYSLOG_STAMP = (
    rf"(?P<host>{HOST}) (?:{SYSLOG_LEVEL} )?[\w./@-]{{1,60}}(?:\[(?P<pid>\d{{1,9}})\])?: ?",
)

Patterns = tuple[re.Pattern[str], ...]


def _compiled(forms: tuple[str, ...]) -> Patterns:
    return tuple(late(form, re.ASCII) for form in forms)


def _by_first(forms: Mapping[str, tuple[str, ...]]) -> dict[str, Patterns]:
    return {
        character: compiled
        for characters, some in forms.items()
        for compiled in (_compiled(some),)
        for character in characters
    }


ANYWHERE = _by_first({"[": BRACKET, "(": PAREN, "<": ANGLE, ":": COLON, LETTERS: LETTER})
AT_FIRST = _by_first({DIGITS: DIGIT_FIRST, " ": SPACE_FIRST, LETTERS: LETTER_FIRST})
BEHIND_STAMP = _by_first(AFTER_STAMP)
BEHIND_SYSLOG_STAMP = _compiled(AFTER_SYSLOG_STAMP)
