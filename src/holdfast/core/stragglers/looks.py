"""Finds awaited ranks in samples: those that have not entered a collective in which others already wait.

Pure.

One sample proves nothing, because some rank is always last. A rank that is last repeatedly, each time in
another collective, is slower (a sequential test); one that is last in one collective for long may write a
checkpoint. Without current data on collectives, a rank counts as awaited if it runs while all others sleep.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import log
from typing import NamedTuple

from holdfast.core.stragglers.limits import StragglerSettings
from holdfast.model.flight.records import GroupStatus
from holdfast.model.samples import GONE_STATES, RankSample

Teams = Mapping[int, Mapping[int, tuple[int, ...]]]  # rank -> id of a group in that rank -> its members

HEARD_S = 5.0  # older answers of ranks are ignored
RAN_S = 0.02  # CPU time of every main thread between two samples of states that both count
SUSPECT = 4.4  # sum of the sequential test from which a rank is suspected: odds of 80 to 1
RECENT = 0.1  # weight of a new sample in the shares


class _Heard(NamedTuple):
    at_s: float
    groups: tuple[GroupStatus, ...]


class Awaited(NamedTuple):
    """The ranks for which others wait in one sample.

    `position`: the collective, so that one long wait is counted once.
    """

    ranks: frozenset[int]
    of: int
    position: object


class Looks:
    """Detects awaited ranks from samples that all nodes take at the same moment."""

    def __init__(self, settings: StragglerSettings) -> None:
        self.sums: dict[int, float] = {}
        self.since: dict[int, float] = {}  # when the sum last rose from nothing
        self.counted = 0
        self._shares: dict[int, float] = {}
        self._settings = settings
        self._heard: dict[int, _Heard] = {}
        self._position: object = None
        self._ran: dict[int, float] = {}
        self._of = 2

    def add(self, samples: Sequence[RankSample], teams: Teams) -> None:
        """Adds one sample of every rank's state."""
        living = [sample for sample in samples if sample.state not in GONE_STATES]
        seen = self._by_groups(living, teams)
        if seen is None:
            seen = self._by_states(living)
        if seen is None or not seen.ranks or 2 * len(seen.ranks) > seen.of or seen.position == self._position:
            return
        self._position = seen.position
        self._count(seen, (sample.rank for sample in living), living[0].at_s)

    def suspects(self) -> tuple[int, ...]:
        """Returns the ranks that may be slower than their peers, by the samples so far."""
        return tuple(rank for rank, sum_ in self.sums.items() if sum_ >= SUSPECT)

    def sure(self, halved: Iterable[int] = ()) -> tuple[int, ...]:
        """Returns the ranks that samples alone prove to be slow.

        For ranks in `halved`, for which there is other evidence, half as many samples suffice.
        """
        looks = 3600 * self._settings.awaited_hours
        limit = log(self._of * looks / self._settings.false_flags)
        easy = set(halved)
        return tuple(
            rank for rank, sum_ in self.sums.items() if sum_ >= (limit / 2 if rank in easy else limit)
        )

    def share(self, rank: int) -> float:
        """Returns the share of the last ten or so counted samples in which others waited for this rank."""
        return self._shares.get(rank, 0.0)

    def is_waiting(self, rank: int) -> bool:
        """Returns whether collectives often wait for other ranks, but hardly ever for this rank."""
        return self.counted >= 5 and self.share(rank) < 0.5 / self._of and max(self._shares.values()) > 0.5

    def _count(self, seen: Awaited, ranks: Iterable[int], at_s: float) -> None:
        self.counted += 1
        self._of = seen.of
        chance = len(seen.ranks) / seen.of
        straggler = max(self._settings.awaited_share, (1.0 + chance) / 2)
        hit, miss = log(straggler / chance), log((1.0 - straggler) / (1.0 - chance))
        for rank in ranks:
            is_hit = rank in seen.ranks
            before = self.sums.get(rank, 0.0)
            if before == 0.0 and is_hit:
                self.since[rank] = at_s
            # Bounded, so that the recovery of a rank is detected soon.
            self.sums[rank] = min(max(0.0, before + (hit if is_hit else miss)), 60.0)
            weight = max(RECENT, 1.0 / self.counted)
            self._shares[rank] = self.share(rank) + weight * (float(is_hit) - self.share(rank))

    # One look

    def _by_groups(self, living: Sequence[RankSample], teams: Teams) -> Awaited | None:
        """Returns the awaited ranks by the counters of process groups; None if they are not known.

        A rank that does not answer keeps its last answer for a while, because a slow rank often cannot
        answer.
        """
        for sample in living:
            if sample.groups is not None:
                self._heard[sample.rank] = _Heard(sample.at_s, sample.groups)
        known = {
            sample.rank: self._heard[sample.rank].groups
            for sample in living
            if sample.rank in self._heard and sample.at_s - self._heard[sample.rank].at_s <= HEARD_S
        }
        if len(known) < 2:
            return None
        awaited: dict[int, object] = {}
        waiting: set[int] = set()
        for name, states in _by_team(known, teams).items():
            if _is_stale(states):
                return None
            behind, waits, at = _behind(states)
            waiting |= waits
            awaited |= dict.fromkeys(behind, (name, at))
        roots = frozenset(awaited) - waiting
        position = tuple(sorted(str(awaited[rank]) for rank in roots))
        return Awaited(roots, len(known), position)

    def _by_states(self, living: Sequence[RankSample]) -> Awaited | None:
        ran = {one.rank: one.main_cpu_s for one in living if one.main_cpu_s is not None}
        if len(ran) < len(living) or len(living) < 2 or any(one.state not in "RDS" for one in living):
            return None
        if any(now - self._ran.get(rank, 0.0) < RAN_S for rank, now in ran.items()):
            return None
        running = frozenset(one.rank for one in living if one.state in "RD")
        if not running or 2 * len(running) > len(living):
            return None
        self._ran = ran
        return Awaited(running, len(living), ("states", living[0].at_s))


def _by_team(
    known: Mapping[int, tuple[GroupStatus, ...]], teams: Teams
) -> dict[object, dict[int, GroupStatus]]:
    """Returns the counters of each process group, by rank.

    Without known members, only the group that every rank has.
    """
    found: dict[object, dict[int, GroupStatus]] = {}
    common: set[int] | None = None
    for rank, groups in known.items():
        ids = {one.group_id for one in groups}
        common = ids if common is None else common & ids
        for one in groups:
            members = teams.get(rank, {}).get(one.group_id)
            if members:
                found.setdefault(members, {})[rank] = one
    if not found and common:
        lowest = min(common)
        found[lowest] = {
            rank: one for rank, groups in known.items() for one in groups if one.group_id == lowest
        }
    return found


def _is_stale(states: Mapping[int, GroupStatus]) -> bool:
    """Returns whether some rank's answer is outdated: another one has completed a collective that it has not
    even enqueued.
    """
    return max(one.completed for one in states.values()) > min(one.enqueued for one in states.values())


def _behind(states: Mapping[int, GroupStatus]) -> tuple[frozenset[int], frozenset[int], int]:
    """Returns the ranks that have not entered the collective, those that wait for them, and the collective's
    number.

    On a device, a rank may have enqueued the collective and not started it.
    """
    if len(states) < 2:
        return frozenset(), frozenset(), 0
    counts = {rank: one.enqueued for rank, one in states.items()}
    if len(set(counts.values())) == 1:
        started = {rank: one.started for rank, one in states.items()}
        if min(started.values()) < 0:
            return frozenset(), frozenset(), 0
        counts = started
    low = min(counts.values())
    behind = frozenset(rank for rank, count in counts.items() if count == low)
    waits = frozenset(
        rank
        for rank, count in counts.items()
        if count > low and states[rank].enqueued > states[rank].completed
    )
    return (behind, waits, low) if waits else (frozenset(), frozenset(), low)
