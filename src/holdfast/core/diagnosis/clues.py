"""Sightings made comparable: each with its signature, its place in time, and whether the job lived on after it.

A log's lines mostly bear no time where it matters (a traceback's end), so a sighting takes the time of the
stamped one before it in the same log. Two sightings are only put in order where something tells their order.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.core.categories import KINDS
from holdfast.model.sightings import Search, Sighting, Source, Writer
from holdfast.model.signatures import Signature

FIELD = re.compile(r"\{(\w+)\}")
CLOCK_SKEW_S = 30.0  # between nodes that nobody has synchronised well


class Clue(Struct, frozen=True, eq=False):
    """`at_s`: aligned seconds since the epoch; `uptime_s`: since boot, of kernel lines without a date.

    `survived`: training went on in the same log after it. `order`: by source and offset, for a stable choice.
    """

    sighting: Sighting
    signature: Signature
    category: str
    class_: str
    at_s: float | None
    uptime_s: float | None
    survived: bool
    order: int

    @property
    def writer(self) -> Writer:
        return self.sighting.writer

    @property
    def is_traceback(self) -> bool:
        return bool(self.sighting.error_type)


def filled(text: str, captures: Mapping[str, str]) -> str:
    """The text with what was captured in place of `{name}`; `?` for what was not."""
    return FIELD.sub(lambda field: captures.get(field[1]) or "?", text)


def class_of(category: str) -> str:
    """`xid_79` has the class of `xid_N`."""
    known = KINDS.get(category) or KINDS.get("xid_N" if category.startswith("xid_") else "unknown")
    return known[0] if known else "unknown"


def clues(
    search: Search, signatures: Mapping[str, Signature], clock_offsets_s: Mapping[int, float] | None = None
) -> list[Clue]:
    """One for each sighting whose signature is known, in the order of sources and offsets.

    clock_offsets_s: by source, seconds that its clock is ahead of the first one's.
    """
    offsets = clock_offsets_s or {}
    by_source: dict[int, list[Sighting]] = defaultdict(list)
    for sighting in search.sightings:
        if sighting.signature in signatures:
            by_source[sighting.source].append(sighting)
    made: list[Clue] = []
    for source, seen in sorted(by_source.items()):
        seen.sort(key=lambda sighting: sighting.offset)
        stamps = [(one.offset, one.writer.stamp_s) for one in seen if one.writer.stamp_s is not None]
        for sighting in seen:
            signature = signatures[sighting.signature]
            category = filled(sighting.category, sighting.captures)
            at_s = _at(sighting, stamps)
            made.append(
                Clue(
                    sighting=sighting,
                    signature=signature,
                    category=category,
                    class_=class_of(category),
                    at_s=None if at_s is None else at_s - offsets.get(source, 0.0),
                    uptime_s=sighting.writer.uptime_s,
                    survived=_survived(sighting, search.sources[source]),
                    order=len(made),
                )
            )
    return made


def is_before(one: Clue, other: Clue) -> bool | None:
    """Whether one was seen before the other; None where nothing tells."""
    if one.sighting.source == other.sighting.source:
        return one.sighting.offset < other.sighting.offset
    if one.at_s is not None and other.at_s is not None:
        return one.at_s < other.at_s
    if one.uptime_s is not None and other.uptime_s is not None:
        return one.uptime_s < other.uptime_s
    return None


def is_much_later(one: Clue, other: Clue) -> bool:
    """Whether one came too late to be the cause of the other, clocks and buffers allowed for."""
    if one.at_s is not None and other.at_s is not None:
        same_clock = one.sighting.source == other.sighting.source
        return one.at_s - other.at_s > (CLOCK_SKEW_S if not same_clock else CLOCK_SKEW_S / 2)
    return False


def _at(sighting: Sighting, stamps: Sequence[tuple[int, float | None]]) -> float | None:
    if sighting.writer.stamp_s is not None or not stamps:
        return sighting.writer.stamp_s
    before = bisect_right(stamps, sighting.offset, key=lambda stamp: stamp[0])
    return stamps[max(0, before - 1)][1]


def _survived(sighting: Sighting, source: Source) -> bool:
    last = source.last_step_offset
    return last is not None and max(sighting.last_offset, sighting.offset) < last
