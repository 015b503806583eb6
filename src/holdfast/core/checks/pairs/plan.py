"""Plans which nodes are paired next. Pure and deterministic.

First all nodes are paired. A slow node is paired with one known to be good, which shows which of the two is slow; a
slow pair of two good nodes is repeated, which shows a bad link; nodes that are slow with all good ones are paired
among themselves, which distinguishes a bad switch from several bad nodes.
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
CROSS_TIMES = 2  # once may be chance


def next_round(measured: Measured, limits: Limits | None = None) -> Round | None:
    """The next measurement; None: everything is decided, or no rounds are left."""
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
    """Pairs chosen so far. `free`: in the order given."""

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
        """With the first that is free and was not its partner before. `others` may be long: it is left where it is."""
        met = self.times[node]
        for other in others:
            if other in self.free and other != node and other not in met:
                self.pair(node, other)
                return True
        return False

    def neighbours(self, turn: int) -> None:
        """Each with the next in the order given, where a ring of nodes has its links; in two turns all of them."""
        names = self._everybody[turn % 2 :]
        ring = [*zip(names[::2], names[1::2], strict=False)]
        if turn and len(self._everybody) % 2 == 0:
            ring.append((self._everybody[-1], self._everybody[0]))
        for a, b in ring:
            if a in self.free and b in self.free and b not in self.times[a]:
                self.pair(a, b)

    def circle(self, rounds: int) -> None:
        """A turn of the round robin in which everybody meets everybody; who is taken already is left out."""
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
        """Whoever is left: first with one not met before, then with whom it met least. Of an odd number one stays."""
        for node in list(self.free):
            if node in self.free:
                self.pair_with_one_of(node, list(self.free))
        looks = {node: sum(self.times[node].values()) for node in self.free}
        while len(self.free) > 1:
            node = min(self.free, key=lambda name: looks[name])
            times = self.times[node]
            self.pair(node, min((name for name in self.free if name != node), key=lambda name: times[name]))


def _stride(turns: int) -> int:
    """Turns far from each other, each of them once: neighbours would leave the nodes hanging together in a thin row."""
    stride = max(1, round(turns * 0.618))
    while math.gcd(stride, turns) != 1:
        stride += 1
    return stride


def _good(choice: _Choice, seen: Evidence) -> list[str]:
    """Spares first, then nodes that were never slow: a node tested with two bad ones looks bad itself."""
    good = [node for node in choice.free if is_good(seen, node)]
    slow = {node: sum(mark.slow for mark in seen.of[node]) for node in good}
    return sorted(good, key=lambda node: (node not in choice.spares, slow[node]))


def _again(choice: _Choice, seen: Evidence) -> None:
    """Pairs that were slow though both are well with others: every third time with each other, of few nodes every other."""
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
    """While it is not clear yet who is good: those that were slow with those that never were."""
    well = [node for node in choice.free if not any(mark.slow for mark in seen.of.get(node, ()))]
    for node in [name for name in choice.free if any(mark.slow for mark in seen.of.get(name, ()))]:
        choice.pair_with_one_of(node, well)


def _off_main(choice: _Choice, seen: Evidence, limits: Limits) -> None:
    """With good ones until it is clear; then with others like them."""
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
    # Who met the fewest of them chooses first: else the last two are left with each other each time.
    clear.sort(key=lambda one: sum(offs[one[0]].met.get(other, 0) > 0 for other in offs))
    for times in range(CROSS_TIMES):
        _cross(choice, offs, clear, times)
    for _, node in clear:
        if node in choice.free:
            choice.pair_with_one_of(node, good)


def _cross(choice: _Choice, offs: dict[str, Off], clear: Sequence[tuple[str, str]], times: int) -> None:
    """Bad ones among each other: one pair for any two parts that were slow with each other only so often."""
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
    """Those that something is open against, and those slow at times, with good ones that they have not met."""
    good = _good(choice, seen)
    for node in sorted((*seen.open, *seen.hubs), key=lambda name: -len(seen.open.get(name, ()))):
        if node in choice.free and (seen.open.get(node) or node in seen.hubs):
            choice.pair_with_one_of(node, good)
