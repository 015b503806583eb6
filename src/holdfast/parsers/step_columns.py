"""Reads many lines of one form at once, where they are made of parts between separators and look alike. Pure.

Where each value stands is learned from one line, read in full. Others are cut at the separators all together; every value
is then what stands in its part behind the same words. Lines whose words, or number of parts, differ are not read here:
the answer is None, and they are read one by one.
"""

from collections.abc import Sequence
from operator import itemgetter

from msgspec import Struct

from holdfast.parsers.step_heads import FULL, Heads
from holdfast.parsers.step_reading import FormReader
from holdfast.parsers.step_values import SECONDS

WHOLE = ("step", "total", "sequence")
VALUES = ("step", "total", "time", "loss", "batch", "rate", "sequence", "data")
NUMBER_MAX = 10**15


class Columns(Struct, gc=False):
    """The values of many lines, one list for each. None: these lines do not have it. Times in seconds."""

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
    """Where a value stands: in part `index`, between `start` characters and the last `stop` (0: to the end)."""

    index: int
    words: bytes
    start: int
    stop: int | None
    end: bytes


class Layout(Struct, frozen=True):
    """How the lines look. `stamp`: where in the first part a time stands."""

    separator: bytes
    count: int  # of parts in a line
    parts: dict[str, _Part]
    unit_s: float
    stamp: tuple[int, int] | None
    head: bytes  # before the stamp, or before the step


def learn(reader: FormReader, line: bytes) -> Layout | None:
    """The layout of lines like this one; None where they cannot be read together."""
    separator = reader.form.separator.encode()
    spans = reader.spans(line)
    if not separator or "step" not in spans or "time" not in spans or not set(spans) <= {*VALUES, "unit"}:
        return None
    unit = line[slice(*spans["unit"])] if "unit" in spans else reader.form.unit.encode()
    texts, parts, place = line.split(separator), {}, 0
    for index, text in enumerate(texts):
        inside = {
            name: at for name, at in spans.items() if place <= at[0] < place + len(text) and name != "unit"
        }
        found = _parts(index, text, place, inside)
        if found is None:
            return None
        parts.update(found)
        place += len(text) + len(separator)
    stamp = FULL.search(line, 0, spans["step"][0])
    first = parts["step"]
    if first.index != 0:
        return None
    return Layout(
        separator,
        len(texts),
        parts,
        SECONDS.get(unit.lower(), 0.0),
        stamp.span() if stamp else None,
        line[: stamp.start()] if stamp else first.words,
    )


def _parts(
    index: int, text: bytes, place: int, inside: dict[str, tuple[int, int]]
) -> dict[str, _Part] | None:
    """The values in one part: one alone, or step and total."""
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


def read(layout: Layout, lines: Sequence[bytes], heads: Heads) -> Columns | None:
    """The values of all lines; None where one of them looks different."""
    separator = layout.separator
    whole = b"\n" + (separator + b"\n").join(lines)
    texts = whole.split(separator)
    if len(texts) != layout.count * len(lines):
        return None
    stamps = _stamps(layout, texts[:: layout.count], heads)
    if layout.stamp is not None and stamps is None:
        return None
    values: dict[str, list[int] | list[float]] = {}
    for name, part in layout.parts.items():
        column = texts[part.index :: layout.count]
        if part.words and not _begin_alike(layout, part, whole, len(lines)):
            return None
        if part.end and not all(text.rstrip(b" ").endswith(part.end) for text in column):
            return None
        start = part.start + (part.index == 0)  # a line end stands before the first part
        stop = part.stop + (part.index == 0) if part.stop is not None and part.stop > 0 else part.stop
        if part.end:
            column = [text.rstrip(b" ") for text in column]
        numbers = map(itemgetter(slice(start, stop)), column)
        try:
            values[name] = list(map(int, numbers)) if name in WHOLE else list(map(float, numbers))
        except ValueError:
            return None
    return _columns(layout, values, stamps)


def _begin_alike(layout: Layout, part: _Part, whole: bytes, count: int) -> bool:
    """Whether the words before the value are the same in all lines."""
    if part.index:
        return whole.count(layout.separator + part.words) == count
    if layout.stamp is None:
        return whole.count(b"\n" + part.words) == count
    behind = part.words[layout.stamp[1] :]
    return whole.count(b"\n" + layout.head) == count and whole.count(behind) == count


def _stamps(layout: Layout, firsts: Sequence[bytes], heads: Heads) -> list[float] | None:
    if layout.stamp is None:
        return None
    start, stop = layout.stamp
    found = []
    for first in firsts:
        stamp = heads.stamp_s(first[start + 1 : stop + 1])
        if stamp is None:
            return None
        found.append(stamp[0])
    return found


def _columns(
    layout: Layout, values: dict[str, list[int] | list[float]], stamps: list[float] | None
) -> Columns | None:
    numbers = values["step"]
    if not layout.unit_s or max(numbers) > NUMBER_MAX or min(numbers) < 0:
        return None
    unit_s = layout.unit_s
    data = [value * unit_s for value in values["data"]] if "data" in values else None
    return Columns(
        values["step"],  # type: ignore[arg-type]
        [value * unit_s for value in values["time"]],
        values.get("total"),  # type: ignore[arg-type]
        values.get("loss"),  # type: ignore[arg-type]
        values.get("batch"),  # type: ignore[arg-type]
        values.get("rate"),  # type: ignore[arg-type]
        values.get("sequence"),  # type: ignore[arg-type]
        data,
        stamps,
    )
