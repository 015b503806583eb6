"""Finds that lines count on, whatever their form: the same words again and again, a number that rises, a fraction that moves.

    it=120 cost=2.931 acc=0.151
    it=140 cost=2.930 acc=0.176

No form of a training's steps is asked for, so it proves no step; but who writes so goes on. Pure.
"""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from holdfast.late_pattern import late
from holdfast.parsers.line_heads import text_of

LINES_MIN = 4
LINE_BYTES_MAX = 600
NUMBER = late(r"(?<![\w.:])[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]*\.\d)")
# What repeats with a number that rises and is no work: somebody tries again, waits, or complains.
NO_WORK = late(
    r"(?i)\b(?:retr(?:y|ies|ying)|attempts?|wait(?:ing|ed)?|timed? ?out|timeout|heartbeat|error|fail(?:ed|ure)?|warn(?:ing)?|stuck|blocked|lost|unreachable|refused)\b"
)
LETTER = late(r"[^\W\d_]")


def counting_on(lines: Sequence[bytes]) -> int | None:
    """The number of the line from which on four, the last of their form, count on; None where none do."""
    rows: dict[str, list[tuple[int, tuple[str, ...]]]] = defaultdict(list)
    for number, line in enumerate(lines):
        if not line or len(line) > LINE_BYTES_MAX:
            continue
        text = text_of(line).decode("utf-8", "replace")
        shape = NUMBER.sub("#", text)
        if shape.count("#") >= 2 and LETTER.search(shape) and not NO_WORK.search(text):
            rows[shape].append((number, tuple(NUMBER.findall(text))))
    begins = [begin for seen in rows.values() if (begin := _begin_of(seen)) is not None]
    return max(begins, default=None)


def _begin_of(seen: Sequence[tuple[int, tuple[str, ...]]]) -> int | None:
    """Of lines of one shape: where the last four begin of which one number rises while a fraction changes: whoever
    numbers or stamps all lines alike measures nothing."""
    if len(seen) < LINES_MIN:
        return None
    last = [numbers for _, numbers in seen[-LINES_MIN:]]
    columns = list(zip(*last, strict=True))
    rising = [at for at, column in enumerate(columns) if _rises(column)]
    measured = [at for at, column in enumerate(columns) if len(set(column)) > 1 and "." in "".join(column)]
    return seen[-LINES_MIN][0] if rising and set(measured) - {rising[0]} else None


def _rises(column: Sequence[str]) -> bool:
    return all(float(one) < float(other) for one, other in pairwise(column))
