"""What is known of a text that is only a few lines of a log: where it ends tells nothing of the job's end. Pure."""

from collections.abc import Sequence

from holdfast.model.sightings import Source

EXCERPT_BYTES = 8 << 10
EXCERPT_LINES = 40  # `Source.tail` holds no more
PASTED_LINES = 5  # one warning with what belongs to it; a short healthy log of a run has more


def is_pasted(sources: Sequence[Source]) -> bool:
    """Whether all logs together are so few lines that a warning among them is what somebody asks about."""
    return is_excerpt(sources) and sum(len(source.tail) for source in sources) <= PASTED_LINES


def is_excerpt(sources: Sequence[Source]) -> bool:
    """Whether all logs together are so short that somebody cut them out of longer ones.

    A log that names the last of all its steps is whole, however short it is.
    """
    size_bytes = sum(source.size_bytes for source in sources)
    lines = sum(len(source.tail) for source in sources)
    is_whole = any(source.is_finished for source in sources)
    return 0 < size_bytes <= EXCERPT_BYTES and lines < EXCERPT_LINES and not is_whole
