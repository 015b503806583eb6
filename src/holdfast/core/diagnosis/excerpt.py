"""Recognises excerpts: a few lines copied from a log, whose end says nothing about the end of the job.

Pure.
"""

from collections.abc import Sequence

from holdfast.late_pattern import late
from holdfast.model.matches import Source

EXCERPT_BYTES = 8 << 10
EXCERPT_LINES = 40  # `Source.tail` holds no more
PASTED_LINES = 5  # one warning with what belongs to it; a short healthy log of a run has more

LOOSE_LINES = 12
TIME = late(r"\d\d:\d\d:\d\d|^\[ *\d+\.\d{3,}\]")


def is_pasted(sources: Sequence[Source]) -> bool:
    """Returns whether all logs together have so few lines that a user has pasted them, and even a warning among them
    is what the user asks about.
    """
    return is_excerpt(sources) and sum(len(source.tail) for source in sources) <= PASTED_LINES


def is_loose_text(sources: Sequence[Source]) -> bool:
    """Returns whether all logs together are a few lines without timestamps and steps, as people paste or
    type them.
    """
    lines = [line for source in sources for line in source.tail]
    has_steps = any(source.last_step_offset is not None for source in sources)
    return is_excerpt(sources) and (
        len(lines) <= PASTED_LINES
        or len(lines) <= LOOSE_LINES
        and not has_steps
        and not any(map(TIME.search, lines))
    )


def is_excerpt(sources: Sequence[Source]) -> bool:
    """Returns whether all logs together are so short that they are an excerpt.

    A log that names its last planned step is complete, however short it is.
    """
    size_bytes = sum(source.size_bytes for source in sources)
    lines = sum(len(source.tail) for source in sources)
    is_whole = any(source.is_finished for source in sources)
    return 0 < size_bytes <= EXCERPT_BYTES and lines < EXCERPT_LINES and not is_whole
