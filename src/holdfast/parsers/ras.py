"""Parses the report of NCCL's RAS on `VERBOSE STATUS`. Pure; never raises on its input.

    Communicators... (0.00s)
    =============

    Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
        #  in group  per comm  per node  per comm  in group
        0         1         4         8        32        32   RUNNING  MISMATCH
    ...
    #0-0 (00c0ffee00c0ffee) MISMATCH
      Communicator ranks have different AllGather operation counts
      30 ranks have launched up to operation 640
      Rank 12 -- GPU 4 managed by process 323032 on node 10.0.0.7

Before NCCL 2.26 the counts are of all kinds together. Lines in words that are not known are kept as they are.

source: NCCL, src/ras/client_support.cc, 2.24 to 2.32
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from holdfast.late_pattern import late
from holdfast.model.nodes.samples import RankRef, RasGroup, RasLaunched, RasReport, RasTrouble

LINES_MAX = 20_000
TROUBLES_MAX = 256
NAMED_MAX = 64  # ranks or processes per entry
SAYS_MAX = 16  # unparsed lines per entry, each truncated to LINE_MAX characters
LINE_MAX = 200
_NUMBER = r"\d{1,18}"
VERSION = late(r"NCCL version (\S{1,40})")
JOB = late(rf" *{_NUMBER}(?:  +{_NUMBER}){{2}}(?:  +{_NUMBER}){{0,2}} *")
GROUP = late(
    rf" *{_NUMBER}  +(?P<communicators>{_NUMBER})  +(?P<nodes>{_NUMBER})  +[\d-]+  +(?P<ranks>{_NUMBER})"
    rf"  +{_NUMBER}  +(?P<status>[A-Z]+)  +(?P<errors>[A-Z,]+) *"
)
HEAD = late(r"(?:#\d+-\d+ \((?P<communicator>[0-9a-f]{1,32})\) )?(?P<kind>[A-Z][A-Z_]{1,30})")
MISSING = late(rf"Missing communicator data from ({_NUMBER}) ")
DEAD = late(rf"({_NUMBER}) job process(?:es)? .*considered dead")
PROCESS = late(rf"Process (?P<pid>{_NUMBER}) on node (?P<node>\S{{1,64}})(?: managing GPUs? (?P<gpu>\d+))?")
LISTED = late(r"The (?:missing|unknown) ranks?: (?P<ranks>[\d,]+)")
DIFFER = late(r"Communicator ranks have different (?:(?P<operation>\w+) )?operation counts")
COUNT = late(rf"(?P<ranks>{_NUMBER}) ranks have launched up to operation (?P<count>{_NUMBER})")
RANK = late(
    rf"Rank (?P<rank>{_NUMBER})(?: has launched up to operation (?P<count>{_NUMBER})| (?P<said>\w[^-]*?))?"
    rf"(?: -- (?:GPU (?P<gpu>\d+)(?: \(NVML \d+\))? managed by process (?P<pid>{_NUMBER}) on node (?P<node>\S{{1,64}})"
    r"|\[.*\]))?"
)


class _Entry(Struct):
    """An entry of the report while its lines are parsed."""

    kind: str
    communicator: str
    missing: int = 0
    operation: str = ""
    who: list[RankRef] = []
    launched: list[tuple[str, int, int, list[RankRef]]] = []  # operation, count, ranks, who
    says: list[str] = []
    in_launched: bool = False


def parse_report(text: bytes, *, is_cut: bool = False) -> RasReport:
    """Parses NCCL's RAS report. `is_cut`: it was not received completely."""
    lines = text.decode("utf-8", "replace").splitlines()
    is_cut = is_cut or len(lines) > LINES_MAX
    version = processes = None
    groups: list[RasGroup] = []
    section = ""
    entries: list[_Entry] = []
    for line in lines[:LINES_MAX]:
        if not section and version is None and (found := VERSION.match(line)):
            version = found[1]
        elif line.startswith("Communicators..."):
            section = "groups"
        elif line in ("Errors", "Warnings"):
            section = line
        elif not section and JOB.fullmatch(line):
            processes = _processes(line)
        elif section == "groups" and (found := GROUP.fullmatch(line)):
            groups.append(_group(found))
        elif section in ("Errors", "Warnings"):
            _take(line, entries)
    return RasReport(
        nccl=version or "",
        processes=processes,
        groups=tuple(groups[:TROUBLES_MAX]),
        troubles=tuple(_trouble(entry) for entry in entries),
        is_whole=section == "Warnings" and not is_cut,
    )


def _processes(line: str) -> int:
    """Returns the number of processes in a row with nodes, (processes per node, GPUs per process,) processes,
    GPUs.
    """
    numbers = [int(word) for word in line.split()]
    return numbers[3] if len(numbers) == 5 else numbers[1]


def _group(found: re.Match[str]) -> RasGroup:
    errors = tuple(word for word in found["errors"].split(",") if word and word != "OK")
    return RasGroup(
        communicators=int(found["communicators"]),
        nodes=int(found["nodes"]),
        ranks=int(found["ranks"]),
        status=found["status"],
        errors=errors,
    )


def _take(line: str, entries: list[_Entry]) -> None:
    if not line.strip() or set(line) == {"="}:
        return
    if not line.startswith(" "):
        head = HEAD.fullmatch(line)
        if head and len(entries) < TROUBLES_MAX:
            entries.append(_Entry(head["kind"], head["communicator"] or ""))
        return
    if entries:
        _add(line.strip(), entries[-1])


def _add(line: str, entry: _Entry) -> None:
    if found := MISSING.match(line) or DEAD.match(line):
        entry.missing = int(found[1])
    elif found := DIFFER.match(line):
        entry.operation, entry.in_launched = found["operation"] or "", True
        if entry.operation == "collective":  # all kinds together
            entry.operation = ""
    elif found := COUNT.fullmatch(line):
        entry.launched.append((entry.operation, int(found["count"]), int(found["ranks"]), []))
    elif found := PROCESS.match(line):
        _name(entry.who, _ref(found))
    elif found := LISTED.fullmatch(line):
        for rank in _ranks(found["ranks"]):
            _name(entry.who, RankRef(rank=rank))
    elif found := RANK.fullmatch(line):
        _add_rank(found, line, entry)
    else:
        entry.in_launched = False
        _say(line, entry)


def _add_rank(found: re.Match[str], line: str, entry: _Entry) -> None:
    who = _ref(found)
    if found["count"] is not None:
        entry.launched.append((entry.operation, int(found["count"]), 1, [who]))
    elif found["said"] is None and entry.in_launched and entry.launched:
        _name(entry.launched[-1][3], who)
    else:
        _name(entry.who, who)
        if found["said"]:
            _say(line, entry)


def _ref(found: re.Match[str]) -> RankRef:
    given = found.groupdict()
    rank, pid, gpu = (int(text) if (text := given.get(key)) else None for key in ("rank", "pid", "gpu"))
    return RankRef(rank=rank, pid=pid, node=given["node"] or "", gpu=gpu)


def _name(who: list[RankRef], one: RankRef) -> None:
    if len(who) < NAMED_MAX:
        who.append(one)


def _say(line: str, entry: _Entry) -> None:
    if len(entry.says) < SAYS_MAX:
        entry.says.append(line[:LINE_MAX])


def _ranks(text: str) -> Iterator[int]:
    yield from (int(word) for word in text.split(",")[:NAMED_MAX] if word and len(word) <= 18)


def _trouble(entry: _Entry) -> RasTrouble:
    return RasTrouble(
        kind=entry.kind,
        communicator=entry.communicator,
        missing=entry.missing,
        who=tuple(entry.who),
        launched=tuple(
            RasLaunched(operation=operation, count=count, ranks=ranks, who=tuple(who))
            for operation, count, ranks, who in entry.launched[:NAMED_MAX]
        ),
        says=tuple(entry.says),
    )
