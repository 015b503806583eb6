"""Finds the rank that entered a collective after the other ranks' watchdogs gave up. Pure."""

from collections.abc import Sequence

from holdfast.core.diagnosis.compare.comparison import Comparison, host_of
from holdfast.core.diagnosis.compare.waits import Wait, waits_in
from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.core.diagnosis.words.missing import spans
from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Words
from holdfast.model.verdicts import Culprit

TOGETHER_S = 10.0  # watchdogs of ranks that wait since the same moment give up within this, clocks included


def came_late(matches: Sequence[Match], sources: Sequence[Source], known: KnowledgeBase) -> Comparison | None:
    """Returns a finding with the ranks whose connection broke in the collective in which other ranks had timed out
    before; otherwise None.

    A rank that has waited since the same moment has the same deadline, so its own watchdog would have given up with
    theirs. A rank that fails there later, and by a broken connection, entered the collective later.
    """
    waits = [wait for wait in waits_in(matches, known) if wait.match.writer.stamp_s is not None]
    if not waits:
        return None
    waiting = {wait.rank for wait in waits}
    late = {
        one.writer.rank: one
        for one in reversed(matches)
        if known.has("collective-raised", one)
        and one.writer.rank not in waiting | {None}
        and _is_after(one, waits)
    }
    if not late or len(late) > len(waiting):
        return None
    first = min(waits, key=lambda wait: wait.match.writer.stamp_s or 0.0)
    ranks = sorted(rank for rank in late if rank is not None)
    return Comparison(
        category="collective_missing_rank",
        first=first.match,
        weight=0.75,
        culprits=tuple(
            Culprit(rank=rank, host=host_of(late[rank], sources) or _host_named(rank, matches))
            for rank in ranks
        ),
        title=Words(
            en=f"rank {spans(ranks)} came too late to {first.op} #{first.seq}",
            zh=f"rank {spans(ranks)} 过晚进入 {first.op} #{first.seq}",
        ),
        explanation=Words(
            en=f"Rank {spans(waiting)} waited there until the watchdog gave up; rank {spans(ranks)} entered it later and "
            "found the connections closed.",
            zh=f"rank {spans(waiting)} 一直等待直到 watchdog 超时；rank {spans(ranks)} 之后才进入，发现连接已关闭。",
        ),
        advice=known.text("missing-rank-advice"),
        seen=tuple(wait.match for wait in waits),
        explained=tuple(one for one in matches if one.writer.rank in late and known.has("peer-lost", one)),
    )


def _is_after(one: Match, waits: Sequence[Wait]) -> bool:
    """Whether it failed in a call in which others timed out before."""
    at_s = one.writer.stamp_s
    call = (int(one.captures["seq"]), one.captures["op"])
    gave_up_s = [wait.match.writer.stamp_s or 0.0 for wait in waits if wait.call == call]
    return at_s is not None and bool(gave_up_s) and at_s - max(gave_up_s) > TOGETHER_S


def _host_named(rank: int, matches: Sequence[Match]) -> str | None:
    """The host that other lines of the rank name, if they name one only."""
    named = {one.writer.host for one in matches if one.writer.rank == rank} - {None}
    return named.pop() if len(named) == 1 else None
