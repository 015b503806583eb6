"""Recognises lines that count progress in any format: repeated words with a rising number or a changing fraction.
Pure.

    it=120 cost=2.931 acc=0.151
    it=140 cost=2.930 acc=0.176

or, as Keras prints it, the number on a line of its own above:

    Epoch 3/10
    100/100 - 3s - loss: 2.2310

The format need not be a known one. Such lines do not prove a training step, but they prove that the program
continues.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from holdfast.late_pattern import late
from holdfast.parsers.log_lines.line_heads import text_of

Shape = tuple[str, int]  # a line without its numbers, and their count
Row = tuple[int, tuple[str, ...]]  # the number of a line, and the numbers in it
LINES_MIN = 4
LINE_BYTES_MAX = 600
NUMBER = late(r"(?<![\w.:])[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]*\.\d)")
# Words of lines that repeat with a rising number and show no progress: retries, waits, errors.
NO_WORK = late(
    r"(?i)\b(?:retr(?:y|ies|ying)|attempts?|wait(?:ing|ed)?|timed? ?out|timeout|heartbeat|error|fail(?:ed|ure)?|warn(?:ing)?|stuck|blocked|lost|unreachable|refused)\b"
)
LETTER = late(r"[^\W\d_]")


def counting_on(lines: Sequence[bytes]) -> int | None:
    """Returns the index of the first of the last four lines that count progress; None if there are none."""
    rows: dict[Shape, list[Row]] = defaultdict(list)
    pairs: dict[tuple[Shape, Shape], list[Row]] = defaultdict(list)
    above: tuple[int, Shape, list[str]] | None = None
    for number, line in enumerate(lines):
        if not line or len(line) > LINE_BYTES_MAX:
            continue
        text = text_of(line).decode("utf-8", "replace")
        numbers = NUMBER.findall(text)
        shape = NUMBER.sub("#", text), len(numbers)
        if not numbers or not LETTER.search(shape[0]) or NO_WORK.search(text):
            above = None
            continue
        if len(numbers) > 1:
            rows[shape].append((number, tuple(numbers)))
        if above is not None:
            pairs[above[1], shape].append((above[0], (*above[2], *numbers)))
        above = (number, shape, numbers)
    begins = [begin for seen in rows.values() if (begin := _begin_of(seen)) is not None]
    begins += [
        begin for ((_, headed), _), seen in pairs.items() if (begin := _begin_below(seen, headed)) is not None
    ]
    return max(begins, default=None)


def _begin_of(seen: Sequence[Row]) -> int | None:
    """Returns where the last four lines of one shape begin in which one number rises while a fraction
    changes.

    A rising number alone, such as a line number or time stamp, measures nothing.
    """
    if len(seen) < LINES_MIN:
        return None
    columns = _columns(seen)
    rising = [at for at, column in enumerate(columns) if _rises(column)]
    measured = [at for at, column in enumerate(columns) if _is_measured(column)]
    return seen[-LINES_MIN][0] if rising and set(measured) - {rising[0]} else None


def _begin_below(seen: Sequence[Row], headed: int) -> int | None:
    """Returns where the last four pairs of lines begin of which the upper counts and the lower has a changing
    fraction.
    """
    if len(seen) < LINES_MIN:
        return None
    columns = _columns(seen)
    counts = any(_rises(column) and "." not in "".join(column) for column in columns[:headed])
    measures = any(_is_measured(column) and not _rises(column) for column in columns[headed:])
    return seen[-LINES_MIN][0] if counts and measures else None


def _columns(seen: Sequence[Row]) -> list[tuple[str, ...]]:
    return list(zip(*(numbers for _, numbers in seen[-LINES_MIN:]), strict=True))


def _is_measured(column: Sequence[str]) -> bool:
    return len(set(column)) > 1 and "." in "".join(column)


def _rises(column: Sequence[str]) -> bool:
    return all(float(one) < float(other) for one, other in pairwise(column))
