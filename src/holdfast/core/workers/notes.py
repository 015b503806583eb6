"""Merges equal notes of many nodes: the first one at once, the others in one later line. Pure."""

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core.workers.nodes import names
from holdfast.model.events import FindingNoted

OF_ONE = (
    "environment",
    "command-running",
)  # equal for all workers except for the worker's number: only the first worker's note is used
GATHER_S = 3.0  # how long equal notes of other nodes are collected
NOTES_MAX = 2000  # recorded different notes
NAMED_MAX = 8


class _Note:
    def __init__(self, event: FindingNoted, at_s: float) -> None:
        self.event = event
        self.since_s = at_s
        self.named: set[str] = set()  # nodes already named
        self.more: set[str] = set()


class SameNotes:
    """The notes that the nodes of one attempt reported; equal notes are merged."""

    def __init__(self) -> None:
        self._attempt: int | None = None
        self._notes: dict[tuple[str, str], _Note] = {}
        self._open: list[_Note] = []

    def hear(self, node: str, event: FindingNoted, at_s: float, *, is_first: bool) -> FindingNoted | None:
        """Adds a node's note, and returns the note to report now, if any.

        `is_first`: it is from the first worker's node.
        """
        if event.attempt != self._attempt and event.attempt is not None:
            self._attempt, self._notes = event.attempt, {}
        if event.finding in OF_ONE and not is_first:
            return None
        key = (event.finding, event.text)
        note = self._notes.get(key)
        if note is None or node in note.named:
            if len(self._notes) >= NOTES_MAX:
                self._notes.clear()
            note = self._notes[key] = _Note(event, at_s)
            note.named.add(node)
            return event if event.finding in OF_ONE else replace(event, text=f"{node}: {event.text}")
        if not note.more:
            note.since_s = at_s
            self._open.append(note)
        note.more.add(node)
        return None

    def turn(self, at_s: float) -> list[FindingNoted]:
        """Returns the merged notes of nodes whose collection time is over."""
        due = [note for note in self._open if at_s - note.since_s >= GATHER_S]
        self._open = [note for note in self._open if at_s - note.since_s < GATHER_S]
        sent = []
        for note in due:
            who = names(note.more, NAMED_MAX)
            sent.append(replace(note.event, at_s=at_s, via=UNSET, text=f"also {who}: {note.event.text}"))
            note.named |= note.more
            note.more = set()
        return sent
