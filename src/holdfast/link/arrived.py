"""Defines what a controller's hub receives from its peers (agents and clients), and how many refusals it reports."""

import math

from msgspec import Struct


class Joined(Struct, frozen=True):
    """A peer connected, for the first time or again.

    Without a Left before it, this connection replaced an older one.

    `role`: "agent" or "client". `hello`: its greeting. `address`: its IP address. `stream`: the id of its
    stream of entries, from its name and its spool.
    """

    peer: str
    role: str
    hello: bytes
    address: str
    stream: str


class Entry(Struct, frozen=True):
    """One entry of a peer's stream. Each entry arrives once, in the order of `seq`, which has gaps.

    The peer sends it again to the next controller process unless `recorded` was called for this entry or a later one.
    `may_drop`: True if the peer may drop it when the peer runs out of space.
    """

    peer: str
    stream: str
    seq: int
    body: bytes
    may_drop: bool = False


class Said(Struct, frozen=True):
    """A message of a peer outside its stream: sent once, not kept and not repeated."""

    peer: str
    body: bytes


class Left(Struct, frozen=True):
    """A peer's connection was closed.

    `said_goodbye`: the peer has ended; otherwise it may reconnect at any moment.
    """

    peer: str
    why: str
    said_goodbye: bool


class Silent(Struct, frozen=True):
    """An agent, connected or not, has sent nothing for longer than the limit.

    It is reported once, and again only after the agent has sent a message. `for_s`: seconds since the agent's last
    message.
    """

    peer: str
    for_s: float


class Refused(Struct, frozen=True):
    """A connection was refused. `address`: "ip:port"; empty if the refusal concerns no single peer."""

    address: str
    why: str


Arrived = Joined | Entry | Said | Left | Silent | Refused


class Refusals:
    """A rate limit on the reports of refused connections: at most `a_minute` are reported in each minute."""

    def __init__(self, a_minute: int) -> None:
        self._a_minute = a_minute
        self._from_s = -math.inf
        self._count = 0

    def noted(self, address: str, why: str, now_s: float) -> Refused | None:
        """Counts a refused connection, and returns what to report about it; None if the limit of this minute is
        exceeded.
        """
        if now_s - self._from_s > 60:
            self._from_s, self._count = now_s, 0
        self._count += 1
        if self._count < self._a_minute:
            return Refused(address, why)
        if self._count > self._a_minute:
            return None
        return Refused(
            address,
            f"{why}; {self._count} connections were refused within a minute: further ones are not reported",
        )
