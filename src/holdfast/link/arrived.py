"""Defines the messages that a controller's hub receives."""

from msgspec import Struct


class Joined(Struct, frozen=True):
    """A peer connected, for the first time or again. Without a Left before, a newer connection replaced the old one.

    `role`: "agent" or "client". `address`: its IP address. `stream`: of its entries, from name and spool.
    """

    peer: str
    role: str
    hello: bytes
    address: str
    stream: str


class Entry(Struct, frozen=True):
    """One entry of a stream: each arrives once, in the order of `seq`, which has gaps.

    It is sent again to the next controller process unless `recorded` was called for it or a later one. `may_drop`: the
    peer may drop it.
    """

    peer: str
    stream: str
    seq: int
    body: bytes
    may_drop: bool = False


class Said(Struct, frozen=True):
    peer: str
    body: bytes


class Left(Struct, frozen=True):
    """The connection is closed. `said_goodbye`: the peer has ended; else it may reconnect at any moment."""

    peer: str
    why: str
    said_goodbye: bool


class Silent(Struct, frozen=True):
    """No message from an agent for longer than the limit, connected or not. Reported once until the next message."""

    peer: str
    for_s: float


class Refused(Struct, frozen=True):
    """A connection was refused. `address`: "ip:port", or empty if it concerns no single peer."""

    address: str
    why: str


Arrived = Joined | Entry | Said | Left | Silent | Refused
