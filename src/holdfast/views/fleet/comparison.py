"""Formats a comparison of policies: a table of ETTR (effective training time ratio), interruptions and lost
time.

A chart shows the shares of time by cause. Prints nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.core.costs.classes import NAMES
from holdfast.settings.times import length
from holdfast.views.fleet.costs import gpu_hours
from holdfast.views.fleet.picture import COLOURS, Bar, BarsPicture
from holdfast.views.lines import Line

PERSON = "person"
ORDER = (*NAMES, PERSON)
SHOWN = ("checkpointing", "repeated-steps", "detection", "starting", "waiting", PERSON)
OTHERS = "others"


class ResultLike(Protocol):
    """Interface of the result of one policy, as far as a table row needs it."""

    @property
    def name(self) -> str: ...
    @property
    def who(self) -> str: ...
    @property
    def ettr(self) -> float: ...
    @property
    def ettr_low(self) -> float | None: ...
    @property
    def ettr_high(self) -> float | None: ...
    @property
    def interruptions(self) -> float: ...
    @property
    def jobs(self) -> float: ...
    @property
    def recovery_s(self) -> float | None: ...
    @property
    def nodes_out_max(self) -> int: ...
    @property
    def interval_s(self) -> float: ...
    @property
    def by_class(self) -> Mapping[str, float]: ...
    @property
    def gpu_hours(self) -> Mapping[str, float]: ...


def report(title: str, said: Sequence[str], results: Sequence[ResultLike]) -> list[Line]:
    wide = max((len(one.name) for one in results), default=6) + 2
    head = f"{'':<{wide}}{'ETTR':>7}{'95 %':>16}{'interrupted':>12}{'recovery':>12}{'jobs':>7}{'nodes out':>10}{'interval':>10}"
    lines = [Line(title, "strong"), *(Line(text, "quiet") for text in said), Line(), Line(head, "quiet")]
    lines += [Line(_row(one, wide)) for one in results]
    lost = "".join(f"{name:>16}" for name in (*SHOWN, OTHERS))
    lines += [Line(), Line("Lost GPU-hours", "strong"), Line(f"{'':<{wide}}{lost}", "quiet")]
    lines += [
        Line(f"{one.name:<{wide}}" + "".join(f"{gpu_hours(hours):>16}" for hours in _lost(one)))
        for one in results
    ]
    return [*lines, Line(), *(Line(f"{one.name}: {one.who}", "quiet") for one in results if one.who)]


def picture(title: str, said: Sequence[str], results: Sequence[ResultLike]) -> BarsPicture:
    return BarsPicture(
        title=title,
        said=tuple(said),
        bars=tuple(
            Bar(
                label=one.name,
                parts=_parts(one.by_class),
                note=f"ETTR {one.ettr:.3f}",
            )
            for one in results
        ),
    )


def _parts(by_class: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Returns the shares of time by cause: those with a colour of their own, and the sum of the others."""
    own = [(name, by_class[name]) for name in ORDER if name in COLOURS and by_class.get(name)]
    return (*own, (OTHERS, max(0.0, 1.0 - sum(share for _, share in own))))


def _row(one: ResultLike, wide: int) -> str:
    between = f"{one.ettr_low:.3f}-{one.ettr_high:.3f}" if one.ettr_low is not None else "one run"
    recovery = length(round(one.recovery_s)) if one.recovery_s is not None else "-"
    return (
        f"{one.name:<{wide}}{one.ettr:>7.3f}{between:>16}{one.interruptions:>12.0f}{recovery:>12}{one.jobs:>7.0f}"
        f"{one.nodes_out_max:>10}{length(round(one.interval_s)):>10}"
    )


def _lost(one: ResultLike) -> list[float]:
    shown = [one.gpu_hours.get(name, 0.0) for name in SHOWN]
    rest = sum(hours for name, hours in one.gpu_hours.items() if name not in (*SHOWN, "computing"))
    return [*shown, rest]
