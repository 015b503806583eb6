"""Detects the JSON form that wraps each line of a log, and unwraps the lines. Pure, and never raises.

Docker's form is removed. The journal's stays, because it has writer and time; a message that journalctl wrote as
numbers, because of colours or invalid UTF-8, becomes text:

    {"_HOSTNAME":"n1","MESSAGE":[27,91,51,49,109,88,105,100]}     {"_HOSTNAME":"n1","MESSAGE":"Xid"}
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from holdfast.late_pattern import late
from holdfast.parsers.log_lines import docker_json

MARKS = (b'"MESSAGE"', b'"__REALTIME_TIMESTAMP"', b'"__CURSOR"')
PROOF_LINES = 4
NUMBERS = (
    b'MESSAGE":[',
    b'MESSAGE" : [',
    b'MESSAGE": [',
)  # the last form is that of programs that store journal lines
# Colours and other terminal escape sequences.
CONTROL = late(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,1000}(?:\x07|\x1b\\)?|[ -/][0-~]|[0-~])")

_numbers = msgspec.json.Decoder(list[int])
Unwrap = Callable[[bytes], bytes]


def unwrapper_of(head: bytes) -> Unwrap | None:
    """Returns the function that unwraps the lines of a log with this beginning; None for plain lines.

    The function takes lines, and returns equally many.
    """
    if docker_json.is_docker_json(head):
        return _of_docker
    if not _is_journal(head.split(b"\n", PROOF_LINES)[:PROOF_LINES]):
        return None
    gap = next((form for form in NUMBERS if form[:-1] in head), NUMBERS[0])
    return partial(_of_journal, begun=gap)


def unwrapped(line: bytes) -> bytes:
    """Returns the log line that a JSON record contains; the record itself if its form is unknown."""
    return of_journal(line) if _is_journal((line,)) else docker_json.unwrapped(line)


def of_journal(line: bytes) -> bytes:
    """Returns the journal's line with its message as text; the same object if it is text already."""
    for begun in NUMBERS:
        line = _of_journal(line, begun)
    return line


def _of_journal(lines: bytes, begun: bytes) -> bytes:
    if begun not in lines:
        return lines
    head, *rest = lines.split(begun)
    return head + b"".join(_with_text(begun, piece) for piece in rest)


def _with_text(begun: bytes, piece: bytes) -> bytes:
    numbers, closed, after = piece.partition(b"]")
    try:
        message = bytes(_numbers.decode(b"[" + numbers + closed))
    except (msgspec.DecodeError, ValueError):
        return begun + piece
    text = CONTROL.sub(b"", message).decode("utf-8", "replace")
    return begun[:-1] + msgspec.json.encode(text) + after


def _of_docker(lines: bytes) -> bytes:
    return b"\n".join(map(docker_json.unwrapped, lines.split(b"\n")))


def _is_journal(lines: Sequence[bytes]) -> bool:
    return any(
        line.lstrip().startswith(b"{") and sum(mark in line for mark in MARKS) >= len(MARKS) - 1
        for line in lines
    )
