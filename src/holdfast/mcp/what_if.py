"""Replays an incident of a job's journal with other settings, to find the action that would be taken.

Pure.
"""

from collections.abc import Iterable

from msgspec import Struct

from holdfast.archive.replay import events_of
from holdfast.core.replay.deciding import first_choices
from holdfast.journal.rows import RawEntry
from holdfast.model.policy import Policy
from holdfast.model.state import Choice


class Answer(Struct, frozen=True, kw_only=True):
    """The actions for an incident; None means no action. `was`: the first recorded one.

    `would_be`: with other settings.
    """

    was: Choice | None
    would_be: Choice | None


def what_if(rows: Iterable[RawEntry], policy: Policy, other: Policy, incident: int) -> Answer:
    """Replays the journal up to an incident with the recorded and with other settings, and returns both
    actions.
    """
    events, _ = events_of(rows)
    was, would_be = first_choices(events, policy, other).get(incident, (None, None))
    return Answer(was=was, would_be=would_be)
