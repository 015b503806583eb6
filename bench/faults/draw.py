"""Draws the cases of a round from a seed. Pure: equal arguments give equal cases."""

import random
from collections.abc import Collection

from msgspec import Struct

from bench.faults.kinds import KINDS, Kind

FIRST_SHARE, LAST_SHARE = 0.35, 0.65  # of the steps: a hang detector has seen some, and some remain


class Case(Struct, frozen=True):
    """One fault to come: the kind's name, the step before which it strikes, and the rank."""

    number: int
    kind: str
    step: int
    rank: int

    def mark(self) -> str:
        """STEP:RANK:KIND, the training's argument."""
        return f"{self.step}:{self.rank}:{self.kind}"


def drawn(
    seed: int, faults: int, ranks: int, steps: int, classes: Collection[str], absent: Collection[str]
) -> list[Case]:
    """Returns the cases. Classes take turns in an order that is shuffled each time; kinds in `absent` are left out."""
    dice = random.Random(seed)
    by_class: dict[str, list[Kind]] = {}
    for kind in KINDS:
        if kind.class_ in classes and kind.name not in absent:
            by_class.setdefault(kind.class_, []).append(kind)
    cases, names, decks = list[Case](), list[str](), dict[str, list[Kind]]()
    while by_class and len(cases) < faults:
        if not names:
            names = dice.sample(sorted(by_class), len(by_class))
        name = names.pop()
        if not decks.get(name):  # each kind of a class once before one comes again
            decks[name] = dice.sample(by_class[name], len(by_class[name]))
        cases.append(_case(dice, len(cases), decks[name].pop(), ranks, steps))
    return cases


def each(
    seed: int, times: int, ranks: int, steps: int, kinds: Collection[str], absent: Collection[str]
) -> list[Case]:
    """Returns each kind that often, in the order of `KINDS`; kinds in `absent` are left out."""
    dice = random.Random(seed)
    wanted = [kind for kind in KINDS if kind.name in kinds and kind.name not in absent]
    return [_case(dice, number, kind, ranks, steps) for number, kind in enumerate(wanted * times)]


def _case(dice: random.Random, number: int, kind: Kind, ranks: int, steps: int) -> Case:
    step = dice.randrange(int(FIRST_SHARE * steps), int(LAST_SHARE * steps))
    rank = kind.rank if kind.rank is not None else dice.randrange(ranks)
    return Case(number, kind.name, step, rank)
