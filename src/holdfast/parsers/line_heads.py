"""Tells who wrote a line and when, from what launchers, loggers and kernels put before it. Pure, and never raises.

    [default3]:[rank11]: ...                        torchrun, torch            rank 11, local rank 3
    5: ...            [1,3]<stdout>: ...            srun --label, mpirun       rank 5, rank 3
    gpu-07: ...       worker-1: ...                 pdsh, DeepSpeed            host
    [pod/job-worker-1/main] ...                     kubectl logs --prefix      host (the pod)
    (WorkerDict pid=58, ip=10.0.0.3) ...            Ray                        pid, host
    (Worker_TP2 pid=41) ERROR 02-04 19:24:25 [core.py:11] ...    vLLM          rank, pid, time
    gpu-07:514:651 [1] socket.h:403 NCCL WARN ...   NCCL                       host, pid, device
    [E724 08:34:00.939894207 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0 Rank 2] ...
    Jan  2 03:04:05 gpu-07 kernel: [ 12.3] ...      syslog, dmesg, kmsg, journal JSON

Only what is sure is told: a rank within a smaller process group is none, a size or a date is no rank. `writer_of_name`
does the same with the name of a log.

source: torch, distributed/elastic/multiprocessing (prefixes, folders of --log-dir); srun(1); mpirun(1), --tag-output;
NCCL, src/debug.cc; Ray, _private/ray_logging; vLLM, utils/system_utils.py; systemd, journal export fields; kmsg
"""

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.model.sightings import NOBODY, Writer
from holdfast.parsers.stamps import Stamp, stamp_at

HEAD_MAX_BYTES = 600  # no head is longer; what stands behind is text
JSON_MAX_BYTES = 64 << 10
PIECES_MAX = 10
NUMBER_MAX = 10**7  # no rank, worker or device is higher
COLOUR = re.compile(rb"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")

HOST = r"[A-Za-z0-9](?:[\w.-]{0,80}\w)?"
# A word before a colon is a host only where it is numbered as hosts are, and no device, dtype or figure.
NUMBERED = (
    r"(?!(?:fp|bf|int|uint|float|sha|utf|x86|mlx|eth|ib|bond|en[opsx]|nvme|sd|md|dm-|loop|tty|cuda|npu|hip|xpu|gpu\d(?!\d)"
    r"|nvidia|nvswitch|hfi|rank|step|iter|epoch|layer|stage|fold|run|exp|top|acc|val|conv|fc|head|group|device|thread"
    r"|pid|tid|task|bucket|part|shard|chunk|block|level|attempt|trial|version|v|p|loss|lr|cpu|node_rank|local_rank|line"
    r"|error|warn|info|test|batch|phase|try|host_|arg|param|key|seed|docker|veth|cali|br|lo|mce|ata|usb|pci|scsi|kworker)"
    r"[-_ ]?\d[\w.-]*:)"
)


class Heads(Struct, frozen=True):
    """The kinds of heads that begin with one character, tried in this order."""

    patterns: tuple[re.Pattern[str], ...]


def _compiled(*patterns: str) -> Heads:
    return Heads(tuple(re.compile(pattern, re.ASCII) for pattern in patterns))


SOURCE_LINE = r"[\w./+<>-]{1,200}\.(?:py|pyx|cc|cpp|c|cu|cuh|h|hpp|rs|go|java|scala):\d{1,6}"
LEVEL = r"(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL|NOTICE|EVENT|TRACE|SUCCESS|ALERT)"
BRACKET = _compiled(
    r"\[(?:[Rr]ank|RANK)[ :=]{0,2}(?P<rank>\d{1,7})\](?::|(?= |$)) ?",
    r"\[(?:PG [^\]]{0,20}(?:GUID )?0(?: ?\(default_pg\))? |PG \d{1,9} \(default_pg\) )Rank (?P<rank>\d{1,7})\] ?",
    r"\[[\w.-]{0,40}?(?P<rank>\d{1,7})\|(?P<local>\d{1,5})\]: ?",
    r"\[(?:default|[\w.-]{0,30}trainer|[\w.-]{0,30}worker)_?(?P<local>\d{1,5})\]: ?",
    rf"\[(?:{HOST}@)?\d{{1,9}},(?P<rank>\d{{1,7}})\]<std(?:out|err|diag)>: ?",
    rf"\[pod/(?P<host>{HOST})/[\w.-]{{1,80}}\] ",
    rf"\[(?P<host>{HOST}):(?P<pid>\d{{1,9}})(?: *:\d{{1,9}}){{0,2}}\] ?",
    r"\[NeMo [IWED] ",
    rf"\[{LEVEL}\] [A-Z]{{2,12}}\((?P<pid>\d{{1,9}}),[^)]{{1,60}}\):",
    rf"\[{LEVEL}(?:\|{SOURCE_LINE})?\] ?",
    r"\[tid \d{1,9}\] ?",
    rf"\[[IWEFCDV]? ?{SOURCE_LINE}(?::[\w<>]{{1,80}})?\] ?",
    r"\[[a-z][a-z0-9_-]{0,20}\] (?=\d{4}-)",
)
PAREN = _compiled(
    r"\([A-Z]\w{0,60}\[rank=(?P<rank>\d{1,7})\] pid=(?P<pid>\d{1,9})(?:, ip=(?P<host>[\w.:-]{1,60}))?\) ?",
    r"\(\w{1,60} rank=(?P<rank>\d{1,7}) pid=(?P<pid>\d{1,9})(?:, ip=(?P<host>[\w.:-]{1,60}))?\) ?",
    r"\(Worker_TP(?P<rank>\d{1,7})(?:_EP\d{1,7})? pid=(?P<pid>\d{1,9})\) ?",
    r"\((?:[\w.:<>\[\]=-]{1,80} )?pid=(?P<pid>\d{0,9})(?:, (?:ip=)?(?P<host>[\w.:-]{1,60}))?\) ?",
    r"\((?:raylet|gcs_server|autoscaler[^)]{0,20}|scheduler[^)]{0,20})(?:, ip=(?P<host>[\w.:-]{1,60}))?\) ?",
)
ANGLE = _compiled(r"<\d{1,3}>(?=[\[A-Z\d])(?:\d )?")
COLON = _compiled(r':::MLLOG (?=\{[^}]{0,80}"time_ms": (?P<epoch_ms>\d{13}),)')
DIGIT = _compiled(
    r"(?P<task>\d{1,6}): ?",
    r"\d{1,3},\d{1,12},(?P<up_us>\d{1,18}),[-c](?:,[^;]{0,80})?;",
)
LETTER = _compiled(
    rf"(?P<host>{HOST}):(?P<pid>\d{{1,9}}):\d{{1,9}} (?:\[(?P<device>\d{{1,4}})\] )?",
    rf"{LEVEL} (?=\d\d-\d\d \d)",
    rf"{LEVEL} ?[:|] ?(?=\d{{4}}-)",
    r"kern +:(?:emerg|alert|crit|err|warn|notice|info|debug) *: ?",
    r"rank(?P<rank>\d{1,7})\[(?P<pid>\d{1,9})\]\[\w{1,40}\]: ?",
    rf"slurmstepd(?:-(?P<host>{HOST}))?: error: (?=\*\*\* )(?=.{{1,80}} ON (?P<ran_on>{HOST}) CANCELLED AT (?P<at>[\dT:-]{{19}}))?",
    rf"srun: error: (?P<host>{HOST}): task (?P<task>\d{{1,6}}): ",
    rf"srun: error: (?P<host>{HOST}): tasks \d[\d,-]{{0,200}}: ",
    rf"{NUMBERED}(?P<host>[a-z](?=[\w.-]{{0,60}}(?:\d[\d.-]|[-.]\w{{0,20}}\d))[\w.-]{{1,79}}[a-z0-9]|(?:node|host|worker)-?\d{{1,6}}): ",
    r"(?P<host>[a-z][a-z0-9-]{1,80}-(?:\d{1,5}|[0-9a-f]{8,10}-[a-z0-9]{5})) (?:[a-z][a-z0-9-]{1,40} )?(?=\d{4}-|\[)",
    rf"(?P<host>{HOST}) {{1,4}}\| ",
)
BY_FIRST = {
    "[": BRACKET,
    "(": PAREN,
    "<": ANGLE,
    ":": COLON,
    **dict.fromkeys("0123456789", DIGIT),
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", LETTER),
}
# Behind a stamp.
STREAM = re.compile(r"std(?:out|err) [FP] ", re.ASCII)
SYSLOG_TAG = re.compile(
    rf"(?P<host>{HOST}) (?P<tag>kernel|[\w./@-]{{1,60}}(?:\[(?P<pid>\d{{1,9}})\])?): ?", re.ASCII
)
GLOG_REST = re.compile(rf" {{0,8}}(?:(?P<pid>\d{{1,12}}) +)?{SOURCE_LINE}\] ?", re.ASCII)
LOGGER_REST = re.compile(
    rf"(?:- |\| )?(?:[\w.<>:-]{{1,120}} - |\[[\w. -]{{1,80}}\] ?){{0,2}}\[?{LEVEL}\]? *(?:- |\| |: ?|(?=\[)|$)(?:[\w.:<>]{{1,120}} - |\[[\w.:]{{1,80}}\] )?",
    re.ASCII,
)
OLMO_REST = re.compile(rf"(?P<host>{HOST}):(?P<local>\d{{1,4}})\t[\w.]+:\d+\t[A-Z]+\t", re.ASCII)
MXNET_REST = re.compile(r"Node\[(?P<worker>\d{1,6})\] ", re.ASCII)
ARROWS = re.compile(r">> ?")
SOURCE_REST = re.compile(rf"(?:[\w.]{{1,60}}:\d{{1,6}}|\[{SOURCE_LINE}(?::[\w<>]{{1,80}})?\])\]? ?", re.ASCII)
BEHIND_STAMP = (STREAM, OLMO_REST, MXNET_REST, GLOG_REST, SYSLOG_TAG, SOURCE_REST, LOGGER_REST, ARROWS)
# Anywhere near the beginning, where the head says no rank: a progress bar may stand before it.
PADDED_LABEL = re.compile(r" {1,3}(?P<task>\d{1,5}): ?", re.ASCII)  # more is the indent of a source line
RANK_LATER = re.compile(
    r"\[(?:[Rr]ank|PG (?:ID )?0 (?:PG GUID 0)?[^\]]{0,40}[Rr]ank) (?P<rank>\d{1,7})\]|\[rank(?P<rank2>\d{1,7})\]:",
    re.ASCII,
)
NAME_PARTS_MAX = 12
# torchrun --log-dir DIR: DIR/<run>_<random>/attempt_0/3/stderr.log
TORCHRUN_FOLDERS = re.compile(
    r"(?:^|/)attempt_\d{1,5}/(?P<local>\d{1,5})/(?:std(?:out|err)\.log|error\.json)", re.ASCII
)
BEFORE = r"(?:^|[^A-Za-z0-9])"
AFTER = r"(?![A-Za-z0-9]|[-_.]?of[-_.]?\d)"
OF_NAME = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"{BEFORE}(?:global[-_]?)?[Rr]ank[-_.=]?(?P<rank>\d{{1,6}})(?!\d)",
        rf"{BEFORE}local[-_]?rank[-_.=]?(?P<local>\d{{1,5}})(?!\d)",
        rf"{BEFORE}(?:[Ww]orker|[Nn]ode(?:[-_]?rank)?)[-_.=]?(?P<worker>\d{{1,6}})(?!\d)",
    )
)
OF_FILE_NAME = OF_NAME
NUMBERS = {"rank": "rank", "local": "local_rank", "worker": "worker", "pid": "pid", "task": "task"}


class Reading(Struct):
    """What the pieces of one head have said so far."""

    rank: int | None = None
    local_rank: int | None = None
    worker: int | None = None
    task: int | None = None
    host: str | None = None
    device: str | None = None
    pid: int | None = None
    stamp_s: float | None = None
    uptime_s: float | None = None
    is_stamped: bool = False  # a program's own time is read: a number in brackets is now a thread, no uptime


def writer_of(line: bytes, by_name: Writer = NOBODY) -> Writer:
    """Who wrote the line and when; what it does not say is as `by_name` says, save the time of a dated line.

    A stamp without a year takes that of `by_name.stamp_s`, see `parsers.stamps`.
    """
    reading, text = _read(line, by_name.stamp_s)
    if reading.rank is None and (later := RANK_LATER.search(text[:HEAD_MAX_BYTES].decode("latin-1"))):
        reading.rank = int(later["rank"] or later["rank2"])
    return _writer(reading, by_name)


def text_of(line: bytes) -> bytes:
    """The line without what `writer_of` reads, and without colours; an indent of the rest is kept."""
    return _read(line, None)[1]


def split_head(line: bytes, by_name: Writer = NOBODY) -> tuple[Writer, bytes]:
    """Both at once, by the head alone."""
    reading, text = _read(line, by_name.stamp_s)
    return _writer(reading, by_name), text


def _read(line: bytes, near_s: float | None) -> tuple[Reading, bytes]:
    reading = Reading()
    line = line.rstrip(b"\r\n")
    if b"\x1b" in line:
        line = COLOUR.sub(b"", line)
    if line.startswith(b"{") and (inner := _json(line, reading)) is not None:
        line = inner
    head = line[:HEAD_MAX_BYTES].decode("latin-1")  # one character is one byte
    place = 0
    if head.startswith(" ") and (label := PADDED_LABEL.match(head)):
        _take(reading, label)
        place = label.end()
    for _ in range(PIECES_MAX):
        if (stamp := stamp_at(head, place, near_s)) and not (stamp.uptime_s and reading.is_stamped):
            place = _take_stamp(reading, stamp, head)
        elif (behind := _piece(reading, head, place)) is not None and behind > place:
            place = behind
        else:
            break
    return reading, line[place:]


def _piece(reading: Reading, head: str, place: int) -> int | None:
    heads = BY_FIRST.get(head[place : place + 1])
    for pattern in heads.patterns if heads else ():
        if match := pattern.match(head, place):
            _take(reading, match)
            return match.end()
    return None


def _take_stamp(reading: Reading, stamp: Stamp, head: str) -> int:
    if reading.stamp_s is None:
        reading.stamp_s = stamp.stamp_s
    if reading.uptime_s is None:
        reading.uptime_s = stamp.uptime_s
    if stamp.uptime_s is not None:
        return stamp.end
    reading.is_stamped = True
    for pattern in BEHIND_STAMP:
        if match := pattern.match(head, stamp.end):
            _take(reading, match)
            reading.is_stamped = match.re is not SYSLOG_TAG
            return match.end()
    return stamp.end


def _take(reading: Reading, match: re.Match[str]) -> None:
    for group, value in match.groupdict().items():
        if not value:
            continue
        if group in NUMBERS and getattr(reading, NUMBERS[group]) is None:
            setattr(reading, NUMBERS[group], int(value))
        elif group in ("host", "ran_on"):
            reading.host = reading.host or value
        elif group == "device":
            reading.device = value
        elif group == "up_us":
            reading.uptime_s = int(value) / 1e6
        elif group == "epoch_ms":
            reading.stamp_s = int(value) / 1e3
        elif group == "at" and (stamp := stamp_at(value, 0)):
            reading.stamp_s = stamp.stamp_s


def _json(line: bytes, reading: Reading) -> bytes | None:
    """The message within a journal's, Docker's or a logger's JSON line; None: it is nothing of the kind."""
    if len(line) > JSON_MAX_BYTES:
        return None
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    message = next((record[key] for key in ("MESSAGE", "log", "message", "msg") if key in record), None)
    if isinstance(message, list):  # journalctl writes bytes that are no UTF-8 as numbers
        message = bytes(one for one in message if isinstance(one, int) and 0 <= one < 256)
    if isinstance(message, str):
        message = message.encode("utf-8", "replace")
    if not isinstance(message, bytes):
        return None
    _take_json(record, reading)
    return message.rstrip(b"\r\n")


def _take_json(record: Mapping[str, object], reading: Reading) -> None:
    for key, unit_s in (("_SOURCE_REALTIME_TIMESTAMP", 1e-6), ("__REALTIME_TIMESTAMP", 1e-6)):
        value = record.get(key)
        if reading.stamp_s is None and isinstance(value, str) and value.isascii() and value.isdigit():
            reading.stamp_s = int(value[:18]) * unit_s
    for key in ("time", "timestamp", "ts", "asctime"):
        value = record.get(key)
        if reading.stamp_s is None and isinstance(value, str) and (stamp := stamp_at(value[:60], 0)):
            reading.stamp_s = stamp.stamp_s
        elif reading.stamp_s is None and isinstance(value, int | float) and 1e9 < value < 1e11:
            reading.stamp_s = float(value)
    for key in ("_HOSTNAME", "hostname", "host", "node"):
        if reading.host is None and isinstance(value := record.get(key), str) and value:
            reading.host = value[:255]
    for key, field in (
        ("rank", "rank"),
        ("global_rank", "rank"),
        ("local_rank", "local_rank"),
        ("_PID", "pid"),
    ):
        value = record.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit():
            value = int(value[:12])
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < NUMBER_MAX:
            setattr(reading, field, value)


def _writer(reading: Reading, by_name: Writer) -> Writer:
    rank, worker = reading.rank, reading.worker
    if reading.task is not None:
        is_node = (
            reading.local_rank is not None
            or rank is not None
            or (reading.device is not None and int(reading.device) > reading.task)
        )
        if not is_node:
            rank = reading.task
        elif rank != reading.task and worker is None:
            worker = reading.task
    own: dict[str, object] = {
        "rank": rank,
        "local_rank": reading.local_rank,
        "worker": worker,
        "host": reading.host,
        "device": reading.device,
        "pid": reading.pid,
        "stamp_s": reading.stamp_s,
        "uptime_s": reading.uptime_s,
    }
    told = {key: value for key, value in own.items() if value is not None}
    return replace(by_name, **{"stamp_s": None, "uptime_s": None, **told})


def writer_of_name(name: str) -> Writer:
    """What the path of a log tells, from its file name and its folders, the nearest first.

    "attempt_0/3/stderr.log" (torchrun --log-dir): local rank 3. "job-12-gpu-07-rank16.txt": host gpu-07, rank 16.
    "node3/rank_5.log": worker 3, rank 5. A number is a rank only where the name says so.
    """
    found: dict[str, object] = {}
    parts = [part for part in re.split(r"[\\/]+", name[-4096:]) if part]
    for place, part in enumerate(reversed(parts[-NAME_PARTS_MAX:])):
        for pattern in OF_NAME if place else OF_FILE_NAME:
            if match := pattern.search(part[:255]):
                for group, value in match.groupdict().items():
                    number = group in NUMBERS
                    key = NUMBERS[group] if number else group
                    found.setdefault(key, int(value) if number else value)
    if torchrun := TORCHRUN_FOLDERS.search("/".join(parts)):
        found["local_rank"] = int(torchrun["local"])
    return Writer(**found)  # type: ignore[arg-type]
