"""Judges a run against the truth of its case. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from bench.faults.draw import Case
from bench.faults.kinds import BY_NAME, Kind
from bench.faults.systems.base import Found
from bench.job.trial import Moment, Result

EARLY_S = 0.5  # a system's clock may lag the wall clock a little
LOSS_TOLERANCE = 1e-5


class Run(Struct, frozen=True, kw_only=True):
    """What was seen of a run. `ended`: by itself, within the limit. `left`: number of processes after its end."""

    system: str
    case: Case
    moments: tuple[Moment, ...]
    found: tuple[Found, ...]
    ended: bool
    code: int | None
    left: int
    took_s: float
    result: Result | None
    expected: Result
    expected_s: float


class Row(Struct, frozen=True, kw_only=True):
    """The judgement of one run. None: does not apply, or did not happen.

    `found_s`, `stepping_s`: seconds from the fault to the first finding, and until all ranks have made a step again.
    `cause_right`, `culprit_right`: also false if nothing was found. `person`: the run did not complete by itself.
    """

    system: str
    number: int
    class_: str
    kind: str
    rank: int
    step: int
    struck: bool
    found_s: float | None
    category: str
    named: tuple[int, ...]
    cause_right: bool | None
    culprit_right: bool | None
    steps_lost: int | None
    stepping_s: float | None
    person: bool
    orphans: int
    result_equal: bool
    took_s: float
    ratio: float


def judged(run: Run, ranks: int) -> Row:
    kind = BY_NAME[run.case.kind]
    struck = next((moment for moment in run.moments if moment.kind == "struck"), None)
    # A system that has nothing to find is wrong with a finding at any time.
    since_s = struck.at_s - EARLY_S if struck and kind.category != "none" else 0.0
    warned = kind.class_ in ("slow", "healthy") or kind.category == "none"
    found = [one for one in run.found if one.at_s > since_s and (warned or not one.is_warning)]
    first = found[0] if found else None
    equal = run.result is not None and run.result.step == run.expected.step
    equal = equal and abs(run.result.loss - run.expected.loss) <= LOSS_TOLERANCE if run.result else False
    lost, stepping_s = _resumed(run.moments, struck, ranks) if struck else (None, None)
    return Row(
        system=run.system,
        number=run.case.number,
        class_=kind.class_,
        kind=kind.name,
        rank=run.case.rank,
        step=run.case.step,
        struck=struck is not None,
        found_s=round(max(0.0, first.at_s - struck.at_s), 3) if first and struck else None,
        category=first.category if first else "",
        named=first.ranks if first else (),
        cause_right=_cause_right(kind, first),
        culprit_right=_culprit_right(kind, run.case, first),
        steps_lost=lost,
        stepping_s=stepping_s,
        person=not (run.ended and run.code == 0 and run.result is not None),
        orphans=run.left,
        result_equal=equal,
        took_s=round(run.took_s, 2),
        ratio=round(run.took_s / run.expected_s, 2),
    )


def _cause_right(kind: Kind, first: Found | None) -> bool | None:
    if not kind.category:
        return None
    if kind.category == "none":
        return first is None
    return first is not None and first.category in (kind.category, *kind.also)


def _culprit_right(kind: Kind, case: Case, first: Found | None) -> bool | None:
    """Where nobody is at fault, to name nobody is right."""
    if not kind.category:
        return None
    if kind.category == "none":
        return first is None or not first.ranks
    return first is not None and first.ranks == ((case.rank,) if kind.blames else ())


def _resumed(moments: Sequence[Moment], struck: Moment, ranks: int) -> tuple[int | None, float | None]:
    """Returns the steps to repeat, and seconds until each rank has made a step in new processes."""
    before = {moment.pid for moment in moments if moment.at_s <= struck.at_s}
    new = [moment for moment in moments if moment.at_s > struck.at_s and moment.pid not in before]
    first: dict[int, float] = {}
    for moment in new:
        if moment.kind == "step":
            first.setdefault(moment.rank, moment.at_s)
    resumed = next((moment.step for moment in new if moment.kind == "resumed"), None)
    lost = max(0, struck.step - resumed) if resumed is not None else None
    return lost, round(max(first.values()) - struck.at_s, 3) if len(first) == ranks else None
