"""Defines the decision on one event of a job: the new state, the orders and the reason."""

from msgspec import Struct

from holdfast.model.orders import AnyOrder
from holdfast.model.state import Choice, State


class Decision(Struct, frozen=True):
    """The result of `decide`: the next state, the orders to carry out, and the reason.

    `why`: a log message for users; empty if there is none. `choice`: the recovery action, if one was chosen.
    """

    state: State
    orders: tuple[AnyOrder, ...] = ()
    why: str = ""
    choice: Choice | None = None
