"""Parses a stream of server-sent events from lines into documents. Performs no I/O."""

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
SILENCE_S = 60.0  # the server sends something every 15 s


class Parser:
    """Parser of one stream of events. `last_id`: id of the last event, to resume after it when the connection is
    lost.
    """

    def __init__(self) -> None:
        self.last_id = ""
        self._kind, self._data = "", list[str]()

    def feed(self, line: str) -> Live | None:
        """Returns the event that this line completes, otherwise None. Skips events of unknown kinds."""
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
