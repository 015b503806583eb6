r"""Recognises flight records, group exports and stack dumps among logs, and finds their rank. Pure, never raises.

    nccl_trace_rank_12   nccl_trace_rank_node02_5   comm_lib_trace_rank_3    written by torch, prefix and rank
    fr_rank_3   _dump_12   fr_exc_3   trace_rank_7.pkl   dump_0003.pickle    common names given by users
    fr_json_3.json   rank-3.flight.json                                     the JSON of torch's worker server
    groups3.json   rank-3.groups.json                                       members of a rank's groups
    faulthandler_3.txt   rank-3.stacks   pyspy_3.txt   py-spy-rank3.json     stacks

A file with the name of a record counts as one only if its first bytes fit. Stacks whose name has no rank are
searched as a log.

source: torch, FlightRecorder.cpp (names are a prefix, TORCH_FR_DUMP_TEMP_FILE, and the rank), torchcomms, torchtitan
"""

import re
from typing import Literal

from holdfast.late_pattern import late
from holdfast.parsers.log_lines.log_names import writer_of_name

Kind = Literal["record", "groups", "faulthandler", "py-spy"]

HEAD_BYTES = 8 << 10
RANK_MAX = 1 << 20
PICKLE = late(rb"\x80[\x02-\x05]")
TEXT_PICKLE = late(rb"\(d(?:p\d+\n)?|\(l(?:p\d+\n)?\(d|c[A-Za-z_][\w.]*\n\w+\n")  # protocols 0 and 1
KEYS = late(rb"pg_config|pg_status|entries|comm_lib_version|nccl_version|collective_seq_id|profiling_name")
JSON_KEYS = late(
    rb'"(?:pg_config|pg_status|comm_lib_version|nccl_version|collective_seq_id|nccl_comm_state)"\s*:'
)
JSON_PART = late(rb'"(?:entries|pg_config|pg_status)"\s*:\s*[\[{]')
GROUPS = late(rb'\s*\{\s*"[^"]{0,300}"\s*:\s*\{[^{}]{0,7000}"ranks"\s*:', re.DOTALL)
FAULTHANDLER = late(
    rb"\s*(?:Timeout \([\d:.]+\)!\s*)?(?:Current thread|Thread) 0x[0-9a-f]{1,16} (?:\[.{0,100}\] )?\(most recent call first\):"
)
DUMPED = late(rb"(?:Current thread|Thread) 0x|  File \"|  File \\?|  <|  \.\.\.|\.\.\.|Timeout \(|\s*$")
FATAL = b"Fatal Python error"
PYSPY = late(
    rb"\s*(?:\x1b\[\d*m)*Process (?:\x1b\[[\d;]*m)*\d+: [^\n]*\n(?:\x1b\[\d*m)*Python v|\s*Error: Failed to (?:get|suspend|find|open)"
)
PYSPY_JSON = late(rb'\s*\[\s*\{[^{}]{0,4000}"(?:thread_id|active|owns_gil|os_thread_id)"\s*:', re.DOTALL)
RECORD_NAME = late(
    r"(?i)(?:^|[/._-])(?:fr|flight|flight_?recorder|nccl_trace|comm_lib_trace|torchcomms?_fr|trace|dump)[._-]"
    r"|(?:^|/)(?:rank|_dump)[._-]?\d+$|\.flight(?:\.|$)"
)
GROUPS_NAME = late(r"(?i)groups?[._-]?\d*\.json(?:$|\.)")
ENDINGS = late(
    r"(?i)\.(?:json|pkl|pickle|bin|txt|log|dump|flight|groups|stacks?|trace|fr|out|gz|zst|xz|bz2)$"
)
SPOKEN = late(
    r"(?<![A-Za-z])(?<!local_)(?<!local-)rank[-_.=]?(\d{1,7})(?!\d|(?:\.\d{1,3}){3})", re.IGNORECASE
)
LAST = late(r"(?<![\d.])(\d{1,7})$")
ONE_NODE = late(r"(?i)local[-_]?rank[-_.=]?\d")


def kind_of(name: str, head: bytes) -> Kind | None:
    """Returns the kind of a file, by its name and its first 8 KiB; None for a log, or anything else."""
    if PICKLE.match(head) or TEXT_PICKLE.match(head):
        return "record" if KEYS.search(head) or RECORD_NAME.search(name) else None
    if FAULTHANDLER.match(head):
        # A crash, or a log that only begins with a dump, is searched as a log.
        lines = head.split(b"\n")[:-1]
        is_dump = FATAL not in head and all(map(DUMPED.match, lines))
        return "faulthandler" if is_dump and rank_of(name) is not None else None
    if PYSPY.match(head):
        return "py-spy" if rank_of(name) is not None else None
    if PYSPY_JSON.match(head):
        return "py-spy"
    start = head[:64].lstrip()[:1]
    if start == b"{" and GROUPS_NAME.search(name) and GROUPS.match(head):
        return "groups"
    if (
        start in (b"{", b"[")
        and JSON_KEYS.search(head)
        and (JSON_PART.search(head) or RECORD_NAME.search(name))
    ):
        return "record"
    return None


def rank_of(name: str) -> int | None:
    """Returns the rank in a file's path: a number after "rank", else the number at its end; else one in its
    folders.
    """
    own = name.replace("\\", "/").rpartition("/")[2]
    while (shorter := ENDINGS.sub("", own)) != own:
        own = shorter
    spoken = [int(number) for number in SPOKEN.findall(own)]
    if spoken:
        return spoken[-1]
    if ONE_NODE.search(own):  # a number within a node is no rank of the job
        return None
    if last := LAST.search(own):
        return int(last[1])
    rank = writer_of_name(name).rank
    return rank if rank is None or rank < RANK_MAX else None
