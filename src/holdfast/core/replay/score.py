"""Compares the decisions of two policies over the journals of jobs: what differs, when, and what it would
have saved. Pure.

The journal does not show how long a decision takes that was not made. Its duration is estimated by the median
of the same rung in these journals, by class; if that rung never occurred, the effect is reported as unknown.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct

from holdfast.core.costs.account import Account, JobCost
from holdfast.core.costs.classes import NAMES
from holdfast.core.costs.settings import LEARNED_HANG_S
from holdfast.core.job.spent import DETECTION, REPEATED
from holdfast.core.replay.deciding import Both, decided_twice
from holdfast.model.events import AnyEvent, StepReached
from holdfast.model.policy import Policy
from holdfast.model.state import Choice, Ended, Finishing, Holding, Running, State

DIFFERENCES_MAX = 1_000  # listed of one job
RECOVERIES = ("in-place", "hang-restart", "replace-worker", "reschedule-isolated", "reschedule-unconditional")
NOTHING = ("", "notify")  # rungs that change nothing in the training


class Difference(Struct, frozen=True, kw_only=True):
    """A decision in which two policies differ.

    `incident`: 0 for none. `what`: same-rung, other-rung, would-end, would-go-on, would-act, would-not-act,
    false-hang. `saved_s`: saved seconds by cost class, negative for a loss; None if unknown, with the reason
    in `why`.
    """

    at_s: float
    incident: int
    what: str
    was: str
    would_be: str
    why: str = ""
    saved_s: dict[str, float] | None = None


class Score(Struct, frozen=True, kw_only=True):
    """The comparison of two policies on one job.

    `decisions`: rungs chosen in the run; `same`: those the other chooses too.

    `ends_at_s`: when the other policy would have ended the job; None if not before its real end.
    """

    job: str
    decisions: int
    same: int
    differences: tuple[Difference, ...]
    saved_s: dict[str, float]
    unknown: int
    gpus: int
    ends_at_s: float | None = None
    after_end_s: float = 0.0
    would_go_on: bool = False
    left_out: int = 0
    notes: tuple[str, ...] = ()

    @property
    def saved_gpu_hours(self) -> float:
        """Returns the GPU-hours that the other policy would have saved."""
        return sum(self.saved_s.values()) * self.gpus / 3600.0


class Card(Struct, frozen=True, kw_only=True):
    """The comparison of two policies, summed over many jobs."""

    jobs: int
    decisions: int
    same: int
    would_end: int
    would_go_on: int
    false_hangs: int
    unknown: int
    saved_gpu_hours: float
    saved_s: dict[str, float]


class _Pair:
    """The first choice of each policy in one incident."""

    def __init__(self) -> None:
        self.at_s: float | None = None
        self.was: Choice | None = None
        self.other: Choice | None = None
        self.other_seen = False


def typical(costs: Iterable[JobCost]) -> dict[str, dict[str, float]]:
    """Returns how long a recovery takes: for each action and cost class, the median in seconds.

    Detection is left out, because the action does not affect it.
    """
    found: dict[str, list[Mapping[str, float]]] = {}
    for cost in costs:
        for one in cost.incidents:
            if one.rung in RECOVERIES:
                found.setdefault(one.rung, []).append(one.by_class)
    return {
        rung: {
            name: median(one.get(name, 0.0) for one in rows)
            for name in NAMES
            if name not in (DETECTION, REPEATED)
        }
        for rung, rows in found.items()
    }


def score(
    events: Sequence[AnyEvent],
    own: Policy,
    other: Policy,
    took: Mapping[str, Mapping[str, float]] | None = None,
    *,
    gpus: int = 0,
) -> Score:
    """Returns the comparison of two policies on one job.

    `took`: durations of recoveries in the job's fleet, as from `typical`; None: of this job alone.
    """
    account, pairs = Account(), dict[int, _Pair]()
    watch = _Watch(own, other)
    for both in decided_twice(events, own, other):
        if both.was is not None:
            account.hear(both.event, both.was)
        watch.hear(both)
        _note(pairs, both)
    cost = account.cost(gpus)
    typical_s = took if took is not None else typical([cost])
    spent = {one.number: one for one in cost.incidents}
    found, same, decisions = list[Difference](), 0, 0
    for number, pair in sorted(pairs.items()):
        decisions += pair.was is not None
        by_class = spent[number].by_class if number in spent else {}
        row = _difference(number, pair, by_class, typical_s)
        if row is None and pair.other_seen:
            same += pair.was is not None
            hang = spent[number].hang if number in spent else ""
            row = _of_times(number, pair, _same_rung_effect(by_class, hang, own, other))
        if row is not None:
            found.append(row)
    found += watch.false_hangs(typical_s)
    found.sort(key=lambda row: (row.at_s, row.incident))
    return _scored(cost, decisions, same, found, watch)


def card(scores: Iterable[Score]) -> Card:
    """Sums several comparisons of two policies."""
    rows = list(scores)
    saved_s: dict[str, float] = {}
    for row in rows:
        for name, seconds in row.saved_s.items():
            saved_s[name] = saved_s.get(name, 0.0) + seconds
    return Card(
        jobs=len(rows),
        decisions=sum(row.decisions for row in rows),
        same=sum(row.same for row in rows),
        would_end=sum(row.ends_at_s is not None for row in rows),
        would_go_on=sum(row.would_go_on for row in rows),
        false_hangs=sum(one.what == "false-hang" for row in rows for one in row.differences),
        unknown=sum(row.unknown for row in rows),
        saved_gpu_hours=sum(row.saved_gpu_hours for row in rows),
        saved_s=saved_s,
    )


def _is_over(state: State) -> bool:
    return isinstance(state.phase, Ended | Finishing | Holding)


class _Watch:
    """Records when the other policy ends the job, where it would continue, and gaps that it would take for
    hangs.
    """

    def __init__(self, own: Policy, other: Policy) -> None:
        self.ends_at_s: float | None = None
        self.last_s: float | None = None
        self.goes_on = False
        self._limit_s = other.hang_timeout_s if other.hang_timeout_s != own.hang_timeout_s else None
        self._acts = other.hang_restart
        self._step_s: float | None = None
        self._gaps: list[tuple[float, float]] = []

    def hear(self, both: Both) -> None:
        self.last_s = max(both.event.at_s, self.last_s or both.event.at_s)
        was, other = both.was, both.other
        if other is not None and self.ends_at_s is None:
            ends, ended = _is_over(other.state), was is not None and _is_over(was.state)
            self.ends_at_s = both.event.at_s if ends and not ended else None
            was_fails = ended and was is not None and was.choice is not None and was.choice.rung == "fail"
            self.goes_on = self.goes_on or (was_fails and not ends)
        if was is not None:
            self._look_at_gap(both, was.state, self.ends_at_s is not None)

    def _look_at_gap(self, both: Both, state: State, is_over: bool) -> None:
        if not isinstance(state.phase, Running) or state.job.incident is not None or is_over:
            self._step_s = None
        elif isinstance(both.event, StepReached):
            if self._step_s is not None and self._limit_s is not None:
                gap_s = both.event.at_s - self._step_s
                if gap_s > self._limit_s:
                    self._gaps.append((self._step_s + self._limit_s, gap_s))
            self._step_s = both.event.at_s

    def false_hangs(self, took: Mapping[str, Mapping[str, float]]) -> list[Difference]:
        """Returns the restarts for gaps between steps after which the recorded run continued by itself."""
        recovery = took.get("hang-restart") or took.get("reschedule-unconditional")
        saved = (
            {name: -seconds for name, seconds in recovery.items() if seconds}
            if recovery and self._acts
            else None
        )
        return [
            Difference(
                at_s=at_s,
                incident=0,
                what="false-hang",
                was="no incident",
                would_be="hang-restart" if self._acts else "notify",
                why=f"no step for {gap_s:.0f} s, after which the training continued",
                saved_s=saved if self._acts else {},
            )
            for at_s, gap_s in self._gaps[:DIFFERENCES_MAX]
        ]


def _note(pairs: dict[int, _Pair], both: Both) -> None:
    for is_other, decision in ((False, both.was), (True, both.other)):
        if decision is None or decision.choice is None:
            continue
        pair = pairs.setdefault(decision.choice.incident, _Pair())
        pair.at_s = both.event.at_s if pair.at_s is None else pair.at_s
        pair.other_seen |= both.other is not None
        if is_other:
            pair.other = pair.other or decision.choice
        else:
            pair.was = pair.was or decision.choice


def _difference(
    number: int,
    pair: _Pair,
    by_class: Mapping[str, float],
    took: Mapping[str, Mapping[str, float]],
) -> Difference | None:
    """Returns the difference of the choices in an incident; None if both are equal, or the job had already
    ended.
    """
    was, would_be = _rung(pair.was), _rung(pair.other)
    if not pair.other_seen or (was == would_be and _is_shadow(pair.was) == _is_shadow(pair.other)):
        return None
    what, saved_s, why = _kind(was, would_be, by_class, took)
    return Difference(
        at_s=pair.at_s or 0.0,
        incident=number,
        what=what,
        was=_said(pair.was),
        would_be=_said(pair.other),
        why=why or (pair.other.why if pair.other is not None else ""),
        saved_s=saved_s,
    )


def _kind(
    was: str, would_be: str, by_class: Mapping[str, float], took: Mapping[str, Mapping[str, float]]
) -> tuple[str, dict[str, float] | None, str]:
    if would_be == "fail":
        return "would-end", None, "the job would have ended here; when somebody restarts it is unknown"
    if was == "fail":
        return "would-go-on", None, "what would have happened next is not in the journal"
    if was in NOTHING and would_be in NOTHING:
        return "other-rung", {}, ""
    if was in NOTHING:
        return "would-act", None, "how long the training was stopped without this action is unknown"
    if would_be in NOTHING:
        return "would-not-act", None, "how long the training would have stayed stopped is unknown"
    typical_s = took.get(would_be)
    if typical_s is None:
        return "other-rung", None, f"no {would_be} occurred in these journals: how long it takes is unknown"
    saved_s = {name: by_class.get(name, 0.0) - seconds for name, seconds in typical_s.items()}
    return "other-rung", {name: seconds for name, seconds in saved_s.items() if seconds}, ""


def _of_times(number: int, pair: _Pair, saved_s: dict[str, float]) -> Difference | None:
    if not saved_s:
        return None
    was = _said(pair.was)
    return Difference(
        at_s=pair.at_s or 0.0, incident=number, what="same-rung", was=was, would_be=was, saved_s=saved_s
    )


def _same_rung_effect(
    by_class: Mapping[str, float], hang: str, own: Policy, other: Policy
) -> dict[str, float]:
    """Returns seconds saved by different times with the same rung: hang limit, time a failed job is kept,
    boot check.
    """
    saved_s: dict[str, float] = {}
    detection_s = by_class.get(DETECTION, 0.0)
    if hang and detection_s and own.hang_timeout_s != other.hang_timeout_s:
        beyond_s = max(0.0, detection_s - own.hang_timeout_s) if own.hang_timeout_s is not None else 0.0
        saved_s[DETECTION] = detection_s - ((other.hang_timeout_s or LEARNED_HANG_S) + beyond_s)
    if other.keep_on_failure_s < own.keep_on_failure_s:
        saved_s["kept"] = max(0.0, by_class.get("kept", 0.0) - other.keep_on_failure_s)
    saved_s["checks"] = by_class.get("checks", 0.0) if other.boot_check == "off" != own.boot_check else 0.0
    return {name: seconds for name, seconds in saved_s.items() if seconds}


def _scored(cost: JobCost, decisions: int, same: int, found: list[Difference], watch: _Watch) -> Score:
    saved_s: dict[str, float] = {}
    for row in found:
        for name, seconds in (row.saved_s or {}).items():
            saved_s[name] = saved_s.get(name, 0.0) + seconds
    ends_s, last_s = watch.ends_at_s, watch.last_s or 0.0
    return Score(
        job=cost.job,
        decisions=decisions,
        same=same,
        differences=tuple(found[:DIFFERENCES_MAX]),
        saved_s={name: saved_s[name] for name in NAMES if saved_s.get(name)},
        unknown=sum(row.saved_s is None for row in found),
        gpus=cost.gpus,
        ends_at_s=ends_s,
        after_end_s=max(0.0, last_s - ends_s) if ends_s is not None else 0.0,
        would_go_on=watch.goes_on,
        left_out=max(0, len(found) - DIFFERENCES_MAX),
    )


def _rung(choice: Choice | None) -> str:
    return choice.rung if choice is not None else ""


def _is_shadow(choice: Choice | None) -> bool:
    return choice is not None and choice.shadow


def _said(choice: Choice | None) -> str:
    if choice is None:
        return "no action"
    return f"{choice.rung} (shadow)" if choice.shadow else choice.rung
