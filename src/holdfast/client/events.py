"""Reads a stream of server-sent events: lines in, documents out. Sends nothing."""

import msgspec

from holdfast.model.documents.jobs import LogLine
from holdfast.model.documents.live import IncidentChanged, JobChanged, StreamEnded, StreamReset
from holdfast.model.documents.output import OutputLine

Live = JobChanged | IncidentChanged | LogLine | OutputLine | StreamReset | StreamEnded
KINDS: dict[str, type[Live]] = {
    "job": JobChanged,
    "incident": IncidentChanged,
    "log": LogLine,
    "output": OutputLine,
    "reset": StreamReset,
    "end": StreamEnded,
}
RECONNECT_S = 1.0
RECONNECT_S_MAX = 30.0
SILENCE_S = 60.0  # the server says something every 15 s


class Parser:
    """`last_id`: where to go on after a lost connection."""

    def __init__(self) -> None:
        self.last_id = ""
        self._kind, self._data = "", list[str]()

    def feed(self, line: str) -> Live | None:
        """The event that this line completes. Events of kinds that this version does not know are left out."""
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match field:
                case "id":
                    self.last_id = value
                case "event":
                    self._kind = value
                case "data":
                    self._data.append(value)
            return None
        kind, data = self._kind, "\n".join(self._data)
        self._kind, self._data = "", []
        if not data or kind not in KINDS:
            return None
        found: Live = msgspec.json.decode(data, type=KINDS[kind])
        return found
