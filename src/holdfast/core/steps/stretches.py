"""Finds slowdowns that are visible only in a whole run: slow starts, gradual rises, intermittent slow ranges.

Pure.

The curve of comparable steps is cut where its level changes (seeded binary segmentation: Kovács, Bühlmann,
Li, Munk, "Seeded binary segmentation", Biometrika 2023, with the CUSUM statistic on clipped logarithms). A
piece is slow if it lies above a piece before it and, unless it lasts to the end, above one after it. Patterns
that repeat with every epoch, or change in flat stages with the epochs, are part of the training's set-up.
"""

from collections.abc import Sequence
from itertools import groupby
from math import exp, log
from statistics import median

from msgspec import Struct

from holdfast.core.steps.curve import Stretch
from holdfast.core.steps.season import quantum
from holdfast.model.steps import SlowdownKind

RECORDS_MIN = 20  # minimum records of a run
PIECE_RECORDS = 10  # minimum records of a slow piece, and of a piece for comparison
PIECE_POINTS = 3
FLOOR = 0.10  # minimum rise of a slow piece, as a share
SPREADS = 2.0  # minimum rise in robust standard deviations of one point
BLOCK, BLOCK_SPREADS = 10, 4.0  # minimum rise in robust standard deviations of the means of ten points
WHOLE_FLOOR = 0.08  # minimum rise of a whole slow range, parts of which are slower by FLOOR
SAME = 0.03  # neighbours that differ by less are one piece
CLIP = log(1.15)  # beyond the running quartiles: pauses hardly move a mean
CLIP_WINDOW = 10  # points to each side
SMALLEST = 8  # points in the shortest interval that is searched
START_RECORDS, START_STEPS = 30, 200  # minimum length of a slow start; a warm-up is shorter
FLAT = 0.25  # maximum spread within two flat pieces, divided by their difference
SHARP_SCHEDULE = 0.26  # log 1.3: minimum change at the beginning of an epoch that is part of a schedule
REGULAR_MIN, REGULAR_OFF = (
    3,
    0.15,
)  # minimum number of equal distances between regular slow ranges, and their maximum deviation
RAMP_RECORDS = 20  # minimum records between 20 % and 80 % of a gradual rise


class Slow(Struct, frozen=True, kw_only=True):
    """A slow range of the curve: indexes of its first and last point.

    `to_end`: it lasts to the last point. Levels in seconds.
    """

    kind: SlowdownKind
    first: int
    last: int
    before_s: float
    after_s: float
    to_end: bool


class _Piece(Struct):
    first: int
    end: int  # exclusive
    level: float  # logarithm
    records: int
    spread: float


def find(points: Sequence[Stretch]) -> list[Slow]:
    """Finds the ranges of slow steps in a sequence of comparable steps, in order."""
    if sum(point.count for point in points) < RECORDS_MIN or len(points) < RECORDS_MIN:
        return []
    values = _clipped([log(point.median_s) for point in points])
    pieces = _pieces(points, values)
    if len(pieces) < 2:
        return []
    coarse = 1.2 * quantum([point.median_s for point in points])
    limit = max(
        log(1 + max(FLOOR, coarse)),
        SPREADS * _noise(values, pieces, 1),
        BLOCK_SPREADS * _noise(values, pieces, BLOCK),
    )
    found = [slow for slow in _slow(points, pieces, limit) if not _by_epoch(points, values, slow, limit)]
    if _is_regular([slow.first for slow in found]):
        return []
    transient = [slow for slow in found if slow.kind == "transient"]
    if len(transient) > 1:
        found = [_again(slow) if slow.kind == "transient" else slow for slow in found]
    return found


def _is_regular(starts: list[int]) -> bool:
    """Returns whether slow ranges begin at equal distances, which is due to the order of the data and no
    fault.
    """
    gaps = [after - before for before, after in zip(starts, starts[1:], strict=False)]
    gaps = [gap for gap in gaps if gap > 0.2 * max(gaps)]  # one stretch may be cut in two
    if len(gaps) < REGULAR_MIN:
        return False
    middle = median(gaps)
    return all(abs(gap - middle) <= REGULAR_OFF * middle for gap in gaps)


def _again(slow: Slow) -> Slow:
    return Slow(
        kind="repeated",
        first=slow.first,
        last=slow.last,
        before_s=slow.before_s,
        after_s=slow.after_s,
        to_end=slow.to_end,
    )


def _clipped(values: list[float]) -> list[float]:
    """Returns the values with outliers clipped to CLIP outside the quartiles of their neighbours.

    Two alternating step lengths both stay.
    """
    clipped = []
    for place, value in enumerate(values):
        near = sorted(values[max(0, place - CLIP_WINDOW) : place + CLIP_WINDOW + 1])
        low, high = near[len(near) // 4] - CLIP, near[(3 * len(near)) // 4] + CLIP
        clipped.append(min(max(value, low), high))
    return clipped


def _pieces(points: Sequence[Stretch], values: list[float]) -> list[_Piece]:
    cuts = _cuts(values)
    edges = [0, *cuts, len(values)]
    pieces = [_piece(points, values, first, end) for first, end in zip(edges, edges[1:], strict=False)]
    return _merged(points, values, pieces)


def _piece(points: Sequence[Stretch], values: list[float], first: int, end: int) -> _Piece:
    inside = values[first:end]
    level = sum(inside) / len(inside)
    spread = 1.25 * sum(abs(value - level) for value in inside) / len(inside)
    return _Piece(first, end, level, sum(point.count for point in points[first:end]), spread)


def _cuts(values: list[float]) -> list[int]:
    """Returns the indexes at which the level changes."""
    count = len(values)
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    steps = sorted(abs(after - before) for before, after in zip(values, values[1:], strict=False))
    noise = max(1.4826 * steps[len(steps) // 2] / 2**0.5, 0.003)
    limit = max(1.5 * noise * (2 * log(count)) ** 0.5, 0.05)
    found = []
    length = count
    while length >= SMALLEST:
        shift = max(length // 2, 1)
        for start in range(0, max(count - length, 0) + shift, shift):
            end = min(start + length, count)
            if end - start >= SMALLEST:
                found.append((*_best_cut(sums, start, end), start, end))
        length = int(length / 1.5)
    cuts: list[int] = []
    for strength, cut, start, end in sorted(found, reverse=True):
        if strength < limit:
            break
        if not any(start < other < end for other in cuts):
            cuts.append(cut)
    return sorted(cuts)


def _best_cut(sums: list[float], start: int, end: int) -> tuple[float, int]:
    """Returns the strongest cut of an interval: its CUSUM statistic and its index."""
    total, length, base = sums[end] - sums[start], end - start, sums[start]
    best, where = 0.0, start + 1
    mean = total / length
    for cut in range(start + 2, end - 1):
        left = cut - start
        off = sums[cut] - base - mean * left
        strength = off * off * length / (left * (length - left))
        if strength > best:
            best, where = strength, cut
    return best**0.5, where


def _merged(points: Sequence[Stretch], values: list[float], pieces: list[_Piece]) -> list[_Piece]:
    """Joins neighbouring pieces of equal level, and short pieces with the neighbour that is
    nearer in level.
    """
    while len(pieces) > 1:
        gaps = [abs(after.level - before.level) for before, after in zip(pieces, pieces[1:], strict=False)]
        nearest = min(range(len(gaps)), key=lambda place: gaps[place])
        if gaps[nearest] >= SAME:
            short = [place for place, piece in enumerate(pieces) if _is_short(piece)]
            if not short:
                break
            place = min(short, key=lambda place: pieces[place].records)
            sides = [side for side in (place - 1, place) if 0 <= side < len(gaps)]
            nearest = min(sides, key=lambda side: gaps[side])
            if place == 0 and pieces[0].level > pieces[1].level:
                del pieces[0]  # warm-up
                continue
        joined = _piece(points, values, pieces[nearest].first, pieces[nearest + 1].end)
        pieces[nearest : nearest + 2] = [joined]
    return pieces


def _is_short(piece: _Piece) -> bool:
    return piece.records < PIECE_RECORDS or piece.end - piece.first < PIECE_POINTS


def _noise(values: list[float], pieces: list[_Piece], block: int) -> float:
    """Returns how far means of `block` points deviate from the level of their piece, as a robust standard
    deviation.
    """
    off = [
        abs(sum(values[start : start + block]) / len(values[start : start + block]) - piece.level)
        for piece in pieces
        for start in range(piece.first, max(piece.end - block, piece.first) + 1, block)
    ]
    # 1.25: standard deviation of a normal distribution, divided by its mean absolute deviation.
    return 1.25 * sum(off) / len(off)


def _slow(points: Sequence[Stretch], pieces: list[_Piece], limit: float) -> list[Slow]:
    count = len(pieces)
    before = [min((piece.level for piece in pieces[:place]), default=None) for place in range(count)]
    after = [min((piece.level for piece in pieces[place + 1 :]), default=None) for place in range(count)]
    kinds: list[str] = []
    for place, piece in enumerate(pieces):
        low, high = before[place], after[place]
        above_before = low is not None and piece.level - low >= limit
        above_after = high is not None and piece.level - high >= limit
        if above_before and above_after:
            kinds.append("transient")
        elif above_before:
            kinds.append("lasting")
        elif above_after and all(kind == "slow-start" for kind in kinds):
            kinds.append("slow-start")
        else:
            kinds.append("")
    found = []
    for kind, members in groupby(range(count), key=lambda place: kinds[place]):
        group = list(members)
        first, last = group[0], group[-1]
        level = _level(pieces[first : last + 1])
        if kind == "slow-start":
            slow = _slow_start(points, pieces, last, level)
        elif kind == "lasting" and last == count - 1:
            slow = _lasting(points, pieces, first, level, before[first])
        elif kind:
            slow = _transient(pieces, first, last, level, before[first], after[last])
        else:
            continue
        if slow is not None:
            found.append(slow)
    return found


def _level(pieces: list[_Piece]) -> float:
    records = sum(piece.records for piece in pieces)
    return sum(piece.level * piece.records for piece in pieces) / records


def _transient(
    pieces: list[_Piece], first: int, last: int, level: float, before: float | None, after: float | None
) -> Slow | None:
    base = max(value for value in (before, after, level - 3.0) if value is not None)
    if level - base < log(1 + WHOLE_FLOOR):
        return None
    return Slow(
        kind="transient",
        first=pieces[first].first,
        last=pieces[last].end - 1,
        before_s=exp(base),
        after_s=exp(level),
        to_end=False,
    )


def _lasting(
    points: Sequence[Stretch], pieces: list[_Piece], first: int, level: float, before: float | None
) -> Slow | None:
    if before is None or _in_stages(points, pieces):
        return None
    known = sum(piece.records for piece in pieces[:first])
    slow = sum(piece.records for piece in pieces[first:])
    if known < PIECE_RECORDS or slow < PIECE_RECORDS:
        return None
    top = max(piece.level for piece in pieces[first:])
    between = sum(
        piece.records
        for piece in pieces
        if before + 0.2 * (top - before) < piece.level < before + 0.8 * (top - before)
    )
    start = pieces[first].first
    if _is_schedule(points, pieces, first):
        return None
    kind: SlowdownKind = "ramp" if between >= RAMP_RECORDS else "lasting"
    return Slow(
        kind=kind,
        first=start,
        last=len(points) - 1,
        before_s=exp(before),
        after_s=exp(level),
        to_end=True,
    )


def _slow_start(points: Sequence[Stretch], pieces: list[_Piece], last: int, level: float) -> Slow | None:
    records = sum(piece.records for piece in pieces[: last + 1])
    end = pieces[last].end - 1
    steps = points[end].last - points[0].first
    later = _level(pieces[last + 1 :])
    if records < START_RECORDS or steps < START_STEPS or level - later < log(1 + FLOOR):
        return None
    if _in_stages(points, pieces) or _is_schedule(points, pieces, last + 1):
        return None
    return Slow(
        kind="slow-start",
        first=pieces[0].first,
        last=end,
        before_s=exp(later),
        after_s=exp(level),
        to_end=False,
    )


def _is_flat(one: _Piece, other: _Piece) -> bool:
    return max(one.spread, other.spread) < FLAT * abs(other.level - one.level)


def _in_stages(points: Sequence[Stretch], pieces: list[_Piece]) -> bool:
    """Returns whether there are three or more flat levels, each faster than the last, or each slower from an
    epoch's start.
    """
    if len(pieces) < 3:
        return False
    pairs = list(zip(pieces, pieces[1:], strict=False))
    if not all(_is_flat(one, other) for one, other in pairs):
        return False
    if all(other.level < one.level for one, other in pairs):
        return True
    return all(other.level > one.level and _starts_epoch(points, other.first) for one, other in pairs)


def _is_schedule(points: Sequence[Stretch], pieces: list[_Piece], place: int) -> bool:
    """Returns whether the change is large and sharp and happens at the first step of an epoch."""
    one, other = pieces[place - 1], pieces[place]
    large = abs(other.level - one.level) > SHARP_SCHEDULE
    return large and _is_flat(one, other) and _starts_epoch(points, other.first)


def _starts_epoch(points: Sequence[Stretch], place: int) -> bool:
    near = points[max(place - 2, 0) : place + 2]
    return len({point.epoch for point in near}) > 1


def _by_epoch(points: Sequence[Stretch], values: list[float], slow: Slow, limit: float) -> bool:
    """Returns whether the same part of most other epochs is equally slow, because batches are ordered."""
    starts = [place for place in range(1, len(points)) if points[place].epoch != points[place - 1].epoch]
    if not starts:
        return False
    starts = [0, *starts, len(points)]
    epoch = max(number for number, start in enumerate(starts) if start <= slow.first)
    if epoch + 1 >= len(starts) or slow.last >= starts[epoch + 1] + PIECE_RECORDS:
        return False
    offset, length = slow.first - starts[epoch], slow.last - slow.first + 1
    base = log(slow.before_s)
    others, alike = 0, 0
    for number in range(len(starts) - 1):
        first = starts[number] + offset
        if number == epoch or first + length // 2 >= starts[number + 1]:
            continue
        others += 1
        inside = values[first : min(first + length, starts[number + 1])]
        alike += bool(inside) and median(inside) - base >= limit / 2
    return others > 0 and 2 * alike >= others
