"""Reads step numbers from the output of one attempt, and measures how much of the output only repeats earlier
lines.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from functools import cache

from holdfast.observe.logs.follow import Chunk
from holdfast.observe.search.line_sieve import LineSieve
from holdfast.parsers.steps.progress import PREFILTER, StepReader

RECENT_LINES = 32
REPEATS_LINES_MAX = 20  # in a tenth of a second


class AttemptOutput:
    """The output of all ranks of one attempt. A source is the name of an output file."""

    def __init__(self) -> None:
        self._counters: dict[str, StepReader] = {}
        self._recent: deque[bytes] = deque(maxlen=RECENT_LINES)
        self._repeated: Counter[str] = Counter()  # bytes, by source

    def new_bytes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Returns the new bytes of each source, without lines that repeat an earlier one.

        `sizes`: in bytes.
        """
        return {source: size - self._repeated[source] for source, size in sizes.items()}

    def note_repeats(self, chunk: Chunk) -> None:
        """Counts the lines in a piece of output that repeat earlier lines.

        A monitor that prints the same warning every second is no sign of progress; other new output is.
        """
        if len(chunk.lines) > REPEATS_LINES_MAX:
            return
        for line in chunk.lines:
            if line in self._recent:
                self._repeated[chunk.source] += len(line) + 1
            else:
                self._recent.append(line)

    def steps(self, chunk: Chunk) -> Iterator[int]:
        """Yields the step numbers that the lines of a piece of output report, in order."""
        counter = self._counters.get(chunk.source)
        if counter is None:
            counter = self._counters[chunk.source] = StepReader()
        for line in _sieve().kept(chunk.lines):
            step = counter.feed(line)
            if step is not None:
                yield step


@cache
def _sieve() -> LineSieve:
    """Returns a filter for lines that may name a step."""
    return LineSieve(PREFILTER.pattern.split(b"|"))
