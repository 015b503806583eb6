"""Defines the finding of rules that compare lines of several ranks or nodes, and shared helpers. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from holdfast.model.matches import Match, Source
from holdfast.model.signatures import Role, Severity, Words
from holdfast.model.verdicts import Culprit

Key = TypeVar("Key", int, str)


class Comparison(Struct, frozen=True, kw_only=True):
    """The result of a rule that compares several lines.

    `first`: the match whose signature it replaces. `role`, `severity`, `weight`, `action`: as of a signature.
    `culprits`: the ranks or nodes that differ; empty if unknown. `seen`: the compared lines, including `first`.
    `explained`: lines that only report this fault and are no causes. `of_end`: the result is about the last lines of
    the log, so no step follows.
    """

    category: str
    first: Match
    role: Role = "symptom"
    severity: Severity = "fatal"
    weight: float
    action: str = ""
    culprits: tuple[Culprit, ...] = ()
    title: Words
    explanation: Words
    advice: Words
    seen: tuple[Match, ...] = ()
    explained: tuple[Match, ...] = ()
    of_end: bool = False


def minority(values: Mapping[Key, Hashable]) -> set[Key]:
    """Returns the ranks or hosts whose value differs from the majority's; empty if there is no majority."""
    ((usual, count), *_) = Counter(values.values()).most_common()
    return {key for key, value in values.items() if value != usual} if count * 2 > len(values) else set()


def host_of(one: Match, sources: Sequence[Source]) -> str | None:
    of_file = sources[one.source].writer
    worker = one.writer.worker if one.writer.worker is not None else of_file.worker
    return one.writer.host or of_file.host or (f"worker-{worker}" if worker is not None else None)


def who_of(one: Match, sources: Sequence[Source]) -> Culprit:
    """Returns the host or worker that wrote a line; if both are unknown, the rank.

    Hosts and workers come first, because each has a clock of its own.
    """
    of_file = sources[one.source].writer
    host = one.writer.host or of_file.host
    worker = one.writer.worker if one.writer.worker is not None else of_file.worker
    if host is not None or worker is not None:
        return Culprit(worker=worker, host=host)
    rank = one.writer.rank if one.writer.rank is not None else of_file.rank
    return Culprit(rank=rank)


def place(one: Match) -> tuple[float, int, int]:
    """Returns a sort key by time; lines without a time come last, by log and line."""
    return (one.writer.stamp_s if one.writer.stamp_s is not None else float("inf"), one.source, one.offset)


def first_of(matches: Iterable[Match]) -> Match:
    """Returns the earliest match.

    Within one log it is the first line, because the timestamps of several ranks may be out of order.
    """
    every = list(matches)
    if len({one.source for one in every}) == 1:
        return min(every, key=lambda one: one.offset)
    return min(every, key=place)
