"""Unwraps container lines and their times from Docker's JSON log. Pure, and never raises.

    {"log":"[rank0]: KeyError: \\"w\\"\\n","stream":"stderr","time":"2031-05-06T08:00:01.5Z"}

becomes `2031-05-06T08:00:01.5Z [rank0]: KeyError: "w"`: quotes, colours and letters outside of ASCII stand there as the
program wrote them. One line stays one line, whatever it contains.

source: Docker, daemon/logger/jsonfilelog/jsonlog
"""

import msgspec
from msgspec import Struct

BEGINNING = b'{"log":'
PROOF_LINES = 2


class Record(Struct):
    """A line of a log file in the format of Docker's json-file driver."""

    log: str
    time: str


_decoder = msgspec.json.Decoder(Record)


def is_docker_json(head: bytes) -> bool:
    """Returns whether the first lines of a log all have the form of Docker's JSON log files."""
    lines = [line for line in head.split(b"\n", PROOF_LINES)[:PROOF_LINES] if line.strip()]
    return bool(lines) and all(_record(line) is not None for line in lines)


def unwrapped(line: bytes) -> bytes:
    """Returns the container's line, without a line end; unchanged if it has another form or is truncated."""
    record = _record(line)
    if record is None:
        return line
    text = record.log.rstrip("\r\n").replace("\r", " ").replace("\n", " ")
    return f"{record.time} {text}".encode("utf-8", "replace")


def _record(line: bytes) -> Record | None:
    if not line.lstrip().startswith(BEGINNING):
        return None
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
