"""Determines the writer and time of a log line from its prefix. Pure, and never raises.

Launchers, loggers and kernels write such prefixes:

    [default3]:[rank11]: ...                        torchrun, torch            rank 11, local rank 3
    5: ...            [1,3]<stdout>: ...            srun --label, mpirun       rank 5, rank 3
    [3]<stderr>:...                                 horovodrun                 rank 3
    gpu-07: ...       worker-1: ...                 pdsh, DeepSpeed            host
    [pod/job-worker-1/main] ...                     kubectl logs --prefix      host (the pod)
    (WorkerDict pid=58, ip=10.0.0.3) ...            Ray                        pid, host
    (Worker_TP2 pid=41) ERROR 02-04 19:24:25 [core.py:11] ...    vLLM          rank, pid, time
    gpu-07:514:651 [1] socket.h:403 NCCL WARN ...   NCCL                       host, pid, device
    [E724 08:34:00.939894207 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0 Rank 2] ...
    Jan  2 03:04:05 gpu-07 kernel: [ 12.3] ...      syslog, dmesg, kmsg, journal JSON
    10.0.0.7: kern: warning: [2026-01-02T03:04:05Z]: ...    talosctl dmesg     host

Only certain values are returned: a rank within a smaller process group is no rank of the job, nor is a size
or a date. `log_names` does the same with the name of a log.

A number of srun --label is the rank if each task is one process, and the worker if a task starts several:
then a line with a rank, local rank or device shows it. `labels_are_nodes` finds such a line; the reader of a
whole log then passes the result to `writer_of`.

source: torch, distributed/elastic/multiprocessing (prefixes, folders of --log-dir); srun(1); mpirun(1),
--tag-output; Horovod, runner/common/util/safe_shell_exec.py; NCCL, src/debug.cc; Ray, _private/ray_logging;
vLLM, utils/system_utils.py; systemd, journal export fields; kmsg
"""

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.late_pattern import late
from holdfast.model.matches import NO_WRITER, Writer
from holdfast.parsers.log_lines.head_forms import ANYWHERE, AT_FIRST, BEHIND_STAMP, BEHIND_SYSLOG_STAMP, HOST
from holdfast.parsers.log_lines.log_names import writer_of_name as writer_of_name
from holdfast.parsers.log_lines.stamps import Stamp, stamp_at

HEAD_MAX_BYTES = 600  # no prefix is longer
JSON_MAX_BYTES = 64 << 10
PIECES_MAX = 10
INDENTATION_MAX = 8
NUMBER_MAX = 10**7  # no rank, worker or device is higher
COLOUR = late(rb"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9])")

# A rank near the beginning of a line whose prefix has none, for example after a progress bar.
RANK_LATER = late(
    r"\[(?:[Rr]ank|PG (?:ID )?0 (?:PG GUID 0)?[^\]]{0,40}[Rr]ank) (?P<rank>\d{1,7})\]|\[rank(?P<rank2>\d{1,7})\]:"
    rf"|srun: error: (?P<host>{HOST}): task (?P<task>\d{{1,6}}): ",
    re.ASCII,
)
KERNEL_UPTIME = late(r"\[ {0,6}\d{1,7}\.\d{6}\] ")  # padded and with microseconds, unlike a thread number
KERNEL_ONLY = (late(rf"(?P<host>{HOST}) kernel: ?", re.ASCII),)
NUMBERS = {"rank": "rank", "local": "local_rank", "worker": "worker", "pid": "pid", "task": "task"}


class Reading(Struct):
    """The values found so far in the parts of a log line's prefix."""

    rank: int | None = None
    local_rank: int | None = None
    worker: int | None = None
    task: int | None = None
    host: str | None = None
    device: str | None = None
    pid: int | None = None
    stamp_s: float | None = None
    uptime_s: float | None = None
    is_stamped: bool = False  # after a program's time stamp, a number in brackets is a thread, no uptime


def writer_of(line: bytes, by_name: Writer = NO_WRITER, *, labels_are_nodes: bool = False) -> Writer:
    """Returns the writer and time of a line; missing values, except the time, are those of `by_name`.

    A time stamp without a year gets that of `by_name.stamp_s`, see `parsers.stamps`.
    """
    reading, text = _read(line, by_name.stamp_s)
    if reading.rank is None and (later := RANK_LATER.search(text[:HEAD_MAX_BYTES].decode("latin-1"))):
        reading.rank = int(later["rank"] or later["rank2"] or later["task"])
        reading.host = later["host"] or reading.host
    return _writer(reading, by_name, labels_are_nodes=labels_are_nodes)


def labels_are_nodes(line: bytes) -> bool:
    """Returns whether this line shows that srun labels in its log number workers, not ranks ("1: [rank13]:
    ...").
    """
    reading, _ = _read(line, None)
    return reading.task is not None and _is_node(reading)


def text_of(line: bytes) -> bytes:
    """Returns a log line without its prefix and colour codes; indentation is kept."""
    return _read(line, None)[1]


def split_head(line: bytes, by_name: Writer = NO_WRITER) -> tuple[Writer, bytes]:
    """Returns the writer, and the line without its prefix. The writer is taken from the prefix alone."""
    reading, text = _read(line, by_name.stamp_s)
    return _writer(reading, by_name, labels_are_nodes=False), text


def _read(line: bytes, near_s: float | None) -> tuple[Reading, bytes]:
    reading = Reading()
    line = line.rstrip(b"\r\n")
    if b"\x1b" in line:
        line = COLOUR.sub(b"", line)
    if line.startswith(b"{") and (inner := _json(line, reading)) is not None:
        line = inner
    head = line[:HEAD_MAX_BYTES].decode("latin-1")  # one character is one byte
    place = _indentation(head, near_s)
    for _ in range(PIECES_MAX):
        if (stamp := stamp_at(head, place, near_s)) and not (
            stamp.uptime_s is not None and reading.is_stamped and not KERNEL_UPTIME.match(head, place)
        ):
            place = _take_stamp(reading, stamp, head, place)
        elif (behind := _piece(reading, head, place)) is not None and behind > place:
            place = behind
        else:
            break
    return reading, line[place:]


def _indentation(head: str, near_s: float | None) -> int:
    """Returns the length of the indentation before a time stamp, as text pasted into a page has; else 0."""
    place = len(head) - len(head.lstrip(" "))
    return place if 0 < place <= INDENTATION_MAX and stamp_at(head, place, near_s) else 0


def _piece(reading: Reading, head: str, place: int) -> int | None:
    first = head[place : place + 1]
    patterns = ANYWHERE.get(first, ())
    for pattern in patterns if place else (*patterns, *AT_FIRST.get(first, ())):
        if match := pattern.match(head, place):
            _take(reading, match)
            return match.end()
    return None


def _take_stamp(reading: Reading, stamp: Stamp, head: str, place: int) -> int:
    if reading.stamp_s is None:
        reading.stamp_s = stamp.stamp_s
    if reading.uptime_s is None:
        reading.uptime_s = stamp.uptime_s
    if stamp.is_syslog:
        patterns = BEHIND_SYSLOG_STAMP
    elif stamp.uptime_s is not None:
        patterns = KERNEL_ONLY
    else:
        patterns = BEHIND_STAMP.get(head[stamp.end : stamp.end + 1], ())
    reading.is_stamped = reading.is_stamped or stamp.uptime_s is None
    for pattern in patterns:
        if match := pattern.match(head, stamp.end):
            _take(reading, match)
            reading.is_stamped = " kernel:" not in match[0]
            return match.end()
    return stamp.end + 2 if head.startswith(": [", stamp.end) else stamp.end  # mpirun --timestamp-output


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
    """Returns the message in a JSON line of the journal, Docker or a logger; None for other lines."""
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


def _is_node(reading: Reading) -> bool:
    """Returns whether the label is no rank: the line has a different one, or its device does not fit (rank 1
    never has GPU 3).
    """
    if reading.rank is not None:
        return reading.rank != reading.task
    if reading.local_rank is not None:
        return True
    return reading.device is not None and reading.task is not None and int(reading.device) > reading.task


def _writer(reading: Reading, by_name: Writer, *, labels_are_nodes: bool) -> Writer:
    rank, worker = reading.rank, reading.worker
    if reading.task is not None:
        if labels_are_nodes or _is_node(reading):
            worker = reading.task if worker is None else worker
        elif rank is None:
            rank = reading.task
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
    known = {key: value for key, value in own.items() if value is not None}
    return replace(by_name, **{"stamp_s": None, "uptime_s": None, **known})
