"""Repeats each decision of a journal with another policy, beside the recorded decision. Pure.

The events are those of the recorded run, so the other policy decides each incident in the recorded situation; only
its own counters (restarts, equal failures, faults of devices) are kept between incidents. Once the other policy ends
the job, it makes no more decisions.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.job.decide import decide
from holdfast.core.job.decision import Decision
from holdfast.model.events import AnyEvent, Tick
from holdfast.model.policy import Policy
from holdfast.model.state import (
    Choice,
    Diagnosing,
    Ended,
    Finishing,
    Healing,
    Holding,
    Isolating,
    Job,
    Placing,
    State,
    Waiting,
)

COUNTED = (
    "restarts",
    "replacements",
    "hardware_reschedules",
    "hangs_in_a_row",
    "problem",
    "problems_in_a_row",
    "problem_step",
    "error",
    "devices_seen",
)
_WAITS = {
    Diagnosing: "verdict_wait_s",
    Isolating: "isolate_wait_s",
    Placing: "place_wait_s",
    Waiting: "node_wait_s",
    Healing: "heal_wait_s",
}
JUST_AFTER_S = 0.001  # from the end of a wait to the tick that ends it


class UnknownSetting(ValueError):
    """Raised for an unknown setting of the policy or an invalid value; the message lists the valid ones."""


class Both(Struct, frozen=True, kw_only=True):
    """One event with the decisions of both policies.

    `was`: the recorded decision; None for a tick that only the other policy has. `other`: the decision of the other
    policy; None if it has ended the job.
    """

    event: AnyEvent
    was: Decision | None
    other: Decision | None


def changed(policy: Policy, settings: Mapping[str, object]) -> Policy:
    """Returns the policy with some settings changed. raises: UnknownSetting"""
    known = msgspec.structs.asdict(policy)
    for key in settings:
        if key not in known:
            raise UnknownSetting(f"there is no setting {key!r}; settings are {', '.join(sorted(known))}")
    try:
        return msgspec.convert({**known, **settings}, Policy, strict=False)
    except msgspec.ValidationError as error:
        raise UnknownSetting(str(error)) from error


def decided_twice(events: Iterable[AnyEvent], own: Policy, other: Policy) -> Iterator[Both]:
    """Yields each event with the decisions of both policies, in order.

    A wait that ends earlier under the other policy ends with an additional tick.
    """
    real, counted, ended = State(), Job(), False
    for event in events:
        if not ended:
            early = _early_tick(real, event, own, other)
            if early is not None:
                decision = decide(_grafted(real, counted), early, other)
                counted, ended = decision.state.job, _is_over(decision.state)
                yield Both(event=early, was=None, other=decision)
        was = decide(real, event, own)
        would_be = None
        if not ended:
            would_be = decide(_grafted(real, counted), event, other)
            counted = would_be.state.job
            ended = _is_over(would_be.state) and not _is_over(was.state)
        real = was.state
        yield Both(event=event, was=was, other=would_be)


def first_choices(
    events: Iterable[AnyEvent], own: Policy, other: Policy
) -> dict[int, tuple[Choice | None, Choice | None]]:
    """Returns the first recovery action that each policy chose, by incident."""
    found: dict[int, tuple[Choice | None, Choice | None]] = {}
    for both in decided_twice(events, own, other):
        for place, decision in enumerate((both.was, both.other)):
            if decision is None or decision.choice is None:
                continue
            pair = list(found.get(decision.choice.incident, (None, None)))
            pair[place] = pair[place] or decision.choice
            found[decision.choice.incident] = (pair[0], pair[1])
    return found


def _grafted(real: State, counted: Job) -> State:
    """Returns the recorded state with the counters of the other policy, and its view of the
    current incident.
    """
    job = replace(real.job, **{name: getattr(counted, name) for name in COUNTED})
    incident, there = real.job.incident, counted.incident
    if incident is not None and there is not None and incident.number == there.number:
        job = replace(job, incident=there)
    return State(job, real.phase)


def _is_over(state: State) -> bool:
    return isinstance(state.phase, Ended | Finishing | Holding)


def _early_tick(real: State, event: AnyEvent, own: Policy, other: Policy) -> Tick | None:
    """Returns a tick for a wait that ends before this event under the other policy only; None if there is
    none.
    """
    name = _WAITS.get(type(real.phase))
    if name is None:
        return None
    own_s, other_s = getattr(own, name), getattr(other, name)
    over_s = getattr(real.phase, "since_s") + other_s + JUST_AFTER_S  # noqa: B009 - every phase in _WAITS has it
    return Tick(at_s=over_s) if other_s < own_s and over_s < event.at_s else None
