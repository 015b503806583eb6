"""Searches growing logs for signatures, in the lines that a follower has just read."""

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.model.matches import Match
from holdfast.model.signatures import Signature
from holdfast.observe.logs.blocks import of_lines
from holdfast.observe.logs.follow import Chunk
from holdfast.observe.search.automaton import engine
from holdfast.observe.search.sweep import Allowance, Caps, Knowledge, Sweep, made

MEMORY_BYTES = 8 << 20
CAPS = Caps(
    texts=100, lines=20
)  # lines: in one poll; with one or two polls a second, a loud log costs no more


class Watcher:
    """Search for signatures in the logs of one worker in one attempt.

    `cache`: folder for compiled signatures. `is_small`: the logs are too small for compiling to pay off.

    A match's `source` is a number; `sources` has the names of the logs. Lines are not counted: `line` is 0. A
    traceback is recognised if one poll contains all of it. Raises SignatureError for a signature that cannot
    be searched for.
    """

    def __init__(
        self, signatures: Sequence[Signature], *, cache: Path | None = None, is_small: bool = False
    ) -> None:
        self._knowledge = Knowledge(signatures)
        self._engine = engine(signatures, cache, is_small=is_small)
        self._begin()

    def another(self) -> "Watcher":
        """Returns a watcher of other logs with the same compiled signatures, also for another thread.

        To load them once more would take 15 ms and 4 MB.
        """
        other = copy.copy(self)
        other._engine = self._engine.fork()
        other._begin()
        return other

    def _begin(self) -> None:
        self.sources: list[str] = []
        self._allowance = Allowance(MEMORY_BYTES)
        self._sweeps: dict[str, tuple[int, Sweep]] = {}

    def look(self, chunks: Iterable[Chunk]) -> tuple[Match, ...]:
        """Returns matches in new lines.

        A repeated text is returned once for each poll, with its count so far.
        """
        found: list[Match] = []
        for chunk in chunks:
            number, sweep = self._sweep(chunk.source)
            sweep.look_anew()
            entries = {id(entry): entry for entry in sweep.take(of_lines(chunk.lines, chunk.offset))}
            found += [made(entry, number, self._knowledge) for entry in entries.values()]
        return tuple(found)

    def _sweep(self, source: str) -> tuple[int, Sweep]:
        known = self._sweeps.get(source)
        if known is None:
            sweep = Sweep(source, self._knowledge, self._engine, CAPS, self._allowance, lines_before=None)
            known = self._sweeps[source] = (len(self.sources), sweep)
            self.sources.append(source)
        return known
