"""A queue of low-priority reports from agents, samples and pieces of logs: processed when nothing else is due.

A finding that came behind thousands of samples of other peers is decided ahead of them. What its own peer told before is
taken in before it, so that each stream keeps its order; only steps overtake. Bounded by who fills it: see `is_full`.
"""

from collections import deque

from holdfast.link.arrived import Entry

BYTES_MAX = 4 << 20  # half a second of 16,384 ranks: a sample that is older than a few says nothing of now


class Later:
    """First come, first served, among peers; of one peer always."""

    def __init__(self) -> None:
        self._of: dict[str, deque[Entry]] = {}  # by peer, who waits longest first
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._of)

    @property
    def is_full(self) -> bool:
        """Some is to be taken before more comes."""
        return self._bytes > BYTES_MAX

    def put(self, entry: Entry) -> None:
        waits = self._of.get(entry.peer)
        if waits is None:
            self._of[entry.peer] = deque((entry,))
        else:
            waits.append(entry)
        self._bytes += len(entry.body)

    def waits(self, peer: str) -> bool:
        """Something of this peer does."""
        return peer in self._of

    def take(self, peer: str | None = None) -> Entry | None:
        """The next: of all, or of this peer. None: there is none."""
        peer = next(iter(self._of), None) if peer is None else peer
        if peer is None or peer not in self._of:
            return None
        waits = self._of[peer]
        entry = waits.popleft()
        if not waits:
            del self._of[peer]
        self._bytes -= len(entry.body)
        return entry
