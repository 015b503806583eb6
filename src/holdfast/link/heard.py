"""Defines what an agent or client receives over its link."""

from msgspec import Struct


class Connected(Struct, frozen=True):
    """The controller accepted this peer, at each connection. `address`: of the controller, "host:port"."""

    address: str


class Ordered(Struct, frozen=True):
    """An order, delivered to this process once. The controller repeats it until `done(id)` reaches it."""

    id: str
    body: bytes


class Said(Struct, frozen=True):
    """A message of the controller; not kept, not repeated."""

    body: bytes


class Lost(Struct, frozen=True):
    """The connection is lost; the link keeps reconnecting by itself."""

    why: str


class Refused(Struct, frozen=True):
    """One side refuses the other. The link tries again, more slowly."""

    why: str


class Noted(Struct, frozen=True):
    """A note for the agent's log, once: a spool whose disk is full, an entry that was too large."""

    text: str


Heard = Connected | Ordered | Said | Lost | Refused | Noted
