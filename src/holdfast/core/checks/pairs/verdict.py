"""Decides from pairwise measurements which nodes to name, and whether more rounds would help. Pure."""

from collections import defaultdict
from collections.abc import Container, Iterable
from statistics import median
from typing import NamedTuple

from holdfast.core.checks.pairs.compute import compute_blames
from holdfast.core.checks.pairs.evidence import (
    MANY_NODES,
    Evidence,
    Mark,
    evidence,
    pair_times,
    times_wanted,
    well_with,
)
from holdfast.core.checks.pairs.results import Blame, Limits, Measured, Verdict

CROSS_LOOKS = 3  # other bad nodes with which a bad node must be slow, so that both are not in one group
HICCUP_LOOKS = 2  # fast measurements of a pair after which a single slow one counts as chance
WELL_LOOKS = 3  # fast measurements of each of the two nodes with others, for the same


class Off(NamedTuple):
    """A group of connected nodes other than the good one, in pair measurements.

    `marks`: results with good nodes. `untested`: nodes without such results. `met`: how often it was slow with other
    such groups.
    """

    nodes: list[str]
    marks: list[Mark]
    partners: list[str]
    met: dict[str, int]
    untested: list[str]


def silent_nodes(measured: Measured) -> dict[str, tuple[int, int, str]]:
    """Returns the nodes that did not answer, twice in a row or always: number of failures, number of tries, and the
    reason.
    """
    answers: dict[str, list[str]] = {}
    for sample in measured.singles:
        answers.setdefault(sample.node, []).append(sample.error)
    return {
        node: (sum(map(bool, errors)), len(errors), errors[-1])
        for node, errors in answers.items()
        if errors[-1] and (len(errors) > 1 and errors[-2])
    }


def verdict(measured: Measured, limits: Limits) -> Verdict:
    """Returns the verdict on nodes and links from all measured pairs so far; never raises."""
    seen = evidence(measured, limits)
    blames = _silent(measured)
    blames += compute_blames(measured, limits)
    offs = off_parts(seen)
    settled = _all_met(seen, silent_nodes(measured))
    for first, off in offs.items():
        blame = _blame_off(seen, off, len(offs), limits)
        if blame is not None:
            blames.append(blame)
        settled = settled and blame is not None and not _waits(first, off, offs)
    blames += [_hub(seen, node, *times) for node, times in seen.hubs.items()]
    blames += [_link(seen, pair, *times) for pair, times in seen.links.items()]
    blames += _undecidable(seen)
    waiting = open_edges(seen)
    return Verdict(
        blames=tuple(blames),
        unsure=_unsure(seen),
        expected={what: usual.middle for what, usual in seen.expected.items()},
        settled=settled and not any(waits_for_more(seen, a, b) for a, b in waiting),
    )


def _all_met(seen: Evidence, silent: Container[str]) -> bool:
    """Returns whether few nodes have all met each other, before which their usual speed is unknown; True for
    many nodes.
    """
    there = {node for node in seen.of if node not in silent}
    if len(there) >= MANY_NODES:
        return True
    return all(there <= {node, *(mark.other(node) for mark in seen.of[node])} for node in there)


def is_good(seen: Evidence, node: str) -> bool:
    """Returns whether the node is in the good part, without undecided slow measurements."""
    return seen.in_main(node) and not seen.open.get(node) and node not in seen.hubs


def off_parts(seen: Evidence) -> dict[str, Off]:
    """Returns the groups of nodes other than the good one; empty if there is no good one."""
    if not seen.main:
        return {}
    found = {}
    for first, nodes in seen.parts.items():
        if first == seen.main:
            continue
        marks = [
            mark
            for node in nodes
            for mark in seen.of[node]
            if not mark.fast and is_good(seen, mark.other(node))
        ]
        own = set(nodes)
        partners = {mark.b if mark.a in own else mark.a for mark in marks}
        tested = {mark.a if mark.a in own else mark.b for mark in marks}
        met: dict[str, int] = defaultdict(int)
        for node in nodes:
            for mark in seen.of[node]:
                met[seen.part[mark.other(node)]] += mark.slow
        found[first] = Off(nodes, marks, sorted(partners), met, sorted(own - tested))
    return found


def partners_wanted(seen: Evidence, limits: Limits) -> int:
    """Returns the number of good nodes with which a node must be slow before it is named."""
    return max(2, min(limits.partners, len(seen.parts[seen.main]))) if seen.main else limits.partners


def _waits(first: str, off: Off, offs: dict[str, Off]) -> bool:
    """Returns whether it is still unknown if this bad node is fast with another bad one."""
    slow_with = sum(1 for other in offs if other != first and off.met.get(other))
    return slow_with < min(CROSS_LOOKS, len(offs) - 1)


def open_edges(seen: Evidence) -> list[tuple[str, str]]:
    """Returns the slow pairs of good nodes for which it is not decided which node is slow."""
    return [(a, b) for a, others in seen.open.items() for b in sorted(others) if a < b]


def waits_for_more(seen: Evidence, a: str, b: str) -> bool:
    """Returns whether a pair of good nodes was slow and further measurements are needed to exclude chance."""
    slow, fast = pair_times(seen, a, b)
    well = min(well_with(seen, node, {a, b}) for node in (a, b))
    return not (slow == 1 and fast >= HICCUP_LOOKS and well >= WELL_LOOKS)


# Blames


def _silent(measured: Measured) -> list[Blame]:
    return [
        Blame(kind="silent", nodes=(node,), times=times, looks=looks, error=why)
        for node, (times, looks, why) in silent_nodes(measured).items()
    ]


def _blame_off(seen: Evidence, off: Off, offs: int, limits: Limits) -> Blame | None:
    if len(off.partners) < partners_wanted(seen, limits) or off.untested:
        return None
    kind = "communication" if len(off.nodes) == 1 else "group"
    if len(off.marks) < times_wanted(seen):
        return None
    looks = len(off.marks)
    return _blame(seen, kind, off.nodes, off.marks, looks, off.partners)


def _hub(seen: Evidence, node: str, slow: int, looks: int) -> Blame:
    marks = [mark for mark in seen.of[node] if mark.slow and seen.in_main(mark.other(node))]
    partners = sorted({mark.other(node) for mark in marks} - seen.hubs.keys())
    return _blame(seen, "communication", [node], marks, looks, partners, slow)


def _link(seen: Evidence, pair: tuple[str, str], slow: int, looks: int) -> Blame:
    a, b = pair
    marks = [mark for mark in seen.of[a] if mark.other(a) == b and mark.slow]
    partners = sorted({mark.other(node) for node in pair for mark in seen.of[node] if mark.fast} - {a, b})
    return _blame(seen, "link", [a, b], marks, looks, partners, slow)


def _undecidable(seen: Evidence) -> list[Blame]:
    """Returns the slow pairs if no part of the nodes can be assumed to be good."""
    if seen.main:
        return []
    slow = [mark for marks in seen.of.values() for mark in marks if mark.slow]
    if not slow:
        return []
    nodes = sorted({node for mark in slow for node in (mark.a, mark.b)})
    looks = sum(len(seen.of[node]) for node in nodes) // 2
    kind = "one-of" if max(len(nodes) for nodes in seen.parts.values()) == 1 else "split"
    if kind == "split":
        parts = sorted((sorted(part) for part in seen.parts.values()), key=lambda part: (len(part), part))
        nodes = parts[0]
    found = _blame(seen, kind, nodes, slow, looks, [], len(slow) // 2)
    return [found]


def _blame(
    seen: Evidence,
    kind: str,
    nodes: Iterable[str],
    marks: list[Mark],
    looks: int,
    partners: list[str],
    times: int | None = None,
) -> Blame:
    """Returns the blame, with the measurement to which most of the marks belong."""
    whats = [mark.what for mark in marks]
    what = max(sorted(set(whats)), key=whats.count, default="")
    of_large = max(seen.expected, key=lambda name: seen.expected[name].middle, default="")
    usual = seen.expected.get(
        what or of_large
    )  # where nothing got through, what a large message would have reached
    speeds = [mark.speed for mark in marks if mark.what == what]
    names = tuple(sorted(nodes))
    return Blame(
        kind=kind,
        nodes=names,
        what=what,
        speed=median(speeds) if speeds and what else 0.0,
        expected=usual.middle if usual else 0.0,
        whence=usual.whence if usual else "peers",
        times=len(marks) if times is None else times,
        looks=looks,
        partners=tuple(partners),
        others=len(seen.part) - len(names),
        error=next((mark.error for mark in marks if mark.error), ""),
    )


def _unsure(seen: Evidence) -> dict[str, tuple[int, int]]:
    """Returns the nodes that were slow more than once without a known reason."""
    found = {}
    for node, others in seen.open.items():
        looks = [mark for mark in seen.of[node] if seen.in_main(mark.other(node))]
        slow = sum(mark.slow for mark in looks if mark.other(node) in others)
        if slow > 1:
            found[node] = (slow, len(looks))
    return found
