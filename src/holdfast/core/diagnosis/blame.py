"""Names the culprits of a chosen cause: ranks, hosts and devices, as far as the lines tell. Pure.

A field that no line tells stays empty. Where many ranks show the same first error, the earliest comes first.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from holdfast.core.diagnosis.candidates import Candidate
from holdfast.core.diagnosis.choose import Choice
from holdfast.core.diagnosis.records import host_of_record, nodes_of
from holdfast.late_pattern import late
from holdfast.model.matches import Search, Writer
from holdfast.model.verdicts import Culprit

CULPRITS_MAX = 16
OF_GPUS = frozenset({"gpu_software", "memory"})  # classes of what a process is told of its GPU
WHERE = "-where"  # ends the id of what tells who, of a report that begins with another line
REPORT_BYTES = 4 << 10
NUMBERS = late(r"\d+")
# The socket that these speak of is opened by rank 0, whoever else prints the line.
OF_THE_SERVER = frozenset({"torch-port-bind-failed", "torch-port-no-listener"})
GPU_PART = "nvidia-smi-gpu"
RAY_TASK = "ray-task-error"
BOOTSTRAP = "nccl-bootstrap-interface"
# As udev, the kernel and Cray name network interfaces; and how libata and the block layer begin their lines.
INTERFACE = late(r"(?:en|eth|ib|bond|hsn|wl|net|rdma|roce|mlx\d_|usb|hfi\d_)[\w.-]{1,14}")
DISK = late(
    r"(?:^|[\s\]])(?P<device>ata\d{1,3}(?:\.\d{1,2})?): |\bdev (?P<block>(?:sd[a-z]{1,2}|nvme\d+n\d+|vd[a-z]|dm-\d+)\w*),"
)
DEVICE_INDEX = late(r"(?:[GNX]PU |cuda:|npu:|xpu:)(?P<index>\d{1,3})", re.ASCII)
# Events of Kubernetes name the node behind who reports them: in a column, or as JSON.
EVENT_HOST = late(
    r'\bkubelet, (?P<host>[\w][\w.-]{0,80})|"component":"kubelet","host":"(?P<named>[\w.-]{1,80})"', re.ASCII
)
ROOT_CAUSE, TABLE_RANK, TABLE_HOST = "torchrun-root-cause", "torchrun-table-rank", "torchrun-table-host"


def culprits(choice: Choice, candidates: Sequence[Candidate], search: Search) -> tuple[Culprit, ...]:
    """Who caused it; empty where that cannot be told, or where nobody of the job did."""
    root = choice.root
    if root is None:
        return ()
    alone = _one_worker(candidates, search)
    same = [
        root,
        *(
            candidate
            for candidate in choice.witnesses
            if candidate is not root and candidate.category == root.category
        ),
    ]
    found: list[Culprit] = []
    if root.signature.rank_from == "capture":
        found = [one for candidate in same for one in _captured(candidate)]
    where = _told_below(root, candidates)
    found = found or [
        _with_ray_host(_of_line(candidate, candidates, search, alone), candidate, candidates)
        for candidate in same
    ]
    if where:
        found = where
    elif root.signature.rank_from == "none" and root.role == "symptom":
        found = _first_to_fail(root, candidates, alone)  # who complains is not who did it
    elif root.signature.rank_from == "none":
        told = _as_launchers_tell(candidates, alone)
        found = [one for one in found if one.rank is not None] or (told if len(told) == 1 else [])
    elif all(one.rank is None for one in found):
        told = _as_launchers_tell(candidates, alone)
        found = found if _complains_of_others(root, found, told, search) else told + found
    elif (
        len(found) > 1
        and (first := _torchrun_table(candidates))
        and all(one.rank != first.rank for one in found)
    ):
        found = [first, *found]  # what the rank that fell first wrote is lost
    if root.signature.id in OF_THE_SERVER and all(one.rank is None for one in found):
        found = [Culprit(rank=0)]
    if alone and all(one.rank is None for one in found) and not _names_a_rank(candidates, search):
        found = [replace(one, rank=index_of(one.device)) for one in found]
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


def _complains_of_others(
    root: Candidate, found: Sequence[Culprit], told: Sequence[Culprit], search: Search
) -> bool:
    """Whether the line names another, and the rank that the launcher saw fail first is who wrote it."""
    writer = (
        root.writer.rank if root.writer.rank is not None else search.sources[root.match.source].writer.rank
    )
    names = root.signature.rank_from == "capture" and any(one.host for one in found)
    return names and writer is not None and all(one.rank == writer for one in told)


def with_rank(
    blamed: Culprit, followers: Sequence[Candidate], candidates: Sequence[Candidate], search: Search
) -> Culprit:
    """A device that failed, with the rank that used it: the only one of its node that failed on the GPU after it."""
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


def _told_below(root: Candidate, candidates: Sequence[Candidate]) -> list[Culprit]:
    """Whom a report of several lines names, a little below the line that says what happened.

    A signature of the root's name with "-where" behind it finds that line.
    """
    return [
        one
        for candidate in candidates
        if candidate.signature.id == root.signature.id + WHERE
        and candidate.match.source == root.match.source
        and candidate.match.last_offset >= root.match.offset
        and candidate.match.offset - root.match.last_offset < REPORT_BYTES
        for one in _captured(candidate)
    ]


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
            or _named_by_kernel(candidate)
        ),
    )


def _gpu_above(candidate: Candidate, search: Search) -> str | None:
    """Of what nvidia-smi -q prints, the GPU in whose part the line stands."""
    if candidate.signature.area != "tool":
        return None
    heads = [
        one
        for one in search.matches
        if one.signature == GPU_PART
        and one.source == candidate.match.source
        and one.offset < candidate.match.offset
    ]
    return max(heads, key=lambda one: one.offset).captures.get("device") if heads else None


def _named_by_kernel(candidate: Candidate) -> str | None:
    """The interface or disk that a line of the kernel is about, where its pattern takes that for a mere name."""
    if candidate.signature.area != "kernel":
        return None
    if candidate.class_ == "network" and INTERFACE.fullmatch(candidate.match.captures.get("name", "")):
        return candidate.match.captures["name"]
    disk = DISK.search(candidate.match.text) if candidate.category == "storage_io" else None
    return (disk["device"] or disk["block"]) if disk else None


def _host_of_event(candidate: Candidate) -> str | None:
    found = EVENT_HOST.search(candidate.match.text) if candidate.signature.area == "scheduler" else None
    return (found["host"] or found["named"]) if found else None


def _with_ray_host(one: Culprit, root: Candidate, candidates: Sequence[Candidate]) -> Culprit:
    """Ray's driver repeats the exception of a worker, and names its host above: the innermost, where tasks nest."""
    if one.host:
        return one
    told = [
        candidate.match.captures["host"]
        for candidate in candidates
        if candidate.signature.id == RAY_TASK
        and candidate.match.source == root.match.source
        and candidate.match.offset <= root.match.offset
        and "host" in candidate.match.captures
    ]
    return replace(one, host=told[-1]) if told else one


def _names_a_rank(candidates: Sequence[Candidate], search: Search) -> bool:
    writers = [candidate.writer for candidate in candidates] + [source.writer for source in search.sources]
    return any(one.rank is not None or one.local_rank is not None for one in writers)


def index_of(device: str | None) -> int | None:
    """Where a job on one machine tells no ranks, each of its processes has the device of its own number."""
    found = DEVICE_INDEX.fullmatch(device or "")
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


def _device(text: str | None) -> str | None:
    return f"GPU {text}" if text and text.isdigit() else text


def _captured(candidate: Candidate) -> list[Culprit]:
    """The rank or host that the line blames."""
    captures = candidate.match.captures
    ranks = [_number(one) for one in NUMBERS.findall(captures.get("ranks") or captures.get("rank") or "")]
    host = captures.get("peer") or captures.get("host")
    device = _device(captures.get("device"))
    if ranks:
        return [Culprit(rank=rank, host=host, device=device) for rank in ranks]
    return [Culprit(host=host, device=device)] if host or device else []


def _as_launchers_tell(candidates: Sequence[Candidate], alone: bool) -> list[Culprit]:
    """The rank that a launcher saw fail first: it waited for all of them, so it knows."""
    table = _torchrun_table(candidates)
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
    """Whom the launcher names; of ranks that wait for each other, the first to give up did nothing wrong."""
    told = [] if root.class_ == "communication" else _as_launchers_tell(candidates, alone)
    return told if len(told) == 1 else []


def _hosts_of_ranks(candidates: Sequence[Candidate]) -> dict[int, str]:
    """Where a line names both: a scheduler's "g11: task 28", NCCL's own head."""
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
    """Where a node says itself which address it uses: a peer is only known by that."""
    return {
        candidate.match.captures["address"]: candidate.writer.host
        for candidate in candidates
        if candidate.signature.id == BOOTSTRAP
        and candidate.writer.host
        and "address" in candidate.match.captures
    }


def _torchrun_table(candidates: Sequence[Candidate]) -> Culprit | None:
    """Of the last table: an earlier one is of an attempt that was made again."""
    roots = [candidate for candidate in candidates if candidate.signature.id == ROOT_CAUSE]
    if not roots:
        return _only_entry(candidates)
    source, offset = roots[-1].match.source, roots[-1].match.offset
    after = [
        candidate.match
        for candidate in candidates
        if candidate.match.source == source and candidate.match.last_offset > offset
    ]
    rank = next((_number(one.captures["rank"]) for one in after if one.signature == TABLE_RANK), None)
    host = next((one.captures["host"] for one in after if one.signature == TABLE_HOST), None)
    return Culprit(rank=rank, host=host) if rank is not None else None


def _only_entry(candidates: Sequence[Candidate]) -> Culprit | None:
    """Of a table whose head is not there, where it has one entry."""
    ranks = {
        candidate.match.captures["rank"] for candidate in candidates if candidate.signature.id == TABLE_RANK
    }
    hosts = {
        candidate.match.captures["host"] for candidate in candidates if candidate.signature.id == TABLE_HOST
    }
    rank = _number(ranks.pop()) if len(ranks) == 1 else None
    return None if rank is None else Culprit(rank=rank, host=hosts.pop() if len(hosts) == 1 else None)


def _only_host(candidates: Sequence[Candidate], search: Search) -> str | None:
    """The host of the job, where all lines and files know of one only."""
    known = hosts_of(candidates) | {source.writer.host for source in search.sources if source.writer.host}
    return known.pop() if len(known) == 1 else None


def hosts_of(candidates: Sequence[Candidate]) -> set[str]:
    """All that lines name: who wrote them, and whom they tell of."""
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
    """The same rank on the same node, with its device; or a rank of the node that is all the other says."""
    if other.device is not None or one.rank is None or one.host != other.host:
        return False
    return other.rank is None and other.host is not None or one.rank == other.rank and one.device is not None
