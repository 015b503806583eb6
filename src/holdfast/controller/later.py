"""Queues low-priority reports of agents (samples, pieces of logs) until no other report is waiting.

A finding is processed before thousands of waiting samples of other agents, but after earlier reports of its
own agent, so that the reports of each agent keep their order. Reports of steps are the exception: they may come before waiting ones. The caller
limits the queue by `is_full`.
"""

import select
from collections import deque
from collections.abc import Sequence

from holdfast.link.arrived import Entry

BYTES_MAX = 4 << 20  # half a second of samples of 16,384 ranks; older ones would be useless


class Later:
    """Queue of low-priority reports that serves agents in turn, and the reports of each in order."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Entry]] = {}  # by peer, longest waiting first
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def is_full(self) -> bool:
        """Returns whether the queue has reached its limit, so that reports must be taken before others are
        added.
        """
        return self._bytes > BYTES_MAX

    def put(self, entry: Entry) -> None:
        waits = self._of.get(entry.peer)
        if waits is None:
            self._of[entry.peer] = deque((entry,))
        else:
            waits.append(entry)
        self._bytes += len(entry.body)

    def waits(self, peer: str) -> bool:
        """Returns whether a report of this agent is in the queue."""
        return peer in self._of

    def take(self, peer: str | None = None) -> Entry | None:
        """Removes and returns the next report, of any agent or of `peer`; None if there is none."""
        peer = next(iter(self._of), None) if peer is None else peer
        if peer is None or peer not in self._of:
            return None
        waits = self._of[peer]
        entry = waits.popleft()
        if not waits:
            del self._of[peer]
        self._bytes -= len(entry.body)
        return entry


def is_readable(channels: Sequence[int]) -> bool:
    """Returns whether one of these file descriptors is readable now."""
    poll = select.poll()
    for channel in channels:
        poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))
