"""Determines the culprits of a root cause: the ranks, hosts and devices that log lines name. Pure.

A field of a culprit stays empty if no line names it. If several ranks show the same first error, the earliest
comes first.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.candidates import Candidate
from holdfast.core.diagnosis.choice.choose import Choice
from holdfast.core.diagnosis.choice.failure_table import failure_table
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.records import host_of_record, nodes_of
from holdfast.late_pattern import late
from holdfast.model.matches import Search, Writer
from holdfast.model.verdicts import Culprit

CULPRITS_MAX = 16
OF_GPUS = frozenset({"gpu_software", "memory"})  # classes of errors that a process gets from its GPU
OF_NODES = frozenset(
    {"environment", "hardware", "host"}
)  # classes of faults of the machine that writes the line
WHERE = "-where"  # ends the id of the signature that names the culprit of a report, whose first line another one matches
REPORT_BYTES = 4 << 10
REPORT_LINES = 2  # of a report of one process, below the line that names it
NUMBERS = late(r"\d+")


def culprits(choice: Choice, candidates: Sequence[Candidate], search: Search) -> tuple[Culprit, ...]:
    """Returns the culprits of the chosen root cause.

    Empty if no line names them, or if no part of the job caused the failure.
    """
    root = choice.root
    if root is None:
        return ()
    known = root.known
    alone = _one_worker(candidates, search)
    same = _of_same_category(root, choice.witnesses)
    if root.has("said-by-each-host") and len({one.match.captures.get("host") for one in same}) > 1:
        return ()
    found: list[Culprit] = []
    if root.signature.rank_from == "capture":
        found = [one for candidate in same for one in _captured(candidate)]
    where = named_below(root, candidates) or _ended_so(root, candidates)
    found = found or [
        _with_host_of_task(_of_line(candidate, candidates, search, alone), candidate, candidates)
        for candidate in same
    ]
    if _blames_no_rank(root):
        found = [replace(one, rank=None) for one in found]
    if where:
        found = where
    elif root.signature.rank_from == "none" and root.role == "symptom":
        found = _first_to_fail(root, candidates, alone)  # the rank that complains is not the culprit
    elif root.signature.rank_from == "none":
        reported = _as_launchers_tell(candidates, alone)
        found = (
            [one for one in found if one.rank is not None]
            or (reported if len(reported) == 1 else [])
            or ([one for one in found if one.host] if root.class_ in OF_NODES else [])
        )
    elif all(one.rank is None for one in found) and not _blames_no_rank(root):
        reported = _as_launchers_tell(candidates, alone)
        found = found if _complains_of_others(root, found, reported, search) else reported + found
    elif (
        len(found) > 1
        and (first := failure_table(candidates))
        and all(one.rank != first.rank for one in found)
    ):
        found = [first, *found]  # the output of the rank that failed first is lost
    if root.has("socket-of-first-rank") and all(one.rank is None for one in found):
        found = [Culprit(rank=0)]
    if alone and all(one.rank is None for one in found) and not _names_a_rank(candidates, search):
        found = [replace(one, rank=index_of(one.device, known)) for one in found]
    host, by_rank, names = (
        _only_host(candidates, search),
        _hosts_of_ranks(candidates),
        _hosts_of_addresses(candidates),
    )
    return _distinct(
        replace(one, host=names.get(one.host, one.host))
        if one.host
        else replace(one, host=host or (by_rank.get(one.rank) if one.rank is not None else None))
        for each in found
        for one in _each_node(each)
    )


def _of_same_category(root: Candidate, witnesses: Sequence[Candidate]) -> list[Candidate]:
    others = [one for one in witnesses if one is not root and one.category == root.category]
    return [root, *others]


def _blames_no_rank(root: Candidate) -> bool:
    """Returns whether a scheduler ended the job: the tasks that it lists afterwards are those that it ended."""
    return root.signature.area == "scheduler" and root.has("ended-by-others")


def _complains_of_others(
    root: Candidate, found: Sequence[Culprit], reported: Sequence[Culprit], search: Search
) -> bool:
    """Returns whether a line accuses another host although the launcher reports the line's writer as the
    first failed rank.
    """
    writer = (
        root.writer.rank if root.writer.rank is not None else search.sources[root.match.source].writer.rank
    )
    names = root.signature.rank_from == "capture" and any(one.host for one in found)
    return names and writer is not None and all(one.rank == writer for one in reported)


def with_rank(
    blamed: Culprit, followers: Sequence[Candidate], candidates: Sequence[Candidate], search: Search
) -> Culprit:
    """Returns the culprit with the rank that used the failed device.

    This is the only rank on the device's node whose GPU failed afterwards; if there is not exactly one, the rank
    stays empty.
    """
    if blamed.rank is not None or not blamed.device:
        return blamed
    hosts = _hosts_of_ranks(candidates)
    ranks = set()
    for candidate in followers:
        of_file = search.sources[candidate.match.source].writer
        rank = candidate.writer.rank if candidate.writer.rank is not None else of_file.rank
        if candidate.class_ in OF_GPUS and rank is not None:
            host = candidate.writer.host or of_file.host or hosts.get(rank)
            ranks |= {rank} if blamed.host in (None, host) else set()
    return replace(blamed, rank=ranks.pop()) if len(ranks) == 1 else blamed


def named_below(root: Candidate, candidates: Sequence[Candidate]) -> list[Culprit]:
    """Returns the culprits named a few lines below the root cause's line, in a report of several lines.

    They are found by a signature whose id is the root cause's id with the suffix "-where".
    """
    return [
        replace(one, host=one.host or root.writer.host)
        for candidate in candidates
        if candidate.signature.id == root.signature.id + WHERE
        and candidate.match.source == root.match.source
        and candidate.match.last_offset >= root.match.offset
        and candidate.match.offset - root.match.last_offset < REPORT_BYTES
        for one in _captured(candidate)
    ]


def _ended_so(root: Candidate, candidates: Sequence[Candidate]) -> list[Culprit]:
    """Returns the processes whose end a launcher reports with the root cause's line, which names none itself.

    Such a report names the process first, and how it ended below. Processes that were killed are left out if there
    are several: a launcher kills the others when one has failed.
    """
    is_bare = root.role == "symptom" and root.signature.rank_from == "none"
    if not is_bare and not _is_row_of_end(root, candidates):
        return []
    line = root.match.text.strip()
    reported = [
        one
        for candidate in candidates
        if candidate.signature.rank_end
        and candidate.match.source == root.match.source
        and line in (below.strip() for below in candidate.match.record[:REPORT_LINES])
        for one in _captured(candidate)
    ]
    return reported if len(reported) == 1 or root.category != "process_killed" else []


def _is_row_of_end(root: Candidate, candidates: Sequence[Candidate]) -> bool:
    """Returns whether the root cause's line is the row of a launcher's report that gives a code or a signal."""
    return any(
        one.has("gives-exit-code")
        and (one.match.source, one.match.offset) == (root.match.source, root.match.offset)
        for one in candidates
    )


def _each_node(one: Culprit) -> list[Culprit]:
    return [replace(one, host=host) for host in nodes_of(one.host)] if one.host else [one]


def _of_line(candidate: Candidate, candidates: Sequence[Candidate], search: Search, alone: bool) -> Culprit:
    writer, of_file = candidate.writer, search.sources[candidate.match.source].writer
    captures = candidate.match.captures
    return Culprit(
        rank=_rank(writer, of_file, captures, alone),
        worker=writer.worker if writer.worker is not None else of_file.worker,
        host=captures.get("host")
        or writer.host
        or _host_of_event(candidate)
        or host_of_record(candidate, candidates)
        or of_file.host,
        device=_device(
            captures.get("device")
            or writer.device
            or _gpu_above(candidate, search)
            or _named_by_kernel(candidate),
            candidate,
        ),
    )


def _gpu_above(candidate: Candidate, search: Search) -> str | None:
    """Returns the GPU whose section of a tool's report contains the line; None if the log is no such
    report.
    """
    if candidate.signature.area != "tool":
        return None
    heads = [
        one
        for one in search.matches
        if candidate.known.has("gpu-section", one)
        and one.source == candidate.match.source
        and one.offset < candidate.match.offset
    ]
    return max(heads, key=lambda one: one.offset).captures.get("device") if heads else None


def _named_by_kernel(candidate: Candidate) -> str | None:
    """Returns the network interface or disk that a kernel line is about; None if it names none.

    It is used if the signature captures it as a name and not as a device.
    """
    if candidate.signature.area != "kernel":
        return None
    name = candidate.match.captures.get("name", "")
    if candidate.class_ == "network" and candidate.known.is_whole("interface-name", name):
        return name
    return _disk(candidate) if candidate.has("disk-error") else None


def _disk(candidate: Candidate) -> str | None:
    found = candidate.known.found("disk-named", candidate.match.text)
    return next(filter(None, found.groups())) if found else None


def _host_of_event(candidate: Candidate) -> str | None:
    if candidate.signature.area != "scheduler":
        return None
    found = candidate.known.found("node-of-event", candidate.match.text)
    return next(filter(None, found.groups())) if found else None


def _with_host_of_task(one: Culprit, root: Candidate, candidates: Sequence[Candidate]) -> Culprit:
    """Returns the culprit with the host of the remote task that raised the exception, if its host is not
    known yet.

    A driver of remote tasks repeats the exception with the task's host; of nested tasks the innermost counts.
    """
    if one.host:
        return one
    hosts = [
        candidate.match.captures["host"]
        for candidate in candidates
        if candidate.has("exception-of-remote-task")
        and candidate.match.source == root.match.source
        and candidate.match.offset <= root.match.offset
        and "host" in candidate.match.captures
    ]
    return replace(one, host=hosts[-1]) if hosts else one


def _names_a_rank(candidates: Sequence[Candidate], search: Search) -> bool:
    writers = [candidate.writer for candidate in candidates] + [source.writer for source in search.sources]
    return any(one.rank is not None or one.local_rank is not None for one in writers)


def index_of(device: str | None, known: KnowledgeBase) -> int | None:
    """Returns the index of a device, such as 3 for "GPU 3"; None if the text has none.

    On a single machine the rank has the number of its device.
    """
    found = known.found("device-number", device or "")
    return int(found["index"]) if found else None


def _rank(writer: Writer, of_file: Writer, captures: Mapping[str, str], alone: bool) -> int | None:
    for known in (writer.rank, _number(captures.get("rank")), of_file.rank):
        if known is not None:
            return known
    for local in (writer.local_rank, _number(captures.get("local_rank")), of_file.local_rank):
        if local is not None and alone:
            return local
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 9 else None


def _device(text: str | None, candidate: Candidate) -> str | None:
    kind = "NPU" if candidate.signature.area == "npu" else "GPU"
    return f"{kind} {text}" if text and text.isdigit() else text


def _captured(candidate: Candidate) -> list[Culprit]:
    """Returns the culprits that the signature captured from the line: ranks, host and device."""
    captures = candidate.match.captures
    ranks = [_number(one) for one in NUMBERS.findall(captures.get("ranks") or captures.get("rank") or "")]
    host = captures.get("peer") or captures.get("host")
    device = _device(captures.get("device"), candidate)
    if ranks:
        return [Culprit(rank=rank, host=host, device=device) for rank in ranks]
    return [Culprit(host=host, device=device)] if host or device else []


def _as_launchers_tell(candidates: Sequence[Candidate], alone: bool) -> list[Culprit]:
    """Returns the rank that a launcher reports as the first failed one, as a list of at most one culprit."""
    table = failure_table(candidates)
    if table:
        return [table]
    for candidate in candidates:
        captures = candidate.match.captures
        if candidate.role != "symptom" or candidate.survived:
            continue
        rank = _number(captures.get("rank"))
        if rank is None and candidate.signature.area == "scheduler":
            rank = candidate.writer.rank
        if rank is None and alone:
            rank = _number(captures.get("local_rank") or captures.get("index"))
        if rank is not None:
            return [Culprit(rank=rank, host=captures.get("host") or candidate.writer.host)]
    return []


def _first_to_fail(root: Candidate, candidates: Sequence[Candidate], alone: bool) -> list[Culprit]:
    """Returns the rank that the launcher reports as the first failed one, as a list of at most one culprit.

    Empty for communication errors: among ranks that wait for each other, the first one to time out is no
    culprit.
    """
    reported = [] if root.class_ == "communication" else _as_launchers_tell(candidates, alone)
    return reported if len(reported) == 1 else []


def _hosts_of_ranks(candidates: Sequence[Candidate]) -> dict[int, str]:
    """Returns the host of each rank, from lines that name both.

    Such lines are a scheduler's "g11: task 28" and the prefix of a communication library's lines.
    """
    found: dict[int, str] = {}
    for candidate in candidates:
        rank = (
            candidate.writer.rank
            if candidate.writer.rank is not None
            else _number(candidate.match.captures.get("rank"))
        )
        host = candidate.match.captures.get("host") or candidate.writer.host
        if rank is not None and host:
            found.setdefault(rank, host)
    return found


def _hosts_of_addresses(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Returns the host name of each IP address, from lines in which a node reports its own address."""
    return {
        candidate.match.captures["address"]: candidate.writer.host
        for candidate in candidates
        if candidate.has("bootstrap-interface")
        and candidate.writer.host
        and "address" in candidate.match.captures
    }


def _only_host(candidates: Sequence[Candidate], search: Search) -> str | None:
    """Returns the host of the job if all lines and logs name the same one; otherwise None."""
    known = hosts_of(candidates) | {source.writer.host for source in search.sources if source.writer.host}
    return known.pop() if len(known) == 1 else None


def hosts_of(candidates: Sequence[Candidate]) -> set[str]:
    """Returns all hosts that lines name, as the writer of the line or as its subject."""
    named = {candidate.writer.host for candidate in candidates} | {
        candidate.match.captures.get("host") for candidate in candidates
    }
    return {host for host in named if host}


def _one_worker(candidates: Sequence[Candidate], search: Search) -> bool:
    workers = {candidate.writer.worker for candidate in candidates} | {
        source.writer.worker for source in search.sources
    }
    hosts = {candidate.writer.host for candidate in candidates} | {
        source.writer.host for source in search.sources
    }
    return len(workers - {None}) <= 1 and len(hosts - {None}) <= 1


def _distinct(found: Iterable[Culprit]) -> tuple[Culprit, ...]:
    seen: dict[tuple[object, ...], Culprit] = {}
    for one in found:
        key = (one.rank, one.host, one.device)
        if any(part is not None for part in key):
            seen.setdefault(key, one)
    kept = [one for one in seen.values() if not any(_says_more(other, one) for other in seen.values())]
    return tuple(kept)[:CULPRITS_MAX]


def _says_more(one: Culprit, other: Culprit) -> bool:
    """Returns whether `one` is more specific than `other`.

    It is if it names the same rank with a device, or a rank on the node that `other` names.
    """
    if other.device is not None or one.rank is None or one.host != other.host:
        return False
    return other.rank is None and other.host is not None or one.rank == other.rank and one.device is not None
