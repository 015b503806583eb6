"""Stores the members of a process group as arithmetic runs of ranks: 16,384 ranks take a few bytes. Pure."""

from collections.abc import Sequence

from holdfast.model.flight.digests import Members

RUNS_MAX = 48  # with more, members are left out, and the group consists of the ranks that report it
RANKS_MAX = 1 << 20  # for data received over the network


def runs(ranks: Sequence[int]) -> Members:
    """Returns ranks as runs (first, count, step): ((0, 4, 2),) for (0, 2, 4, 6); () if runs would not be
    shorter.
    """
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(ranks):
        stride = ranks[at + 1] - ranks[at] if at + 1 < len(ranks) else 1
        end = at + 1
        while end < len(ranks) and ranks[end] - ranks[end - 1] == stride:
            end += 1
        if end - at == 2 and end < len(ranks):  # a pair is no pattern: the second may begin a better run
            end, stride = at + 1, 1
        found.append((ranks[at], end - at, stride))
        at = end
        if len(found) > RUNS_MAX:
            return ()
    return tuple(found)


def ranks_of(members: Members) -> tuple[int, ...]:
    """Returns the ranks of runs, in the group's own order. Runs of invalid length are truncated."""
    ranks: list[int] = []
    for first, many, stride in members:
        many = max(0, min(many, RANKS_MAX - len(ranks)))
        ranks.extend(first + stride * place for place in range(many))
    return tuple(ranks)
