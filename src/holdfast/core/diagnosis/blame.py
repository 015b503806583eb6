"""Names the culprits of a chosen cause: ranks, hosts and devices, as far as the lines tell. Pure.

A field that no line tells stays empty. Where many ranks show the same first error, the earliest comes first.
"""

import re
from collections.abc import Iterable, Sequence

from holdfast.core.diagnosis.choose import Choice
from holdfast.core.diagnosis.clues import Clue
from holdfast.model.sightings import Search, Writer
from holdfast.model.verdicts import Culprit

CULPRITS_MAX = 16
NUMBERS = re.compile(r"\d+")


def culprits(choice: Choice, clues: Sequence[Clue], search: Search) -> tuple[Culprit, ...]:
    """Who caused it; empty where that cannot be told, or where nobody of the job did."""
    root = choice.root
    if root is None or root.signature.rank_from == "none":
        return ()
    alone = _one_worker(clues, search)
    if root.signature.rank_from == "capture":
        found = [one for clue in _same(root, choice.witnesses) for one in _captured(clue)]
        if found:
            return _distinct(found)
    found = [_of_line(clue, search, alone) for clue in _same(root, choice.witnesses)]
    if all(one.rank is None for one in found):
        named = [_of_launcher(clue) for clue in clues if clue.signature.role == "symptom"]
        found = [one for one in named if one.rank is not None][:1] + found
    host = _only_host(clues, search)
    return _distinct(_with_host(one, host) for one in found)


def _same(root: Clue, witnesses: Sequence[Clue]) -> list[Clue]:
    return [root, *(clue for clue in witnesses if clue is not root and clue.category == root.category)]


def _of_line(clue: Clue, search: Search, alone: bool) -> Culprit:
    writer, of_file = clue.writer, search.sources[clue.sighting.source].writer
    captures = clue.sighting.captures
    return Culprit(
        rank=_rank(writer, of_file, captures.get("rank"), alone),
        worker=writer.worker if writer.worker is not None else of_file.worker,
        host=captures.get("host") or writer.host or of_file.host,
        device=_device(captures.get("device") or writer.device),
    )


def _rank(writer: Writer, of_file: Writer, captured: str | None, alone: bool) -> int | None:
    for known in (writer.rank, int(captured) if captured and captured.isdigit() else None, of_file.rank):
        if known is not None:
            return known
    local = writer.local_rank if writer.local_rank is not None else of_file.local_rank
    return local if alone else None


def _device(text: str | None) -> str | None:
    return f"GPU {text}" if text and text.isdigit() else text


def _captured(clue: Clue) -> list[Culprit]:
    """The rank or host that the line blames."""
    captures = clue.sighting.captures
    ranks = [int(one) for one in NUMBERS.findall(captures.get("ranks") or captures.get("rank") or "")]
    host = captures.get("peer") or captures.get("host")
    device = _device(captures.get("device"))
    if ranks:
        return [Culprit(rank=rank, host=host, device=device) for rank in ranks]
    return [Culprit(host=host, device=device)] if host or device else []


def _of_launcher(clue: Clue) -> Culprit:
    """The rank that a launcher saw fail first: it ends the others, so it knows."""
    captures = clue.sighting.captures
    rank = captures.get("rank")
    return Culprit(rank=int(rank) if rank and rank.isdigit() else None, host=captures.get("host"))


def _only_host(clues: Sequence[Clue], search: Search) -> str | None:
    """The host of the job, where all lines and files know of one only."""
    hosts = {clue.writer.host for clue in clues} | {source.writer.host for source in search.sources}
    hosts |= {clue.sighting.captures.get("host") for clue in clues if clue.signature.role != "cause"}
    known = {host for host in hosts if host}
    return known.pop() if len(known) == 1 else None


def _with_host(one: Culprit, host: str | None) -> Culprit:
    return (
        one
        if one.host or host is None
        else Culprit(rank=one.rank, worker=one.worker, host=host, device=one.device)
    )


def _one_worker(clues: Sequence[Clue], search: Search) -> bool:
    workers = {clue.writer.worker for clue in clues} | {source.writer.worker for source in search.sources}
    hosts = {clue.writer.host for clue in clues} | {source.writer.host for source in search.sources}
    return len(workers - {None}) <= 1 and len(hosts - {None}) <= 1


def _distinct(found: Iterable[Culprit]) -> tuple[Culprit, ...]:
    seen: dict[tuple[object, ...], Culprit] = {}
    for one in found:
        key = (one.rank, one.host, one.device)
        if any(part is not None for part in key):
            seen.setdefault(key, one)
    return tuple(seen.values())[:CULPRITS_MAX]
