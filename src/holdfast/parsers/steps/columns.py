"""Parses many lines of one form at once, if they consist of similar parts between separators. Pure.

The position of each value is learned from one fully parsed line: in which part, after which words. Lines of
equal length are split at the same offsets, others at the separators. For lines with other words, or another
number of parts, the result is None, and they are parsed in smaller groups, finally one by one.
"""

from collections.abc import Sequence
from operator import itemgetter
from struct import Struct as Row

from msgspec import Struct

from holdfast.parsers.steps.heads import FULL, Heads
from holdfast.parsers.steps.reading import FormReader
from holdfast.parsers.steps.values import SECONDS

WHOLE = ("step", "total", "sequence")
STEADY = ("total", "sequence", "batch")  # values that are equal in most lines
VALUES = ("step", "total", "time", "loss", "batch", "rate", "sequence", "data")
NUMBER_MAX = 10**15
LINE_BYTES_MAX = 2000


class Columns(Struct, gc=False):
    """The values of many lines, one list for each kind; None if these lines lack it. Times in seconds."""

    numbers: list[int]
    times: list[float]
    totals: list[int] | None = None
    losses: list[float] | None = None
    batches: list[float] | None = None
    rates: list[float] | None = None
    sequences: list[int] | None = None
    data: list[float] | None = None
    stamps: list[float] | None = None


class _Part(Struct, frozen=True):
    """The position of a value: in part `index`, from `start` to `stop` (None: to the end), between `words`
    and `end`.
    """

    index: int
    words: bytes
    start: int
    stop: int | None
    end: bytes


class _Fixed(Struct, frozen=True):
    """The layout of lines of one length: `row` splits a line at fixed offsets; `texts`: the pieces that are
    always equal.
    """

    row: Row
    texts: dict[int, bytes]
    values: dict[str, int]
    stamp: int | None


class Layout(Struct, frozen=True):
    """The common layout of similar lines, by which they are parsed at once."""

    separator: bytes
    count: int  # number of parts in a line
    parts: dict[str, _Part]
    unit_s: float
    stamp: tuple[int, int] | None  # position of the time stamp in the first part
    head: bytes  # text before the time stamp, or before the step
    first_head: bytes  # text before the step in the line from which the layout was learned
    fixed: _Fixed | None


def learn(reader: FormReader, line: bytes) -> Layout | None:
    """Returns the layout of lines like this one; None if they cannot be parsed together."""
    separator = reader.form.separator.encode()
    spans = reader.spans(line)
    if not separator or not {"step", "time"} <= set(spans) <= {*VALUES, "unit"} or len(line) > LINE_BYTES_MAX:
        return None
    unit = line[slice(*spans.pop("unit"))] if "unit" in spans else reader.form.unit.encode()
    texts, parts, places, place = line.split(separator), {}, [], 0
    for index, text in enumerate(texts):
        inside = {name: at for name, at in spans.items() if place <= at[0] < place + len(text)}
        found = _parts(index, text, place, inside)
        if found is None:
            return None
        parts.update(found)
        places.append((place, place + len(text)))
        place += len(text) + len(separator)
    if parts["step"].index != 0:
        return None
    stamp_at = FULL.search(line, 0, spans["step"][0])
    stamp = stamp_at.span() if stamp_at else None
    head = line[: stamp[0]] if stamp else parts["step"].words
    return Layout(
        separator,
        len(texts),
        parts,
        SECONDS.get(unit.lower(), 0.0),
        stamp,
        head,
        line[: spans["step"][0]],
        _fixed(line, parts, places, stamp),
    )


def _parts(
    index: int, text: bytes, place: int, inside: dict[str, tuple[int, int]]
) -> dict[str, _Part] | None:
    """Returns the values in one part, a single one or step and total; None if it has others."""
    if not inside:
        return {}
    if set(inside) == {"step", "total"}:
        (step_at, step_to), (total_at, total_to) = inside["step"], inside["total"]
        words = text[: step_at - place].rstrip(b" ")
        if text[step_to - place : total_at - place].strip() != b"/" or text[total_to - place :].strip():
            return None
        slash = text.index(b"/", step_to - place)
        return {
            "step": _Part(index, words, len(words), slash, b""),
            "total": _Part(index, b"", slash + 1, None, b""),
        }
    if len(inside) > 1:
        return None
    ((name, (at, to)),) = inside.items()
    words, end = text[: at - place].rstrip(b" "), text[to - place :].rstrip(b" ")
    return {name: _Part(index, words, len(words), -len(end) if end else None, end)}


def _fixed(
    line: bytes, parts: dict[str, _Part], places: Sequence[tuple[int, int]], stamp: tuple[int, int] | None
) -> _Fixed | None:
    """Returns how to split lines of this length at fixed offsets; None if a value is followed by words."""
    if any(part.end for part in parts.values()):
        return None
    cuts: dict[int, tuple[int, str]] = {}  # from: to, what
    for name, part in parts.items():
        begin, end = places[part.index]
        if part.words:
            cuts[begin] = (begin + part.start, "")
        stop = end if part.stop is None else begin + part.stop
        cuts[begin + part.start] = (stop, name)
        if stop < len(line):
            cuts[stop] = (stop + 1, "")
    if stamp is not None:
        end = cuts[0][0] if 0 in cuts else 0
        if end < stamp[1]:
            return None
        if stamp[0]:
            cuts[0] = (stamp[0], "")
        cuts[stamp[0]] = (stamp[1], "stamp")
        if stamp[1] < end:
            cuts[stamp[1]] = (end, "")
    shape, at = "=", 0
    texts: dict[int, bytes] = {}
    values: dict[str, int] = {}
    for begin, (end, name) in sorted(cuts.items()):
        if begin < at:
            return None
        shape += f"{begin - at}x{end - begin}s"
        if name:
            values[name] = len(texts) + len(values)
        else:
            texts[len(texts) + len(values)] = line[begin:end]
        at = end
    texts[len(texts) + len(values)] = b"\n"
    where = values.pop("stamp", None)
    return _Fixed(Row(f"{shape}{len(line) - at}x1s"), texts, values, where)


def read(layout: Layout, text: bytes, heads: Heads) -> Columns | None:
    """Returns the values of all lines of a text with the same layout; None if a line differs."""
    try:
        if layout.fixed is not None and (len(text) + 1) % layout.fixed.row.size == 0:
            found = _read_fixed(layout, layout.fixed, text, heads)
            if found is not None:
                return found
        return _read_parts(layout, text, heads)
    except ValueError:
        return None


def _read_fixed(layout: Layout, fixed: _Fixed, text: bytes, heads: Heads) -> Columns | None:
    """Parses lines of one length. raises: ValueError"""
    columns = list(zip(*fixed.row.iter_unpack(text + b"\n"), strict=True))
    for place, expected in fixed.texts.items():
        if set(columns[place]) != {expected}:
            return None
    stamps = heads.stamps_s(columns[fixed.stamp]) if fixed.stamp is not None else None
    if fixed.stamp is not None and stamps is None:
        return None
    values = {name: _numbers(name, columns[place]) for name, place in fixed.values.items()}
    return _columns(layout, values, stamps)


def _read_parts(layout: Layout, text: bytes, heads: Heads) -> Columns | None:
    """Parses lines of different lengths. raises: ValueError"""
    separator = layout.separator
    count = text.count(b"\n") + 1
    whole = b"\n" + text.replace(b"\n", separator + b"\n")
    texts = whole.split(separator)
    if len(texts) != layout.count * count:
        return None
    stamps = None
    if layout.stamp is not None:
        start, stop = layout.stamp
        stamps = heads.stamps_s([first[start + 1 : stop + 1] for first in texts[:: layout.count]])
        if stamps is None:
            return None
    values = {}
    for name, part in layout.parts.items():
        column = texts[part.index :: layout.count]
        if part.words and not _begin_alike(layout, part, whole, count):
            return None
        if part.end and not all(one.rstrip(b" ").endswith(part.end) for one in column):
            return None
        if part.end:
            column = [one.rstrip(b" ") for one in column]
        moved = int(part.index == 0)  # a line end stands before the first part
        until = part.stop + moved if part.stop is not None and part.stop > 0 else part.stop
        values[name] = _numbers(name, list(map(itemgetter(slice(part.start + moved, until)), column)))
    return _columns(layout, values, stamps)


def _numbers(name: str, texts: Sequence[bytes]) -> list[int] | list[float]:
    """Converts the texts of one kind of value to numbers. raises: ValueError"""
    if name in STEADY and len(set(texts)) == 1:
        return [float(texts[0])] * len(texts) if name == "batch" else [int(texts[0])] * len(texts)
    return list(map(int, texts)) if name in WHOLE else list(map(float, texts))


def _begin_alike(layout: Layout, part: _Part, whole: bytes, count: int) -> bool:
    """Returns whether the words before the value are equal in all lines."""
    if part.index:
        return whole.count(layout.separator + part.words) == count
    if layout.stamp is None:
        return whole.count(b"\n" + part.words) == count
    behind = part.words[layout.stamp[1] :]
    return whole.count(b"\n" + layout.head) == count and whole.count(behind) == count


def _columns(
    layout: Layout, values: dict[str, list[int] | list[float]], stamps: list[float] | None
) -> Columns | None:
    numbers, unit_s = values["step"], layout.unit_s
    if not unit_s or max(numbers) > NUMBER_MAX or min(numbers) < 0:
        return None
    if "total" in values and max(numbers) > min(values["total"]):
        return None
    data = [value * unit_s for value in values["data"]] if "data" in values else None
    return Columns(
        numbers,  # type: ignore[arg-type]
        [value * unit_s for value in values["time"]],
        values.get("total"),  # type: ignore[arg-type]
        values.get("loss"),  # type: ignore[arg-type]
        values.get("batch"),  # type: ignore[arg-type]
        values.get("rate"),  # type: ignore[arg-type]
        values.get("sequence"),  # type: ignore[arg-type]
        data,
        stamps,
    )
