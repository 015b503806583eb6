"""Computes the clock offsets of several sources from events that all of them saw: the same step, the same
barrier. Pure.

Ranks print the same step within milliseconds, so the median of the differences is the clock offset; a few
late prints do not change it. Time stamps of two sources can be compared after the offset is subtracted, and
only down to the spread.
"""

from collections.abc import Hashable, Mapping
from math import isfinite
from statistics import median

from msgspec import Struct

SHARED_MIN = 2
WITNESSES_MAX = 15  # sources per event: a median over more is no more exact, and slow with a thousand ranks
# A job's last minutes never span so much: such stamps come from a wrong clock, or a format without a year.
COMPARABLE_S = 30 * 86400.0


class Offset(Struct, frozen=True, kw_only=True):
    """A source's clock offset against the first source.

    `offset_s`: seconds that its clock is ahead. `spread_s`: the median absolute deviation of the `shared`
    events, in seconds.
    """

    offset_s: float
    spread_s: float
    shared: int


def clock_offsets(seen: Mapping[str, Mapping[Hashable, float]]) -> dict[str, Offset]:
    """Returns the clock offset of each source against the first source.

    `seen`: by source, the time stamp in seconds of each event. A source that shares fewer than two events
    with the first one, directly or by way of other sources, is left out.
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
    """Returns whether the order of two time stamps can be compared: both are known, and less than 30 days apart."""
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
