"""Extracts from a block what signatures do not cover: tracebacks, following lines, the last step, the last
lines.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, islice

from msgspec import Struct

from holdfast.observe.logs.blocks import Block
from holdfast.parsers.log_lines.counting_lines import counting_on
from holdfast.parsers.steps.progress import PREFILTER, Match, epoch_on
from holdfast.parsers.steps.progress import match as step_on
from holdfast.parsers.tracebacks.read import Traceback, tracebacks

RECORD_LINES = 12
RECORD_LINE_MAX = 400
TAIL_LINES = 40
TAIL_LINE_MAX = 400
TAIL_CUTS = 3 * TAIL_LINES  # line ends looked for: many a line is empty
TAIL_BYTES = 64 << 10
STEP_LOOK_BYTES = 256 << 10
STEP_PIECE_BYTES = 1 << 10  # looked at first; then more and more
STEP_PIECE_BYTES_MAX = 16 << 10
STEP_LINE_BYTES = 4096
STEP_LINES_MAX = 500  # that look like one and are none
# One of these stands in whatever steps.PREFILTER finds; looking for them one by one is much quicker than the pattern.
STEP_WORDS = (
    b"step",
    b"Step",
    b"STEP",
    b"iter",
    b"Iter",
    b"ITER",
    b"epoch",
    b"Epoch",
    b"it/s",
    b"s/it",
    b"samples_count",
)
STEP_WORD_MAX = max(map(len, STEP_WORDS))
STEPS_FEW = 8  # so many lines of progress can be written by others before they notice that one failed
STEPS_FEWEST = 3  # so many are surely behind a process that is dead
COUNTING_BYTES = 16 << 10
COUNTING_LINES = 60
STEP_TRUST = 2  # a form of less trust counts only where there is no better one
TRACEBACK_BYTES = 128 << 10
TRACEBACK_LINES = 1500
IGNORED = b"Exception ignored in"


class Exceptional(Struct, frozen=True):
    """An exception found in a traceback of a log: the line that names it, its type and its message.

    `offset`: of that line in the log. `frame`: the last frame in the user's own code, or empty. `outermost`:
    the first frame; `innermost`: the frame that raised.
    """

    offset: int
    line: bytes
    type: str
    message: str
    frame: str
    outermost: str = ""
    innermost: str = ""


def exceptions(block: Block, start: int) -> tuple[list[Exceptional], int]:
    """Returns the exceptions whose tracebacks begin at `start` or soon after, and the offset at which the
    last one ends.
    """
    stop = min(start + TRACEBACK_BYTES, block.end)
    lines = bytes(block.text[start:stop]).split(b"\n")[:TRACEBACK_LINES]
    begins = [start, *accumulate((len(line) + 1 for line in lines), initial=start)][1:]
    found = []
    end = start + 1
    for traceback in tracebacks(lines):
        if _is_ignored(traceback, lines, block, start):
            end = max(end, begins[traceback.last_line + 1])
            continue
        number = _exception_line(traceback, lines)
        found.append(
            Exceptional(
                block.offset_of(begins[number]),
                lines[number],
                traceback.type,
                traceback.message,
                traceback.user_frame or traceback.frame,
                traceback.outermost,
                traceback.frame,
            )
        )
        end = max(end, begins[traceback.last_line + 1])
    return found, end


def _is_ignored(traceback: Traceback, lines: list[bytes], block: Block, start: int) -> bool:
    """Returns True if Python printed that it ignores this exception, as for one raised in a destructor."""
    if traceback.first_line > 0:
        return IGNORED in lines[traceback.first_line - 1]
    return (
        IGNORED
        in bytes(block.text[max(0, start - STEP_LINE_BYTES) : start]).rstrip(b"\n").rpartition(b"\n")[2]
    )


def following(block: Block, stop: int) -> tuple[str, ...]:
    """Returns the lines after the one that ends at `stop`, without empty ones."""
    end = min(stop + RECORD_LINES * RECORD_LINE_MAX, block.end)
    lines = bytes(block.text[stop + 1 : end]).split(b"\n")
    return _texts(lines, RECORD_LINE_MAX)[:RECORD_LINES]


def tail(block: Block) -> tuple[str, ...]:
    """Returns the last lines of a block, without empty ones."""
    start = max(0, block.end - TAIL_BYTES)
    lines = bytes(block.text[start : block.end]).rsplit(b"\n", TAIL_CUTS)
    return _texts(lines if len(lines) <= TAIL_CUTS else lines[1:], TAIL_LINE_MAX)[-TAIL_LINES:]


def counts_on(block: Block) -> int | None:
    """Returns the offset of the last lines that count steps in an unknown format; None if there are none."""
    start = max(0, block.size - COUNTING_BYTES)
    lines = bytes(block.text[start : block.size]).split(b"\n")
    begins = accumulate((len(line) + 1 for line in lines), initial=start)
    places = list(zip(lines, begins, strict=False))[1 if start else 0 :][-COUNTING_LINES:]
    last = counting_on([line for line, _ in places])
    return None if last is None else block.offset_of(places[last][1])


class Progress(Struct, frozen=True):
    """The progress of a training in its log.

    `offset`: where the last line with a step begins. `is_finished`: that step is the last one planned.
    `few_from`, `fewest_from`: where the last few, and the last three, lines with steps begin; None if there
    are fewer.
    """

    offset: int | None
    is_finished: bool
    few_from: int | None = None
    fewest_from: int | None = None


def progress(block: Block, end: int) -> Progress:
    """Returns the progress of a training, from the last lines with steps before `end`.

    A step must follow an earlier one: a progress bar that is drawn again when its process ends does not
    count.
    """
    latest: dict[bool, tuple[int, Match]] = {}  # by whether its form is trusted
    last: dict[bool, int] = {}  # the last line of progress of such a form
    steps: Counter[bool] = Counter()
    fewest: dict[bool, int] = {}
    is_finished = False
    for start, line in islice(_step_like_lines(block, end), STEP_LINES_MAX):
        step = step_on(line) or epoch_on(line)
        if step is None:
            continue
        is_trusted = step.form.trust >= STEP_TRUST
        known = latest.get(is_trusted)
        if known is None and is_trusted:
            is_finished = step.number == step.total and step.number > 1
        elif known is not None and _goes_on(step, known[1]):
            last.setdefault(is_trusted, known[0])
            steps[is_trusted] += 1
            if steps[is_trusted] == STEPS_FEWEST:
                fewest[is_trusted] = block.offset_of(known[0])
            if is_trusted and steps[True] == STEPS_FEW:
                return Progress(
                    block.offset_of(last[True]), is_finished, block.offset_of(start), fewest[True]
                )
        latest[is_trusted] = (start, step)
    best = True in latest
    offset = last.get(best)
    return Progress(
        None if offset is None else block.offset_of(offset), is_finished, fewest_from=fewest.get(best)
    )


def _goes_on(earlier: Match, later: Match) -> bool:
    return (earlier.form, earlier.total) == (later.form, later.total) and earlier.number < later.number


def _step_like_lines(block: Block, end: int) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that may contain a step, with their offsets, from the last one backwards."""
    text = block.text
    floor = max(0, end - STEP_LOOK_BYTES)
    start = end
    size = STEP_PIECE_BYTES
    while end > floor:
        piece = max(floor, end - size)
        size = min(2 * size, STEP_PIECE_BYTES_MAX)
        if any(text.find(word, piece, end) >= 0 for word in STEP_WORDS):
            for match in reversed(list(PREFILTER.finditer(text, piece, end))):
                if match.start() < start:  # not in the line that was given last
                    start = text.rfind(b"\n", 0, match.start()) + 1
                    limit = min(start + STEP_LINE_BYTES, block.end)
                    stop = text.find(b"\n", start, limit)
                    yield start, bytes(text[start : limit if stop < 0 else stop])
        end = piece + (STEP_WORD_MAX if piece > floor else 0)  # a word may stand across two pieces


def _exception_line(traceback: Traceback, lines: list[bytes]) -> int:
    """Returns the number of the line that names the exception's type, because its message may have several
    lines.
    """
    name = traceback.type.encode()
    if 0 < traceback.error_line < len(lines) and name in lines[traceback.error_line]:
        return traceback.error_line
    for number in range(traceback.last_line, traceback.first_line, -1):
        if name in lines[number]:
            return number
    return traceback.last_line


def _texts(lines: list[bytes], length_max: int) -> tuple[str, ...]:
    return tuple(
        line[: 4 * length_max].decode("utf-8", "replace")[:length_max] for line in lines if line.strip()
    )
