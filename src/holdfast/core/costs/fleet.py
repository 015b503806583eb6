"""Adds up the costs of many jobs, and converts seconds into GPU-hours and money. Pure."""

import re
from collections.abc import Iterable
from math import isfinite

from msgspec import Struct

from holdfast.core.costs.account import JobCost
from holdfast.core.costs.classes import LOST, NAMES

PRICE_MAX = 100_000.0
_PRICE = re.compile(r"([^\d\s.,+\-/]{0,4})\s*(\d{1,9}(?:\.\d{1,6})?)\s*(?:/\s*(?:GPU-?)?h)?", re.IGNORECASE)


class BadPrice(ValueError):
    """Raised for a price that cannot be parsed; the message shows the valid form."""


class Price(Struct, frozen=True):
    """The price of one GPU for one hour."""

    amount: float
    currency: str = ""

    def words(self, gpu_hours: float) -> str:
        """Returns the cost of GPU-hours as text, with the currency: "$1,234.50"."""
        return f"{self.currency}{gpu_hours * self.amount:,.2f}"


class ClassCost(Struct, frozen=True, kw_only=True):
    """The cost of one class over all jobs.

    `share`: of all GPU-hours, 0 to 1. `money`: None without a price.
    """

    name: str
    seconds: float
    gpu_hours: float
    share: float
    is_lost: bool
    money: float | None = None


class Bill(Struct, frozen=True, kw_only=True):
    """The cost of one or more jobs.

    `classes`: those with any time, in the order of core.costs.classes. `goodput`: the share of time that is
    not lost.
    """

    jobs: int
    wall_s: float
    gpu_hours: float
    classes: tuple[ClassCost, ...]
    goodput: float | None
    money: float | None = None
    currency: str = ""


def price_of(text: str) -> Price:
    """Parses a price per GPU-hour: "2.5/h", "$2.50", "18 /GPU-h". raises: BadPrice"""
    found = _PRICE.fullmatch(text.strip())
    if found is None or not isfinite(float(found[2])) or not 0.0 < float(found[2]) <= PRICE_MAX:
        raise BadPrice(
            f"{text!r} is not a price of a GPU-hour: write it like 2.5/h or $2.50/h, up to {PRICE_MAX:,.0f}"
        )
    return Price(float(found[2]), found[1])


def bill(costs: Iterable[JobCost], price: Price | None = None) -> Bill:
    """Returns the total cost of jobs. `price`: None for GPU-hours only."""
    seconds, hours = dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, 0.0)
    jobs, wall_s = 0, 0.0
    for cost in costs:
        jobs, wall_s = jobs + 1, wall_s + cost.wall_s
        for name, one_s in cost.by_class.items():
            seconds[name] += one_s
            hours[name] += one_s * cost.gpus / 3600.0
    whole = sum(hours.values())
    lost = sum(hours[name] for name in LOST)
    return Bill(
        jobs=jobs,
        wall_s=wall_s,
        gpu_hours=whole,
        classes=tuple(
            ClassCost(
                name=name,
                seconds=seconds[name],
                gpu_hours=hours[name],
                share=hours[name] / whole if whole else 0.0,
                is_lost=name in LOST,
                money=hours[name] * price.amount if price is not None else None,
            )
            for name in NAMES
            if seconds[name] > 0.0
        ),
        goodput=1.0 - lost / whole if whole else None,
        money=whole * price.amount if price is not None else None,
        currency=price.currency if price is not None else "",
    )
