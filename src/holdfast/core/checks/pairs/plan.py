"""Plans which nodes are measured in pairs next. Pure and deterministic.

First all nodes are paired. A slow node is paired with one known to be good, which shows which of the two is
slow; a slow pair of two good nodes is repeated, which shows a bad link; nodes that are slow with all good
ones are paired among themselves, which distinguishes a bad switch from several bad nodes.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from holdfast.core.checks.pairs.evidence import MANY_NODES, Evidence, evidence, looks_since, pair_times
from holdfast.core.checks.pairs.results import Limits, Measured, Round
from holdfast.core.checks.pairs.verdict import (
    Off,
    is_good,
    off_parts,
    open_edges,
    partners_wanted,
    silent_nodes,
    verdict,
)

RING_ROUNDS = 2
CROSS_TIMES = 2  # a single measurement may be chance


def next_round(measured: Measured, limits: Limits | None = None) -> Round | None:
    """Returns the next measurements; None if everything is decided, or no rounds are left."""
    limits = limits or Limits()
    rounds = measured.rounds
    everybody = [*dict.fromkeys((*measured.nodes, *measured.spares))]
    if rounds >= limits.rounds_max or not everybody:
        return None
    gone = silent_nodes(measured)
    doubted = {sample.node for sample in measured.singles if sample.error and sample.round == rounds - 1}
    there = [node for node in everybody if node not in gone and node not in doubted]
    asked_again = tuple(node for node in everybody if node in doubted and node not in gone)
    if rounds >= limits.rounds_min and not asked_again and verdict(measured, limits).settled:
        return None
    if not there and not asked_again:
        return None
    choice = _Choice(there, measured)
    if rounds >= RING_ROUNDS:
        seen = evidence(measured, limits)
        if seen.main:
            _again(choice, seen)
            _off_main(choice, seen, limits)
            _in_main(choice, seen)
        else:
            _slow_with_fast(choice, seen)
    if rounds < RING_ROUNDS:
        choice.neighbours(rounds)
    choice.circle(rounds)
    choice.rest()
    return Round(pairs=tuple(choice.pairs), alone=(*asked_again, *choice.free))


class _Choice:
    """The pairs chosen so far for the next round. `free`: nodes without a partner, in the given order."""

    def __init__(self, there: Sequence[str], measured: Measured) -> None:
        self.pairs: list[tuple[str, str]] = []
        self.free = dict.fromkeys(there)
        self._there = there
        self._everybody = (*measured.nodes, *measured.spares)
        self.spares = measured.spares
        self.times: dict[str, Counter[str]] = defaultdict(Counter)
        for sample in measured.pairs:
            self.times[sample.a][sample.b] += 1
            self.times[sample.b][sample.a] += 1

    def pair(self, a: str, b: str) -> None:
        del self.free[a], self.free[b]
        self.pairs.append((a, b))

    def pair_with_one_of(self, node: str, others: Iterable[str]) -> bool:
        """Pairs the node with the first free one that was not its partner before.

        Returns False if there is none.
        """
        met = self.times[node]
        for other in others:
            if other in self.free and other != node and other not in met:
                self.pair(node, other)
                return True
        return False

    def neighbours(self, turn: int) -> None:
        """Pairs each node with its neighbour in the given order, where a ring has its links; in two turns all
        of them.
        """
        names = self._everybody[turn % 2 :]
        ring = [*zip(names[::2], names[1::2], strict=False)]
        if turn and len(self._everybody) % 2 == 0:
            ring.append((self._everybody[-1], self._everybody[0]))
        for a, b in ring:
            if a in self.free and b in self.free and b not in self.times[a]:
                self.pair(a, b)

    def circle(self, rounds: int) -> None:
        """Pairs the free nodes by one turn of a round robin, in which every node meets every other."""
        names: list[str | None] = [*self._there] + [None] * (len(self._there) % 2)
        count = len(names)
        if count < 2:
            return
        turn = rounds * _stride(count - 1) % (count - 1)
        order = [names[0], *names[1 + turn :], *names[1 : 1 + turn]]
        for place in range(count // 2):
            a, b = order[place], order[count - 1 - place]
            if a in self.free and b in self.free and b not in self.times[a or ""]:
                assert a is not None and b is not None, "only names are free"
                self.pair(a, b)

    def rest(self) -> None:
        """Pairs the remaining nodes: first with one not met before, then with the one met least.

        One of an odd number stays.
        """
        for node in list(self.free):
            if node in self.free:
                self.pair_with_one_of(node, list(self.free))
        looks = {node: sum(self.times[node].values()) for node in self.free}
        while len(self.free) > 1:
            node = min(self.free, key=lambda name: looks[name])
            times = self.times[node]
            self.pair(node, min((name for name in self.free if name != node), key=lambda name: times[name]))


def _stride(turns: int) -> int:
    """Returns a step through the turns of the round robin that visits each once, in distant order.

    With neighbouring turns, the nodes would be connected by a thin chain of pairs only.
    """
    stride = max(1, round(turns * 0.618))
    while math.gcd(stride, turns) != 1:
        stride += 1
    return stride


def _good(choice: _Choice, seen: Evidence) -> list[str]:
    """Returns good nodes: spares first, then nodes that were never slow, because bad partners make a node
    look bad.
    """
    good = [node for node in choice.free if is_good(seen, node)]
    slow = {node: sum(mark.slow for mark in seen.of[node]) for node in good}
    return sorted(good, key=lambda node: (node not in choice.spares, slow[node]))


def _again(choice: _Choice, seen: Evidence) -> None:
    """Pairs nodes that were slow together though both are good: in every third round, with few nodes in every
    second.
    """
    is_small = len(seen.of) < MANY_NODES
    for a, b in open_edges(seen):
        if a not in choice.free or b not in choice.free:
            continue
        slow, fast = pair_times(seen, a, b)
        is_of_several = len(seen.open[a]) > 1 or len(seen.open[b]) > 1
        if is_of_several and slow < 2:
            continue
        since = min(looks_since(seen, a, b), looks_since(seen, b, a))
        if slow + fast <= since if is_small else 2 * (slow + fast) - 1 <= since:
            choice.pair(a, b)


def _slow_with_fast(choice: _Choice, seen: Evidence) -> None:
    """Pairs nodes that were slow with nodes that never were, while no good part is known."""
    well = [node for node in choice.free if not any(mark.slow for mark in seen.of.get(node, ()))]
    for node in [name for name in choice.free if any(mark.slow for mark in seen.of.get(name, ()))]:
        choice.pair_with_one_of(node, well)


def _off_main(choice: _Choice, seen: Evidence, limits: Limits) -> None:
    """Pairs nodes outside the good part: with good nodes until they are decided, then with each other."""
    offs = off_parts(seen)
    wanted = partners_wanted(seen, limits)
    good = _good(choice, seen)
    clear = []
    for first, off in offs.items():
        lacking = off.untested if len(off.partners) >= wanted else off.nodes
        for node in lacking:
            if node in choice.free:
                choice.pair_with_one_of(node, good)
        clear += [(first, node) for node in off.nodes if node not in lacking and node in choice.free]
    # The node that met the fewest chooses first: otherwise the last two would be paired each time.
    clear.sort(key=lambda one: sum(offs[one[0]].met.get(other, 0) > 0 for other in offs))
    for times in range(CROSS_TIMES):
        _cross(choice, offs, clear, times)
    for _, node in clear:
        if node in choice.free:
            choice.pair_with_one_of(node, good)


def _cross(choice: _Choice, offs: dict[str, Off], clear: Sequence[tuple[str, str]], times: int) -> None:
    """Pairs bad nodes with each other: one pair for each two parts that were slow together at most this
    often.
    """
    tried: set[tuple[str, str]] = set()
    for place, (first, node) in enumerate(clear):
        if node not in choice.free:
            continue
        for other_first, other in clear[place + 1 :]:
            is_new = other_first != first and (first, other_first) not in tried
            if is_new and other in choice.free and offs[first].met.get(other_first, 0) == times:
                tried.add((first, other_first))
                choice.pair(node, other)
                break


def _in_main(choice: _Choice, seen: Evidence) -> None:
    """Pairs undecided and intermittently slow nodes of the good part with good nodes that they
    have not met.
    """
    good = _good(choice, seen)
    for node in sorted((*seen.open, *seen.hubs), key=lambda name: -len(seen.open.get(name, ()))):
        if node in choice.free and (seen.open.get(node) or node in seen.hubs):
            choice.pair_with_one_of(node, good)
