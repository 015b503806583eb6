"""Distinguishes a slow rank from a hung one by its arrival times at earlier collectives. Pure."""

from collections.abc import Sequence
from statistics import median

from holdfast.core.flight.gather import Scene, Team
from holdfast.core.flight.graph import Awaited, Waits
from holdfast.model.flight.digests import GroupDigest

LATE_MS = 50.0
LATE_SHARE = 0.25  # minimum lateness as a share of the time between two collectives of the group
SEEN_MIN = 3  # earlier collectives at each of which a slow rank was late
PEERS_MAX = 64
PATIENCE = 5.0  # a rank later than this many times its usual lateness is not slow but stuck
AGE_SHARE = 3.0  # a wait of up to this many longest gaps between enqueues is normal
AGE_MS_MIN = 1000


def is_slow(culprits: Sequence[int], awaited: Awaited, stalled_s: float | None) -> bool:
    """Returns whether each culprit is one collective behind the others and was clearly late at earlier collectives
    too.
    """
    team = awaited.team
    if awaited.pair is not None or team.has_p2p or not culprits:
        return False
    peers = [rank for rank in awaited.waiters[:PEERS_MAX] if rank in team.digests]
    late = [_lateness_ms(rank, peers, team, awaited.sequence) for rank in culprits]
    if not all(late):
        return False
    return stalled_s is None or stalled_s * 1000 <= PATIENCE * min(late)


def _lateness_ms(rank: int, peers: Sequence[int], team: Team, sequence: int) -> float:
    """Returns how much later than its peers a rank usually arrives, in ms; 0 if it is not clearly late each
    time.
    """
    own = team.digests.get(rank)
    if own is None or own.enqueued != sequence - 1:
        return 0.0
    mine = arrivals(own)
    theirs = [arrivals(team.digests[peer]) for peer in peers]
    late = []
    for at in sorted(mine):
        times = [other[at] for other in theirs if at in other]
        if times:
            late.append(mine[at] - median(times))
    steps = sorted(
        later - earlier for earlier, later in zip(list(mine.values()), list(mine.values())[1:], strict=False)
    )
    usual = max(LATE_MS, LATE_SHARE * median(steps)) if steps else LATE_MS
    if len(late) < SEEN_MIN or min(late) < usual:
        return 0.0
    return median(late)


def arrivals(group: GroupDigest) -> dict[int, int]:
    """Returns when the last collectives of a group were enqueued: wall-clock time in ms by sequence number,
    in order.
    """
    gaps = [int.from_bytes(group.arrivals[at : at + 2], "big") for at in range(0, len(group.arrivals) - 1, 2)]
    at_ms, times = group.last_ms, {group.enqueued: group.last_ms}
    for back, gap in enumerate(reversed(gaps), 1):
        at_ms -= gap
        times[group.enqueued - back] = at_ms
    return dict(reversed(times.items()))


def is_young(ranks: Sequence[int], found: Waits, scene: Scene) -> bool:
    """Returns whether these ranks, by their own clocks, have waited no longer than ranks of this job sometimes do."""
    ages = [
        scene.ranks[rank].taken_ms - found.first[rank].since_ms
        for rank in ranks
        if rank in found.first
        and rank in scene.ranks
        and scene.ranks[rank].taken_ms
        and found.first[rank].since_ms
    ]
    gap = max((scene.ranks[rank].longest_gap_ms for rank in ranks if rank in scene.ranks), default=0)
    return bool(ages) and max(ages) < max(AGE_MS_MIN, AGE_SHARE * gap)
