"""Defines what an agent or client receives over its link to the controller."""

from msgspec import Struct


class Connected(Struct, frozen=True):
    """The controller accepted the connection; reported again at each reconnection.

    `address`: the controller's address, "host:port".
    """

    address: str


class Ordered(Struct, frozen=True):
    """An order of the controller, delivered to this process once.

    The controller resends it until it gets `done(id)`.
    """

    id: str
    body: bytes


class Said(Struct, frozen=True):
    """A message of the controller that is sent once, not kept and not repeated."""

    body: bytes


class Lost(Struct, frozen=True):
    """The connection was lost; the link keeps reconnecting by itself. `why`: the reason."""

    why: str


class Refused(Struct, frozen=True):
    """One side rejected the other, for the reason `why`. The link tries again, at longer intervals."""

    why: str


class Noted(Struct, frozen=True):
    """A note for the agent's log, such as that the spool's disk is full or an entry was too large. Each is reported
    once.
    """

    text: str


Heard = Connected | Ordered | Said | Lost | Refused | Noted
