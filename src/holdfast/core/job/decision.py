"""Defines the core's answer to an event."""

from msgspec import Struct

from holdfast.model.orders import AnyOrder
from holdfast.model.state import Choice, State


class Decision(Struct, frozen=True):
    """`why`: a message for people, empty if there is none. `choice`: the rung, if one was chosen."""

    state: State
    orders: tuple[AnyOrder, ...] = ()
    why: str = ""
    choice: Choice | None = None
