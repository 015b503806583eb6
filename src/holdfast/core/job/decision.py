"""What the core answers to an event."""

from msgspec import Struct

from holdfast.model.orders import AnyOrder
from holdfast.model.state import Choice, State


class Decision(Struct, frozen=True):
    """`why` is for people, empty when there is no news. `choice`: the rung, when one was chosen."""

    state: State
    orders: tuple[AnyOrder, ...] = ()
    why: str = ""
    choice: Choice | None = None
