"""Adds ranks to lines that do not name theirs, from other lines of the same process. Pure.

[gpu-3:default2]:Fatal Python error: Segmentation fault        local rank 2 of gpu-3
[gpu-3:default2]:[rank10]: RuntimeError: ...                   which is rank 10
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TypeAlias

from msgspec.structs import replace

from holdfast.model.matches import Match, Search, Source

# What is counted, its number, the node and the worker; the log, where neither of these is named, else -1.
Seat: TypeAlias = tuple[str, int, str | None, int | None, int]


def with_ranks(search: Search) -> Search:
    """Returns the search with the rank added to each line whose process has exactly one known rank."""
    seen: dict[Seat, set[int]] = defaultdict(set)
    seats = [_seats(one, search.sources) for one in search.matches]
    for one, places in zip(search.matches, seats, strict=True):
        for seat in places if one.writer.rank is not None else ():
            seen[seat].add(one.writer.rank or 0)
    shared = _logs_of_several_nodes(search)
    known = {
        seat: next(iter(ranks)) for seat, ranks in seen.items() if len(ranks) == 1 and seat[-1] not in shared
    }
    if not known:
        return search
    return replace(
        search,
        matches=tuple(
            _of_rank(one, next((known[seat] for seat in places if seat in known), None))
            for one, places in zip(search.matches, seats, strict=True)
        ),
    )


def _logs_of_several_nodes(search: Search) -> set[int]:
    """Returns the logs with lines of several nodes, in which one local rank stands for several ranks."""
    offsets: dict[int, set[int]] = defaultdict(set)
    for one in search.matches:
        writer = one.writer
        if writer.rank is not None and writer.local_rank is not None:
            offsets[one.source].add(writer.rank - writer.local_rank)
    return {source for source, seen in offsets.items() if len(seen) > 1}


def _of_rank(one: Match, rank: int | None) -> Match:
    if rank is None or one.writer.rank is not None:
        return one
    return replace(one, writer=replace(one.writer, rank=rank))


def _seats(one: Match, sources: Sequence[Source]) -> list[Seat]:
    """Returns the writer's local rank and process, as far as a line names them.

    If the line names no node, they are valid only within its log.
    """
    writer, of_file = one.writer, sources[one.source].writer
    if of_file.rank is not None:
        return []
    host = writer.host or of_file.host
    worker = writer.worker if writer.worker is not None else of_file.worker
    where = (host, worker, one.source if host is None and worker is None else -1)
    found: list[Seat] = []
    if writer.local_rank is not None:
        found.append(("local", writer.local_rank, *where))
    if writer.pid is not None:
        found.append(("pid", writer.pid, *where))
    return found
