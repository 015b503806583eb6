"""What an agent or client receives over its link."""

from msgspec import Struct


class Connected(Struct, frozen=True):
    """The controller has taken us. Said again at each connection. `address`: of the controller, "host:port"."""

    address: str


class Ordered(Struct, frozen=True):
    """An order: delivered once to this process, and by the controller's side again until `done(id)` has reached it."""

    id: str
    body: bytes


class Said(Struct, frozen=True):
    """Said by the controller to whoever is connected; not kept, not repeated."""

    body: bytes


class Lost(Struct, frozen=True):
    """The connection is gone; the link tries again by itself, for ever."""

    why: str


class Refused(Struct, frozen=True):
    """The other side does not take us, or we do not take it. The link tries again all the same, at a slower pace."""

    why: str


class Noted(Struct, frozen=True):
    """Something for the agent's log: a spool whose disk is full, an entry that was too large. Said once."""

    text: str


Heard = Connected | Ordered | Said | Lost | Refused | Noted
