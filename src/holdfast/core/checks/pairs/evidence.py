"""Finds in rounds of node pairs which pairs are slow, which nodes form groups, and which node all slow pairs
share. Pure.

A fast pair clears both of its nodes at that moment, so fast pairs connect nodes into parts. The largest part
counts as good if it has more than half of the nodes, or one that is known to be good; another part is a bad
node, or several nodes behind one shared bad component. Slow pairs inside the good part come from a link, an
intermittently slow node, or chance, which is decided by likelihood.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from holdfast.core.checks.pairs.results import Limits, Measured, PairSample

MANY_NODES = 8  # from this number of nodes on, a node's median speed is used instead of its best
MANY_PAIRS = 8  # from this number of pairs on, a round has a median of its own
NEAR = 0.6  # speeds below this part of the first estimate are excluded from the spread
SLOW_TIMES, SLOW_TIMES_OF_FEW = 3, 4
SLOW_BELOW_OF_FEW = 0.6
FLOOR_MIN = 0.2  # below this part of the expected speed a pair is slow, whatever the spread
MAD_TO_SIGMA = 1.4826
LINK_BEFORE = 3e-4  # prior probability of a bad link between two nodes
AT_TIMES = 0.1  # share of the bad nodes that are slow only intermittently
LINK_TIMES = 4
LINK_ODDS = 20.0  # required likelihood ratio of a bad link to one bad node of the two


class Expected(NamedTuple):
    """The expected speed of a measurement in GB/s: a value below `slow` is slow, one above `fast` is good, and
    between them it is undecided.
    """

    middle: float
    slow: float
    fast: float
    whence: str = "peers"


class Mark(NamedTuple):
    """The result of one pair in one round.

    `slow`, `fast`: at most one of them. `speed` of `what`: the worst measurement.
    """

    round: int
    a: str
    b: str
    slow: bool
    fast: bool
    what: str = ""
    speed: float = 0.0
    error: str = ""

    def other(self, node: str) -> str:
        """Returns the partner of this node in the measurement."""
        return self.b if node == self.a else self.a


class Evidence(NamedTuple):
    """The conclusions from all rounds of pair measurements.

    `of`: results by node. `part`: by node, the first node of the part that it belongs to. `main`: the part that
    counts as good; empty if there is none. `open`: by node, the nodes of the main part with which it was slow without
    a known reason. `hubs`: intermittently slow nodes of the main part. `links`: slow pairs of two good nodes.
    """

    expected: dict[str, Expected]
    of: dict[str, list[Mark]]
    part: dict[str, str]
    parts: dict[str, list[str]]
    main: str
    open: dict[str, set[str]]
    hubs: dict[str, tuple[int, int]]
    links: dict[tuple[str, str], tuple[int, int]]

    def in_main(self, node: str) -> bool:
        """Returns whether the node belongs to the part of the nodes that counts as good."""
        return bool(self.main) and self.part.get(node) == self.main


def evidence(measured: Measured, limits: Limits) -> Evidence:
    """Computes the conclusions on nodes from the measurements of all rounds so far."""
    expected = expected_speeds(measured, limits)
    marks = _marks(measured, expected)
    of: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        of[mark.a].append(mark)
        of[mark.b].append(mark)
    part, parts = _parts(of, marks)
    main = _main(parts, len(part), measured.spares, expected)
    open_ = _open(marks, part, main)
    seen = Evidence(expected, of, part, parts, main, open_, {}, {})
    if main:
        _find_hubs(seen, limits, len(marks))
        _find_links(seen, limits)
    return seen


# What is expected


def expected_speeds(measured: Measured, limits: Limits) -> dict[str, Expected]:
    """Returns the expected speed of each measurement: from the other nodes; from the baseline if all nodes are slower
    than that.
    """
    by_what: dict[str, list[PairSample]] = defaultdict(list)
    for sample in measured.pairs:
        for what in sample.speeds:
            by_what[what].append(sample)
    found = {}
    for what, samples in by_what.items():
        nodes = len({node for one in samples for node in (one.a, one.b)})
        below = limits.slow_below if nodes >= MANY_NODES else SLOW_BELOW_OF_FEW
        below = limits.small_slow_below if what in measured.small else below
        middle, sigma = _middle([(one.a, one.b, one.speeds[what]) for one in samples])
        whence = "peers"
        usual = measured.usual.get(what, 0.0)
        if middle < usual * below:
            middle, whence = usual, "baseline"
        share = max(FLOOR_MIN, min(below, math.exp(-limits.sigmas * sigma)))
        if whence == "peers" and nodes < 3:
            share = 0.0  # a single pair has no peers
        found[what] = Expected(middle, middle * share, middle * math.sqrt(share), whence)
    return found


def _middle(seen: Sequence[tuple[str, str, float]]) -> tuple[float, float]:
    """Returns the speed of healthy pairs, and the spread of its logarithm.

    A healthy node is fast with most of its partners, or at least with one if there are few nodes: so the
    result holds while fewer than half of the nodes are bad.
    """
    of: dict[str, list[float]] = defaultdict(list)
    for a, b, speed in seen:
        of[a].append(speed)
        of[b].append(speed)
    each = [max(own) if len(of) < MANY_NODES else _upper_median(own) for own in of.values()]
    guess = _upper_median(each)
    near = [speed for _, _, speed in seen if speed >= NEAR * guess] or [guess]
    middle = median(near)
    if middle <= 0:
        return 0.0, 0.0
    return middle, MAD_TO_SIGMA * median(abs(math.log(speed / middle)) for speed in near)


def _upper_median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _marks(measured: Measured, expected: dict[str, Expected]) -> list[Mark]:
    shares = _shares(measured, expected)
    return [_mark(sample, expected, shares.get(sample.round, {})) for sample in measured.pairs]


def _shares(measured: Measured, expected: dict[str, Expected]) -> dict[int, dict[str, float]]:
    """Returns, for rounds in which most pairs were slower than in others, by how much; this is no fault of a
    node.
    """
    rounds: dict[int, list[PairSample]] = defaultdict(list)
    for sample in measured.pairs:
        rounds[sample.round].append(sample)
    found: dict[int, dict[str, float]] = {}
    for number, samples in rounds.items():
        for what, usual in expected.items():
            speeds = [sample.speeds[what] for sample in samples if what in sample.speeds]
            if usual.middle > 0 and usual.whence == "peers" and len(speeds) >= MANY_PAIRS:
                found.setdefault(number, {})[what] = min(1.0, median(speeds) / usual.middle)
    return found


def _mark(sample: PairSample, expected: dict[str, Expected], shares: dict[str, float]) -> Mark:
    a, b = sample.a, sample.b
    if sample.error or not sample.speeds:
        return Mark(sample.round, a, b, True, False, error=sample.error or "nothing was measured")
    worst = ""
    worst_ratio = math.inf
    for what, speed in sample.speeds.items():
        usual = expected[what]
        slow_at = usual.slow * shares.get(what, 1.0)
        ratio = speed / slow_at if slow_at > 0 else math.inf
        if ratio < worst_ratio:
            worst, worst_ratio = what, ratio
    usual = expected[worst] if worst else Expected(0.0, 0.0, 0.0)
    fast_ratio = usual.fast / usual.slow if usual.slow > 0 else 1.0
    speed = sample.speeds.get(worst, 0.0)
    return Mark(sample.round, a, b, worst_ratio < 1.0, worst_ratio >= fast_ratio, worst, speed)


# Connected parts


def _parts(of: dict[str, list[Mark]], marks: Sequence[Mark]) -> tuple[dict[str, str], dict[str, list[str]]]:
    above = {node: node for node in of}

    def top(node: str) -> str:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    # Among many nodes, a pair that was slow and fast connects none: bad nodes may be fast at times by chance.
    both = {(mark.a, mark.b) for mark in marks if mark.slow} if len(of) >= MANY_NODES else set()
    for mark in marks:
        if mark.fast and (mark.a, mark.b) not in both and (mark.b, mark.a) not in both:
            above[top(mark.a)] = top(mark.b)
    part = {node: top(node) for node in of}
    parts: dict[str, list[str]] = defaultdict(list)
    for node, first in part.items():
        parts[first].append(node)
    return part, parts


def _main(
    parts: dict[str, list[str]], nodes: int, spares: Sequence[str], expected: dict[str, Expected]
) -> str:
    if not parts:
        return ""
    first = max(parts, key=lambda name: len(parts[name]))
    members = parts[first]
    if len(members) < 2:
        return ""
    learned = any(usual.whence == "baseline" for usual in expected.values())
    is_known = learned or any(spare in members for spare in spares)
    return first if 2 * len(members) > nodes or is_known else ""


def _open(marks: Sequence[Mark], part: dict[str, str], main: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for mark in marks:
        if mark.slow and part[mark.a] == part[mark.b] == main:
            found[mark.a].add(mark.b)
            found[mark.b].add(mark.a)
    return found


# Slow pairs of nodes that are both fast with others


def likelihood(slow: int, looks: int) -> float:
    """Returns the likelihood of one order of `slow` among `looks` with a uniform prior over rates
    (Beta-Bernoulli).
    """
    return 1.0 / ((looks + 1) * math.comb(looks, slow))


def _find_hubs(seen: Evidence, limits: Limits, pairs: int) -> None:
    """Finds intermittently slow nodes, worst first: each is slow with several nodes that are
    otherwise fast.
    """
    hiccup = _hiccup(seen, limits, pairs)
    tried: set[str] = set()
    while True:
        waiting = [node for node, others in seen.open.items() if len(others) > 1 and node not in tried]
        if not waiting:
            return
        node = max(waiting, key=lambda name: (len(seen.open[name]), -len(seen.of[name]), name))
        tried.add(node)
        by_partner = _by_partner(seen, node)
        slow = sum(times for times, _ in by_partner.values())
        if slow < times_wanted(seen):
            continue
        looks = slow + sum(fast for _, fast in by_partner.values())
        if sum(times > 0 for times, _ in by_partner.values()) < 2:
            continue
        chance = math.prod(_by_chance(*times, hiccup) for times in by_partner.values() if times[0])
        if likelihood(slow, looks) * limits.fault_before < limits.odds * chance:
            continue
        seen.hubs[node] = (slow, looks)
        for other in seen.open.pop(node):
            seen.open[other].discard(node)
        tried.clear()


def times_wanted(seen: Evidence) -> int:
    """Returns how often a node must have been slow before it is named; more often if there are few nodes, because
    their spread is less well known.
    """
    return SLOW_TIMES if len(seen.of) >= MANY_NODES else SLOW_TIMES_OF_FEW


def _hiccup(seen: Evidence, limits: Limits, pairs: int) -> float:
    """Returns how often a healthy pair is slow once, estimated from pairs in which neither node was slow with
    another.
    """
    once = sum(
        1 for others in seen.open.values() if len(others) == 1 and len(seen.open[next(iter(others))]) == 1
    )
    return min(0.5, max(limits.hiccup, once / 2 / pairs / 4 if pairs else 0.0))


def _by_partner(seen: Evidence, node: str) -> dict[str, tuple[int, int]]:
    """Returns how often the node was slow and fast with each partner that is otherwise good, or much better
    than it.
    """
    others_max = (len(seen.open[node]) - 1) // 2
    found: dict[str, tuple[int, int]] = {}
    for mark in seen.of[node]:
        other = mark.other(node)
        if other in seen.hubs or not seen.in_main(other):
            continue
        slow, fast = found.get(other, (0, 0))
        if mark.slow and len(seen.open.get(other, set()) - {node}) <= others_max // 2:
            found[other] = slow + 1, fast
        elif mark.fast:
            found[other] = slow, fast + 1
    return found


def _by_chance(slow: int, fast: int, hiccup: float) -> float:
    """Returns the higher likelihood for one partner: of a bad link to it, or of slow measurements
    by chance.
    """
    return max(LINK_BEFORE * likelihood(slow, slow + fast), hiccup**slow)


def _find_links(seen: Evidence, limits: Limits) -> None:
    for a in list(seen.open):
        for b in sorted(seen.open[a]):
            if a > b or (len(seen.open[a]) > 1 and len(seen.open[b]) > 1):
                continue
            slow, fast = pair_times(seen, a, b)
            looks = slow + fast
            if slow < LINK_TIMES:
                continue
            if all(_is_rather_a_link(seen, node, {a, b}, slow, looks, limits) for node in (a, b)):
                seen.links[a, b] = (slow, looks)
    for a, b in seen.links:
        seen.open[a].discard(b)
        seen.open[b].discard(a)


def _is_rather_a_link(
    seen: Evidence, node: str, pair: set[str], slow: int, looks: int, limits: Limits
) -> bool:
    """Returns whether a bad link is likelier than an intermittently slow node that happened to meet the other
    one.
    """
    others = [mark for mark in seen.of[node] if mark.other(node) not in pair]
    well = sum(mark.fast for mark in others)
    else_slow = sum(mark.slow and mark.other(node) in seen.open.get(node, ()) for mark in others)
    link = LINK_BEFORE * likelihood(slow, looks) * limits.hiccup**else_slow
    at_times = AT_TIMES * limits.fault_before * likelihood(slow + else_slow, looks + else_slow + well)
    return link > LINK_ODDS * at_times and link > limits.odds * limits.hiccup ** (slow + else_slow)


def pair_times(seen: Evidence, a: str, b: str) -> tuple[int, int]:
    """Returns how often the two nodes were slow with each other, and how often fast."""
    both = [mark for mark in seen.of[a] if mark.other(a) == b]
    return sum(mark.slow for mark in both), sum(mark.fast for mark in both)


def looks_since(seen: Evidence, node: str, other: str) -> int:
    """Returns the number of other partners tried since the node was first slow with `other`."""
    first = min((mark.round for mark in seen.of[node] if mark.slow and mark.other(node) == other), default=0)
    return sum(mark.round > first and mark.other(node) != other for mark in seen.of[node])


def well_with(seen: Evidence, node: str, but: set[str]) -> int:
    """Returns how often the node was fast in a measurement with a partner that is not in `but`."""
    return sum(mark.fast for mark in seen.of[node] if mark.other(node) not in but)
