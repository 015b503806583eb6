"""Parses the condition that `holdfast bisect` tests, and judges by it what a run has logged so far. Pure.

    exit!=0    exit==1    nan    timeout    loss>2.3@50    loss>2.3@40-60    step_s>0.2    steps<100    nan or exit!=0

A condition describes a bad run. Terms are joined by `or`. NAME is exit (exit code; -N: ended by signal N),
loss, grad_norm, lr, step_s (seconds per step), steps (the last step) or seconds (of the whole run). `@STEP`
selects the value at one step, `@FIRST-LAST` the median of a range. Without it the last value is compared; for
step_s, the median without the first fifth of the steps.
"""

import operator
from collections.abc import Callable, Mapping
from math import isfinite
from statistics import median
from typing import Literal

from msgspec import Struct

from holdfast.late_pattern import late

Judgement = Literal["good", "bad", "unknown"]
TERM = late(
    r"(?P<name>exit|loss|grad_norm|lr|step_s|steps|seconds)\s*(?P<compare>[<>]=?|==|!=)\s*(?P<limit>[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)"
    r"(?:\s*@\s*(?P<first>\d{1,15})(?:-(?P<last>\d{1,15}))?)?"
)
BY_STEP = ("loss", "grad_norm", "lr", "step_s")
COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
WARM_UP_SHARE = 0.2


class BadCondition(ValueError):
    """Raised when a condition cannot be parsed; the message names the invalid part and the reason."""


class Term(Struct, frozen=True, kw_only=True):
    """One comparison of a condition.

    `name`: nan and timeout have no limit. `first`, `last`: range of steps; None: none.
    """

    name: str
    compare: str = ">"
    limit: float = 0.0
    first: int | None = None
    last: int | None = None


class Condition(Struct, frozen=True):
    """A parsed condition, with its text as the user wrote it."""

    text: str
    terms: tuple[Term, ...]


class Shown(Struct, kw_only=True):
    """What a test run has logged so far. `values`: by name and step. `exit`: exit code; None while it runs.

    `timed_out`: the run was stopped at its time limit.
    """

    values: dict[str, dict[int, float]] = {}
    last_step: int | None = None
    seconds: float = 0.0
    exit: int | None = None
    is_over: bool = False
    timed_out: bool = False


class Judged(Struct, frozen=True):
    """The judgement of one test run by the bisection's condition. `why`: the deciding value, or what is missing."""

    judgement: Judgement
    why: str


def parsed(text: str) -> Condition:
    """Parses a condition from its text. raises: BadCondition"""
    terms = [_term(part.strip()) for part in text.strip().split(" or ")]
    return Condition(text.strip(), tuple(terms))


def judge(condition: Condition, shown: Shown) -> Judged | None:
    """Judges a test run by a condition: good, bad or unknown. Returns None while the run's further output may still
    decide.
    """
    found = [_judged(term, shown) for term in condition.terms]
    bad = next((one for one in found if one is not None and one.judgement == "bad"), None)
    if bad is not None:
        return bad
    if any(one is None for one in found):
        return None
    known = [one for one in found if one is not None]
    unknown = next((one for one in known if one.judgement == "unknown"), None)
    return unknown or Judged("good", "; ".join(one.why for one in known))


def _term(text: str) -> Term:
    if text in ("nan", "timeout"):
        return Term(name=text)
    match = TERM.fullmatch(text)
    if match is None:
        raise BadCondition(
            f"{text!r} is not a condition: write NAME OP NUMBER with exit, loss, grad_norm, lr, step_s, steps or seconds, "
            "such as loss>2.3@50, exit!=0 or step_s>0.2; or nan; or timeout"
        )
    first = int(match["first"]) if match["first"] else None
    if first is not None and match["name"] not in BY_STEP:
        raise BadCondition(f"{text!r}: {match['name']} is not logged by step, so it has no @STEP")
    last = int(match["last"]) if match["last"] else first
    if first is not None and last is not None and last < first:
        raise BadCondition(f"{text!r}: step {last} comes before step {first}")
    return Term(
        name=match["name"], compare=match["compare"], limit=float(match["limit"]), first=first, last=last
    )


def _judged(term: Term, shown: Shown) -> Judged | None:
    if term.name == "nan":
        return _nan(shown)
    if term.name == "timeout":
        if not shown.is_over:
            return None
        return Judged("bad" if shown.timed_out else "good", "timed out" if shown.timed_out else "in time")
    if term.name in BY_STEP:
        return _by_step(term, shown)
    if not shown.is_over:
        return None
    if shown.timed_out and term.name != "steps":
        return Judged("unknown", "the run was ended at its time limit")
    value = {"exit": shown.exit, "steps": shown.last_step or 0, "seconds": shown.seconds}[term.name]
    if value is None:
        return Judged("unknown", "the exit code is unknown")
    return _compared(term, float(value), "")


def _nan(shown: Shown) -> Judged | None:
    for name in ("loss", "grad_norm"):
        for step, value in shown.values.get(name, {}).items():
            if not isfinite(value):
                return Judged("bad", f"{name} {value} at step {step}")
    if not shown.is_over:
        return None
    if not shown.values.get("loss"):
        return Judged("unknown", "the log has no loss")
    return Judged("good", f"no nan up to step {shown.last_step}")


def _by_step(term: Term, shown: Shown) -> Judged | None:
    values = shown.values.get(term.name, {})
    if term.first is not None and term.last is not None:
        if not shown.is_over and max(values, default=-1) < term.last:
            return None
        chosen = [value for step, value in values.items() if term.first <= step <= term.last]
        at = (
            f" at step {term.first}"
            if term.first == term.last
            else f" over steps {term.first} to {term.last}"
        )
        is_whole = max(values, default=-1) >= term.last
        if not chosen or not is_whole:
            return Judged("unknown", f"the run has no {term.name}{at}{_end(shown)}")
        return _compared(term, median(chosen), at)
    if not shown.is_over:
        return None
    if not values or shown.timed_out or shown.exit != 0:
        missing = (
            f"the run has no {term.name}"
            if not values
            else f"the run did not end successfully, so its {term.name} is not final"
        )
        return Judged("unknown", f"{missing}{_end(shown)}")
    steps = sorted(values)
    if term.name == "step_s":
        kept = steps[int(len(steps) * WARM_UP_SHARE) :]
        return _compared(term, median(values[step] for step in kept), "")
    return _compared(term, values[steps[-1]], f" at step {steps[-1]}")


def _end(shown: Shown) -> str:
    if shown.timed_out:
        return ": the run was ended at its time limit"
    return (
        f": the run ended with exit code {shown.exit} after step {shown.last_step}" if shown.is_over else ""
    )


def _compared(term: Term, value: float, at: str) -> Judged:
    is_bad = COMPARE[term.compare](value, term.limit)
    return Judged("bad" if is_bad else "good", f"{term.name} {value:.6g}{at}")
