"""Extracts from watchdog lines the collective in which each rank waited until its timeout, by process group.

Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from holdfast.core.diagnosis.compare.comparison import place
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.model.matches import Match

FAR_SEQ = 8  # ranks of one group part by a few calls, not by many
CLOCKS_S = 60.0  # the clocks of two nodes differ by less


class Wait(Struct, frozen=True):
    """The first timeout of one rank in one process group.

    `seq`: sequence number of the collective; -1 if not printed. `group`: "" if no line names it. `seat`: the rank's
    number within the group.
    """

    rank: int
    group: str
    seq: int
    op: str
    sizes: tuple[str, ...]
    match: Match
    seat: int | None

    @property
    def call(self) -> tuple[int, str]:
        return (self.seq, self.op)


def waits_in(matches: Iterable[Match], known: KnowledgeBase) -> list[Wait]:
    """Returns the first timeout of each rank in each process group, without repetitions in summaries."""
    every = list(matches)
    groups = {
        (one.source, _rank(one, known), one.captures["seq"]): _group(one.captures["pg"], known)
        for one in every
        if known.has("watchdog-standing", one)
    }
    found: dict[tuple[int, str], Wait] = {}
    timed_out = [one for one in every if known.has("watchdog-timeout", one)]
    for one in sorted(timed_out, key=place):
        rank, seq = _rank(one, known), one.captures.get("seq", "-1")
        if rank is None or known.says("between-two-ranks", one.captures["op"]):
            continue
        in_line = known.found("group-in-line", one.text)
        group = groups.get((one.source, rank, seq)) or (_group(in_line["group"], known) if in_line else "")
        sizes = tuple(one.captures.get(name, "") for name in ("shape", "numel_in", "numel_out"))
        wait = Wait(rank, group, int(seq), one.captures["op"], sizes, one, _seat(one, known))
        if not any(of == rank and other.call == wait.call for (of, _), other in found.items()):
            found.setdefault((rank, group), wait)
    return _of_one_failure(list(found.values()))


def _of_one_failure(waits: Sequence[Wait]) -> list[Wait]:
    """Returns the waits without those of other attempts in the same logs.

    No rank waits longer than its own timeout, so a wait of a much different time belongs to another attempt.
    """
    stamps = [wait.match.writer.stamp_s for wait in waits]
    first_s = min((at_s for at_s in stamps if at_s is not None), default=0.0)
    return [
        wait
        for wait, at_s in zip(waits, stamps, strict=True)
        if at_s is None or at_s - first_s <= float(wait.match.captures.get("ms", "0")) / 1000 + CLOCKS_S
    ]


def by_group(waits: Iterable[Wait]) -> dict[str, list[Wait]]:
    """Returns the waits by process group.

    Waits without a group name are grouped by their sequence numbers: ranks with distant numbers, or with the
    same number within their group, are in different groups.
    """
    names = {wait.group for wait in waits if wait.group}
    only = next(iter(names), "") if len(names) <= 1 else ""
    found: dict[str, list[Wait]] = defaultdict(list)
    taken: dict[int, int] = {}  # rank by its seat in the only group that is named
    for wait in sorted(waits, key=lambda one: not one.group):
        seat = wait.seat
        own = bool(only) and not wait.group and seat is not None and taken.get(seat, wait.rank) != wait.rank
        found["" if own else wait.group or only].append(wait)
        if seat is not None:
            taken.setdefault(seat, wait.rank)
    unnamed = found.get("", [])
    if unnamed and max(wait.seq for wait in unnamed) - min(wait.seq for wait in unnamed) > FAR_SEQ:
        del found[""]
        for wait in unnamed:
            found[f"? {wait.op}"].append(wait)
    return found


def _rank(one: Match, known: KnowledgeBase) -> int | None:
    if one.writer.rank is not None:
        return one.writer.rank
    return _seat(one, known)


def _seat(one: Match, known: KnowledgeBase) -> int | None:
    found = known.found("rank-in-group", one.text)
    return int(found["rank"]) if found else None


def _group(text: str, known: KnowledgeBase) -> str:
    """Returns the name of the process group, equal on all ranks.

    It is the GUID if present, because each rank counts its own group IDs.
    """
    found = known.found("group-number", text)
    return found["group"].replace(" ", "") if found else text.strip()
