"""The received messages of a controller's hub, in order of arrival."""

from msgspec import Struct


class Joined(Struct, frozen=True):
    """A peer is connected: for the first time, or again. Again without a Left between: a newer connection of its.

    `role`: "agent" or "client". `address`: the IP address it comes from. `stream`: of its entries, name and spool.
    """

    peer: str
    role: str
    hello: bytes
    address: str
    stream: str


class Entry(Struct, frozen=True):
    """One entry of a stream: each comes once, in the order of `seq`. Numbers have gaps.

    It is sent again to the controller's next process unless `recorded` was called for it, or for a later one.
    `may_drop`: the peer would rather lose it than wait.
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
    """The connection is closed. `said_goodbye`: by the peer, as it ends; else it may come again any moment."""

    peer: str
    why: str
    said_goodbye: bool


class Silent(Struct, frozen=True):
    """Nothing was heard of an agent for longer than the limit, connected or not. Said once, until it is heard again."""

    peer: str
    for_s: float


class Refused(Struct, frozen=True):
    """Somebody was not let in. `address`: "ip:port", or empty where it is about nobody in particular."""

    address: str
    why: str


Arrived = Joined | Entry | Said | Left | Silent | Refused
