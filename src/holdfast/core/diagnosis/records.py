"""Finds the node of a table row or of a multi-line record in the output of schedulers' tools. Pure.

Name:       node-a5                     NodeName=n-07 Arch=x86_64 CoresPerSocket=32
Conditions:                                State=DOWN ThreadsPerCore=2
  Ready  False  ...                        Reason=Not responding [slurm@2031-02-03T04:05:06]
"""

from collections.abc import Sequence

from holdfast.core.diagnosis.candidates import Candidate, Ruling
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.late_pattern import late
from holdfast.model.matches import Search
from holdfast.model.signatures import Signature
from holdfast.slurm_names import BadNodeList, expanded

SURE_OF_JOB = 2  # nodes named in the job's logs: from so many on, the logs name all its nodes
NODES_MAX = 16  # of a list, as culprits
SEPARATORS = ("|", ",", "\t")  # of sacct --parsable and --delimiter
WORDS = late(r"\S+")
ONE_NODE = late(r"[A-Za-z][\w.-]{0,80}")


def host_of_record(candidate: Candidate, candidates: Sequence[Candidate]) -> str | None:
    """Returns the node in another column of the candidate's table row, or in its record; None if there is
    none.

    Only for lines of schedulers' tools.
    """
    if candidate.signature.area != "scheduler":
        return None
    same = [one for one in candidates if one.match.source == candidate.match.source]
    at = candidate.match.offset
    for one in same:
        if one.has("row-of-pod") and one.match.offset == at:
            return one.match.captures.get("host")
    if candidate.says("row-of-accounting"):
        return _host_of_row(candidate, [one for one in same if one.has("columns-of-accounting")])
    return (
        _host_in_record(at, same)
        or _host_of_row(candidate, [one for one in same if one.has("columns-of-pods")])
        or _host_of_job(candidate, candidates)
    )


def _host_in_record(at: int, same: Sequence[Candidate]) -> str | None:
    """Returns the node of the record of many lines that stands at an offset; None if it is in none."""
    heads = [one for one in same if one.has("record-begins")]
    above = [one for one in heads if one.match.offset <= at]
    if not above:
        return None
    head = max(above, key=lambda one: one.match.offset)
    if host := head.match.captures.get("host"):
        return host
    end = min((one.match.offset for one in heads if one.match.offset > at), default=None)
    within = [
        one
        for one in same
        if one.match.last_offset >= head.match.offset and (end is None or one.match.offset < end)
    ]
    naming = [one.match.captures for one in within if one.has("record-names-host")]
    named = [name for captures in naming if (name := captures.get("host") or captures.get("peer"))]
    if named:
        return named[0]
    return head.match.captures.get("peer") if any(one.has("record-is-of-node") for one in within) else None


def _host_of_job(candidate: Candidate, candidates: Sequence[Candidate]) -> str | None:
    """Returns the node that the controller had given to the job of a line, by its id; None if it gave several."""
    job = candidate.match.captures.get("job", "").removeprefix("JobId=")
    placed = [
        one.match.captures.get("peer", "")
        for one in candidates
        if one.has("job-was-placed") and job and one.match.captures.get("job") == job
    ]
    return placed[-1] if placed and ONE_NODE.fullmatch(placed[-1]) else None


def _host_of_row(candidate: Candidate, heads: Sequence[Candidate]) -> str | None:
    """Returns the node in a row of a table, by the column of the table's head; None if it has several.

    Columns are separated by bars, commas, tabs or spaces. With spaces, a cell ends where its column's title ends, or
    begins where it begins. `heads`: the heads of the tables in the log.
    """
    above = [one for one in heads if one.match.offset < candidate.match.offset]
    if not above:
        return None
    table = max(above, key=lambda one: one.match.offset).match
    title = table.captures.get("column") or table.captures.get("first", "")
    head, row = table.text, candidate.match.text
    if separator := next((one for one in SEPARATORS if one in head), ""):
        titles, cells = head.split(separator), row.split(separator)
        at = titles.index(title) if title in titles else len(cells)
        cell = cells[at] if at < len(cells) else ""
    else:
        begin = head.find(title)
        end = begin + len(title)
        over = [one for one in WORDS.finditer(row) if one.start() < end and one.end() > begin]
        cell = over[0][0] if len(over) == 1 else ""
    return cell if ONE_NODE.fullmatch(cell) else None


def nodes_of(host: str) -> tuple[str, ...]:
    """Returns each node of a Slurm node list such as `n[07-08]`; a very long list is returned unexpanded."""
    if "[" not in host and "," not in host:
        return (host,)
    try:
        names = expanded(host)
    except BadNodeList:
        return (host,)
    return names if 0 < len(names) <= NODES_MAX else (host,)


def nodes_of_others(search: Search, known: KnowledgeBase) -> dict[int, Ruling]:
    """Returns a ruling "context" for each row of a cluster's node table that is about a node of another job. Keys:
    id() of the match.

    A node belongs to another job if the job's own logs name other nodes only. If the logs name a single node and
    report a fault, the node in the table may be another node of the job, so the row keeps its role.
    """
    rows = [one for one in search.matches if known.has("row-of-cluster", one)]
    if not rows:
        return {}
    own = [one for one in search.matches if one.signature in known and known[one.signature].area == "worker"]
    named = [one.writer.host or search.sources[one.source].writer.host for one in own]
    named += [source.writer.host for source in search.sources if source.last_step_offset is not None]
    hosts = {_short(host) for host in named if host}
    troubled = any(_is_trouble(known[one.signature]) for one in own)
    if not hosts or troubled and len(hosts) < SURE_OF_JOB:
        return {}
    return {
        id(row): Ruling(category=row.category, role="context", severity="info")
        for row in rows
        if hosts.isdisjoint(map(_short, nodes_of(row.captures.get("host") or row.captures.get("peer", ""))))
    }


def _is_trouble(signature: Signature) -> bool:
    return signature.role in ("cause", "symptom") and signature.severity in ("fatal", "error")


def _short(host: str) -> str:
    return host.partition(".")[0].lower()
