"""Selects the most informative lines of a job that ended for an unknown reason. Pure.

These are rare lines near the end that mention a problem. A line that most ranks print says little; one that a single
rank prints shortly before its log ends says much.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct

from holdfast.core.diagnosis.knowledge_base import KnowledgeBase
from holdfast.late_pattern import late
from holdfast.model.matches import Source

LINES_MAX = 5
CHANGING = late(r"0x[0-9a-fA-F]+|\d+")


class Telling(Struct, frozen=True):
    """A line of a log that may explain the end of a job. `source`: index of the log."""

    source: int
    text: str


def speaks_of_trouble(line: str, known: KnowledgeBase) -> bool:
    """Returns whether a line mentions a problem, by the words of a pasted text.

    More lines count than in the search through whole logs.
    """
    is_worry = known.says("trouble", line) or known.says("worry", line)
    return is_worry and not known.says("only-sounds-bad", line) and not denies(line, known)


def denies(line: str, known: KnowledgeBase) -> bool:
    """Returns whether a line names a problem and says that it did not occur."""
    return known.says("denied", line)


def telling_lines(sources: Sequence[Source], known: KnowledgeBase) -> tuple[Telling, ...]:
    """Returns at most five informative lines.

    Lines that mention a problem and that few logs contain come first; if there are none, the last line is
    returned.
    """
    times = Counter(shape for source in sources for shape in {_shape(line) for line in source.tail})
    found: list[tuple[tuple[int, int, int], Telling]] = []
    for number, source in enumerate(sources):
        for from_end, line in enumerate(reversed(source.tail)):
            if known.says("trouble", line):
                rank = (known.says("only-sounds-bad", line), times[_shape(line)], from_end)
                found.append(((int(rank[0]), rank[1], rank[2]), Telling(number, line.strip())))
    if not found:
        last = [(number, source.tail[-1]) for number, source in enumerate(sources) if source.tail]
        return tuple(Telling(number, line.strip()) for number, line in last[:1])
    found.sort(key=lambda one: one[0])
    return tuple(one for _, one in found[:LINES_MAX])


def ends_in_failure(sources: Sequence[Source], harmless: Collection[str], known: KnowledgeBase) -> bool:
    """Returns whether the last line of a log says that the program failed.

    `harmless`: texts of lines known to be harmless. A log of a kernel or of services goes on after such a line, so it
    does not count.
    """
    return any(
        source.tail
        and not is_kernel_log(source, known)
        and not known.says("service-line", source.tail[-1])
        and known.says("program-failed", source.tail[-1])
        and not known.says("only-sounds-bad", source.tail[-1])
        and not denies(source.tail[-1], known)
        and not any(text in source.tail[-1] for text in harmless)
        for source in sources
    )


def is_kernel_log(source: Source, known: KnowledgeBase) -> bool:
    """Returns whether a log is that of a kernel, by its name or by the form of its last lines."""
    return known.says("kernel-log-name", source.name) or any(
        known.says("kernel-line", line) for line in source.tail
    )


def doubtful_lines(
    sources: Sequence[Source], harmless: Collection[str], known: KnowledgeBase
) -> tuple[Telling, ...]:
    """Returns lines that mention a problem although nothing is known to be wrong.

    `harmless`: texts of lines known to be harmless.
    """
    return tuple(
        one
        for one in telling_lines(sources, known)
        if known.says("trouble", one.text)
        and not known.says("only-sounds-bad", one.text)
        and not any(text in one.text or one.text in text for text in harmless)
    )


def _shape(line: str) -> str:
    return CHANGING.sub("#", line).strip()
