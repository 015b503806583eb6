"""Finds the smallest subset of a set that makes a run fail, by delta debugging. Pure.

source: A. Zeller, R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE 28(2), 2002

The search is computed from all results each time, so that it can resume from a record of runs.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from holdfast.core.bisect.condition import Judgement

Part: TypeAlias = tuple[str, ...]
Answer: TypeAlias = Callable[[Sequence[str]], Judgement]


class Needed(Struct, frozen=True):
    """The next subset that must be run to find the failing one."""

    part: Part


class Isolated(Struct, frozen=True):
    """The result: a bad subset of which no tested smaller part is bad.

    `unsure`: subsets that could not be judged.
    """

    part: Part
    unsure: tuple[Part, ...] = ()


class Refused(Struct, frozen=True):
    """A search that cannot begin, because the whole set is not bad or the empty one not good.

    `end`: which of the two.
    """

    end: str
    judgement: Judgement


class _Missing(Exception):
    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self.part = part


def search(
    items: Sequence[str], answers: Mapping[Part, Judgement], *, least: int = 1, has_empty: bool = True
) -> Needed | Isolated | Refused:
    """Returns the next subset to run, the smallest bad subset, or why there is none.

    `items`: the whole set. `answers`: results so far. `least`: the smallest number of items that can run.
    `has_empty`: a run without any item must be good.
    """
    order = {item: place for place, item in enumerate(items)}
    unsure: list[Part] = []

    def answer(some: Sequence[str]) -> Judgement:
        part = tuple(sorted(some, key=order.__getitem__))
        if part not in answers:
            raise _Missing(part)
        if answers[part] == "unknown" and part not in unsure:
            unsure.append(part)
        return answers[part]

    try:
        if (whole := answer(items)) != "bad":
            return Refused("bad", whole)
        if has_empty and (none := answer(())) != "good":
            return Refused("good", none)
        found = _smallest(list(items), answer, least)
        found = _alone(found, items, answers, answer, least)
    except _Missing as missing:
        return Needed(missing.part)
    return Isolated(tuple(found), tuple(unsure))


def _smallest(bad: list[str], answer: Answer, least: int) -> list[str]:
    """Reduces a bad set by testing halves, then quarters and their complements, until no tested part of it is
    bad.
    """
    pieces = 2
    while len(bad) > least and len(bad) > 1:
        size = -(-len(bad) // pieces)
        parts = [bad[at : at + size] for at in range(0, len(bad), size)]
        smaller = next((part for part in parts if len(part) >= least and answer(part) == "bad"), None)
        if smaller is not None:
            bad, pieces = smaller, 2
            continue
        rest = None
        if pieces > 2:
            rests = ([item for item in bad if item not in part] for part in parts)
            rest = next((one for one in rests if len(one) >= least and answer(one) == "bad"), None)
        if rest is not None:
            bad, pieces = rest, max(pieces - 1, 2)
        elif size > 1:
            pieces = min(len(bad), pieces * 2)
        else:
            break
    return bad


def _alone(
    bad: list[str], items: Sequence[str], answers: Mapping[Part, Judgement], answer: Answer, least: int
) -> list[str]:
    """Finds the one item that is bad in a run that needs several: combines each with others, if possible from
    good runs.
    """
    if least < 2 or len(bad) > least:
        return bad
    proven = {item for part, said in answers.items() if said == "good" for item in part}
    fill = sorted((item for item in items if item not in bad), key=lambda item: item not in proven)
    if len(fill) < least - 1:
        return bad
    alone = [item for item in bad if answer([item, *fill[: least - 1]]) == "bad"]
    return alone if len(alone) == 1 else bad
