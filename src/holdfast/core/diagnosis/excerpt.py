"""Recognises texts that are a few lines cut out of a log: their end says nothing about the end of the job. Pure."""

from collections.abc import Sequence

from holdfast.late_pattern import late
from holdfast.model.matches import Source

EXCERPT_BYTES = 8 << 10
EXCERPT_LINES = 40  # `Source.tail` holds no more
PASTED_LINES = 5  # one warning with what belongs to it; a short healthy log of a run has more

LOOSE_LINES = 12
TIME = late(r"\d\d:\d\d:\d\d|^\[ *\d+\.\d{3,}\]")


def is_pasted(sources: Sequence[Source]) -> bool:
    """True if all logs together have so few lines that a warning among them is the question."""
    return is_excerpt(sources) and sum(len(source.tail) for source in sources) <= PASTED_LINES


def is_loose_text(sources: Sequence[Source]) -> bool:
    """True if all logs together are a few lines as people paste or type them: without times and steps."""
    lines = [line for source in sources for line in source.tail]
    has_steps = any(source.last_step_offset is not None for source in sources)
    return is_excerpt(sources) and (
        len(lines) <= PASTED_LINES
        or len(lines) <= LOOSE_LINES
        and not has_steps
        and not any(map(TIME.search, lines))
    )


def is_excerpt(sources: Sequence[Source]) -> bool:
    """True if all logs together are so short that they are excerpts.

    A log that names its last step is whole, however short it is.
    """
    size_bytes = sum(source.size_bytes for source in sources)
    lines = sum(len(source.tail) for source in sources)
    is_whole = any(source.is_finished for source in sources)
    return 0 < size_bytes <= EXCERPT_BYTES and lines < EXCERPT_LINES and not is_whole
