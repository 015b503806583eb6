"""Computes each rank's own time (without waits) from the times at which ranks enter collectives. Pure.

All ranks leave a collective when the last has entered, so a rank waits from its own entry to the last one's,
and the rest of the time is its own work. This needs no wait-for graph: a rank delayed by a slow one in
another group has waited there.

Collectives may overlap (gradients are reduced while others are still computed): if a rank enters the next one
before the last rank has entered this one, it has not waited yet. Own times are returned for blocks of about
one step.
"""

from collections import deque
from collections.abc import Mapping
from math import inf
from statistics import median

from msgspec import Struct

GAPS_KEPT = 256
GAPS_MIN = 4
SHIFTS_KEPT = 512  # clock differences kept for each node
SHIFTS_SHARE = 4  # the shortest quarter of the gaps is used: the least time in which a rank can become late
GROUPS_MAX = 4096
PAUSE = 20.0  # a gap of more than this many usual gaps is no step


class OwnTimes(Struct, frozen=True):
    """Each rank's own time between two collectives, without waits, in seconds."""

    at_s: float  # when the last rank entered the last of them
    elapsed_s: float
    own_s: dict[int, float]


class _Group(Struct):
    sequence: int
    release_s: float  # when the last rank entered the last collective
    waits: dict[int, float]
    device: bool


class Rounds:
    """Computes own times from entries into collectives, in order. `nodes`: node by rank.

    Learns the clock offsets between nodes. `clock_error_s`: their maximum; None if unbounded.
    """

    def __init__(self, nodes: Mapping[int, str], clock_error_s: float | None = None) -> None:
        self._nodes = nodes
        self._groups: dict[str, _Group] = {}
        self._clocks = Clocks(clock_error_s)
        self._waited: dict[int, float] = {}
        self._seen: set[int] = set()
        self._gaps: deque[float] = deque(maxlen=GAPS_KEPT)
        self._begun_s: float | None = None
        self._last_s: float | None = None

    def add(
        self, group: str, sequence: int, at: Mapping[int, float], device: bool = False
    ) -> OwnTimes | None:
        """Adds one collective, and returns a block of own times when one is complete, else None.

        `at`: entry times of all ranks of the group. Collectives of a group come in order. `device`: the times
        are those of calls that only enqueue work for a device.
        """
        before = self._groups.get(group)
        if len(at) < 2 or (before is not None and sequence <= before.sequence):
            return None
        gap_s = None if before is None else max(at.values()) - before.release_s
        at = self._clocks.right(at, self._nodes, gap_s) if self._nodes else at
        release_s = max(at.values())
        if before is not None and sequence > before.sequence + 1:
            self._forget()
            before = None
        if before is not None and min(at.values()) < before.release_s and len(before.waits) == len(at):
            # It overlaps: the wait is at the last one; on a device at the first, as the queue runs by itself.
            waits = before.waits if device else {rank: release_s - when for rank, when in at.items()}
            self._groups[group] = _Group(sequence, max(release_s, before.release_s), waits, device)
            return None
        if before is None and len(self._groups) >= GROUPS_MAX:
            return None
        if before is not None:
            self._count(before)
        waits = {rank: release_s - when for rank, when in at.items()}
        self._groups[group] = _Group(sequence, release_s, waits, device)
        return self._block(before, release_s)

    def keep(self, ranks: Mapping[int, object]) -> None:
        """Freezes the clock offsets of the nodes of these ranks, because one of them is slow."""
        self._clocks.frozen = frozenset(self._nodes[rank] for rank in ranks if rank in self._nodes)

    def _count(self, group: _Group) -> None:
        for rank, wait_s in group.waits.items():
            self._waited[rank] = self._waited.get(rank, 0.0) + wait_s
            self._seen.add(rank)

    def _block(self, before: _Group | None, release_s: float) -> OwnTimes | None:
        if self._last_s is not None and release_s > self._last_s:
            self._gaps.append(release_s - self._last_s)
        self._last_s = release_s if self._last_s is None else max(self._last_s, release_s)
        if before is None:
            return None
        at_s = before.release_s
        if self._begun_s is None:
            self._begun_s = at_s
            self._waited.clear()
            return None
        elapsed_s, usual_s = at_s - self._begun_s, self._usual_gap_s()
        if usual_s is None or elapsed_s < 0.7 * usual_s:
            return None
        own = {rank: max(0.0, elapsed_s - wait_s) for rank, wait_s in self._waited.items()}
        self._waited = {}
        self._begun_s = at_s
        return OwnTimes(at_s, elapsed_s, own) if len(own) > 1 and elapsed_s < PAUSE * usual_s else None

    def _usual_gap_s(self) -> float | None:
        """Returns the gap that splits the total time in half by length: about a step, however many short gaps
        there are.
        """
        if len(self._gaps) < GAPS_MIN:
            return None
        half, so_far = sum(self._gaps) / 2, 0.0
        for gap in sorted(self._gaps):
            so_far += gap
            if so_far >= half:
                return gap
        return None

    def _forget(self) -> None:
        """Resets the counted times, because some collectives are missing."""
        self._groups.clear()
        self._waited.clear()
        self._begun_s = self._last_s = None


class Clocks:
    """Learns the clock offsets between nodes.

    A slow node is late by a share of the time since the last collective; a wrong clock by a constant. So
    collectives that closely follow another one show the clock. Without them, a node that is late from the
    start cannot be distinguished from one with a fast clock; then only a change counts. If clocks were
    corrected before, the remaining error is small (`error_s`), and any excess is lateness.
    """

    def __init__(self, error_s: float | None = None) -> None:
        self._error_s = inf if error_s is None else error_s
        self.frozen: frozenset[str] = frozenset()
        self._shifts: dict[str, deque[tuple[float, float]]] = {}
        self._offsets: dict[str, float] = {}
        self._count = 0

    def right(
        self, at: Mapping[int, float], nodes: Mapping[int, str], gap_s: float | None
    ) -> Mapping[int, float]:
        """Returns the times with the clock offset of each rank's node subtracted."""
        first: dict[str, float] = {}
        for rank, when in at.items():
            node = nodes.get(rank, "")
            first[node] = min(first.get(node, when), when)
        if len(first) < 2:
            return at
        middle = median(first.values()) if len(first) > 2 else next(iter(first.values()))
        if gap_s is not None:
            for node, when in first.items():
                if node not in self.frozen:
                    shifts = self._shifts.setdefault(node, deque(maxlen=SHIFTS_KEPT))
                    shifts.append((gap_s, when - middle))
        self._count += 1
        if self._count < 32 or self._count % 16 == 0:
            self._learn()
        return {rank: when - self._offsets.get(nodes.get(rank, ""), 0.0) for rank, when in at.items()}

    def _learn(self) -> None:
        for node, shifts in self._shifts.items():
            if node not in self.frozen:
                short = sorted(shifts)[: max(1, -(-len(shifts) // SHIFTS_SHARE))]
                shift = median(shift for _, shift in short)
                self._offsets[node] = max(-self._error_s, min(self._error_s, shift))
