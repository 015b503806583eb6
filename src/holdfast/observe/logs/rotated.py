"""Orders the rotated parts of a log, because a job that continues in a later part survived the errors in
an earlier one.
"""

from collections import defaultdict
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.model.matches import Source
from holdfast.parsers.log_lines.rotations import streams

REACHED = ("last_step_offset", "last_steps_offset", "last_three_steps_offset", "counts_on_offset")


def as_streams(sources: Sequence[Source]) -> tuple[Source, ...]:
    """Returns the logs, each with the progress of the training after its errors; for a rotated part, that includes
    all later parts.
    """
    places: dict[str, list[int]] = defaultdict(list)
    for at, source in enumerate(sources):
        places[source.name].append(at)
    made = list(sources)
    for names in streams(places):
        parts = [places[name][0] for name in names if len(places[name]) == 1]
        for older, newer in reversed(list(zip(parts, parts[1:], strict=False))):
            made[older] = _going_on(made[older], made[newer])
    return tuple(made)


def _going_on(part: Source, later: Source) -> Source:
    reached = {
        name: part.size_bytes + offset for name in REACHED if (offset := getattr(later, name)) is not None
    }
    return replace(part, **reached)
