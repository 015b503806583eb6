"""Decides an incident again under other settings, from the job's own journal: which action would have been taken? Pure."""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from holdfast.controller.loop import decisions
from holdfast.journal.rows import RawEntry
from holdfast.model.policy import Policy
from holdfast.model.state import Choice


class UnknownSetting(ValueError):
    """No such setting of the policy, or not such a value; the message says which there are."""


class Answer(Struct, frozen=True, kw_only=True):
    """`was`: the first action of the incident, as recorded; `would_be`: under the other settings. None: none."""

    was: Choice | None
    would_be: Choice | None


def changed(policy: Policy, settings: Mapping[str, object]) -> Policy:
    """The policy with these settings instead. raises: UnknownSetting"""
    known = msgspec.structs.asdict(policy)
    for key in settings:
        if key not in known:
            raise UnknownSetting(f"there is no setting {key!r}; there are {', '.join(sorted(known))}")
    try:
        return msgspec.convert({**known, **settings}, Policy, strict=False)
    except msgspec.ValidationError as error:
        raise UnknownSetting(str(error)) from error


def what_if(rows: Iterable[RawEntry], policy: Policy, other: Policy, incident: int) -> Answer:
    """Replays the journal under both policies. The events after the first other decision are those of the real run."""
    kept = list(rows)
    return Answer(was=_first(kept, policy, incident), would_be=_first(kept, other, incident))


def _first(rows: Iterable[RawEntry], policy: Policy, incident: int) -> Choice | None:
    for _, decision in decisions(rows, policy):
        if decision.choice is not None and decision.choice.incident == incident:
            return decision.choice
    return None
