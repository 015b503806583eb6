"""Computes clock offsets from events that several sources saw: the same step, the same barrier. Pure.

Ranks print the same step within milliseconds. The median of the differences is the clock offset; a few late prints do
not move it. Decides nothing: whoever compares stamps of two sources subtracts the offset first and trusts no order
finer than the spread.
"""

from collections.abc import Hashable, Mapping
from math import isfinite
from statistics import median

from msgspec import Struct

SHARED_MIN = 2
WITNESSES_MAX = 15  # of one event: a median over more is no better, with a thousand ranks only slower
# No job's last minutes span so much: stamps further apart are of a clock years off, or of a form without a year.
COMPARABLE_S = 30 * 86400.0


class Offset(Struct, frozen=True, kw_only=True):
    """`offset_s`: how far the clock is ahead of the first source's. `spread_s`: half of the `shared` events differ
    by no more than that from it.
    """

    offset_s: float
    spread_s: float
    shared: int


def clock_offsets(seen: Mapping[str, Mapping[Hashable, float]]) -> dict[str, Offset]:
    """The offset of each source's clock against the first source. `seen`: for each source the stamp, in seconds, of
    each event.

    A source that is not connected to the first one by at least two shared events, directly or over others, is left
    out.
    """
    sources = {name: {key: at for key, at in events.items() if isfinite(at)} for name, events in seen.items()}
    if not sources:
        return {}
    first = next(iter(sources))
    known = sources.pop(first)
    found = {first: Offset(offset_s=0.0, spread_s=0.0, shared=len(known))}
    timeline: dict[Hashable, list[float]] = {key: [at] for key, at in known.items()}
    while sources:
        offsets = {name: one for name, events in sources.items() if (one := _offset(events, timeline))}
        if not offsets:
            break
        for name, one in offsets.items():
            found[name] = one
            for key, at in sources.pop(name).items():
                witnesses = timeline.setdefault(key, [])
                if len(witnesses) < WITNESSES_MAX:
                    witnesses.append(at - one.offset_s)
    return {name: found[name] for name in seen if name in found}


def are_comparable(one_s: float | None, other_s: float | None) -> bool:
    """True if the order of two stamps can be meaningful: both known, and less than a month apart."""
    return one_s is not None and other_s is not None and abs(one_s - other_s) <= COMPARABLE_S


def _offset(events: Mapping[Hashable, float], timeline: Mapping[Hashable, list[float]]) -> Offset | None:
    differences = [at - median(timeline[key]) for key, at in events.items() if key in timeline]
    if len(differences) < SHARED_MIN:
        return None
    middle = median(differences)
    return Offset(
        offset_s=middle,
        spread_s=median(abs(one - middle) for one in differences),
        shared=len(differences),
    )
