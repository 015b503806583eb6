"""Decides an incident again under other settings, from the job's own journal: which action would have been taken? Pure."""

from collections.abc import Iterable

from msgspec import Struct

from holdfast.archive.replay import events_of
from holdfast.core.replay.deciding import first_choices
from holdfast.journal.rows import RawEntry
from holdfast.model.policy import Policy
from holdfast.model.state import Choice


class Answer(Struct, frozen=True, kw_only=True):
    """`was`: the first action of the incident, as recorded; `would_be`: under the other settings. None: none."""

    was: Choice | None
    would_be: Choice | None


def what_if(rows: Iterable[RawEntry], policy: Policy, other: Policy, incident: int) -> Answer:
    """Each incident as it was, with what the other settings have counted up to it (core.replay.deciding)."""
    events, _ = events_of(rows)
    was, would_be = first_choices(events, policy, other).get(incident, (None, None))
    return Answer(was=was, would_be=would_be)
