"""Defines the messages between an uplink, the process that streams a job's journal to a server, and that server: the
journal upwards, requests downwards.

The journal's sequence numbers make the transfer resumable. The server sends the number of the last row it has
recorded, and the uplink continues after it. The server ignores a duplicate row and rejects a gap.
"""

import msgspec
from msgspec import Struct

PROTOCOL = 1
ROWS_MAX = 500  # per message
ROWS_BYTES_MAX = 1 << 20
MESSAGE_BYTES_MAX = 4 << 20
FILE_BYTES_MAX = 256 << 10  # of a small file that is sent whole
PART_BYTES = 512 << 10  # of a large file

Raw = tuple[float, str, bytes, bytes, str, int]  # journal.rows.RawEntry


class Word(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The base class of all messages between uplink and server; the tag `kind` identifies the type."""

    pass


class Begin(Word, frozen=True, tag="begin"):
    """The uplink's first message: which job it sends.

    `source`: the state folder, as HOST-DIGEST. `identity`: distinguishes a new job from an older one with the
    same name. `created_s`: seconds since the epoch. `meta`: the journal's metadata.
    """

    job: str
    source: str
    host: str
    identity: str
    created_s: float
    meta: dict[str, bytes]
    protocol: int = PROTOCOL
    version: str = ""


class RowsSent(Word, frozen=True, tag="rows"):
    """Rows of the job's journal, in order, which the uplink sends to the server."""

    rows: tuple[Raw, ...]


class MetaSent(Word, frozen=True, tag="meta"):
    """A metadata value of the job's journal, which the uplink sends to the server."""

    key: str
    value: bytes


class FileSent(Word, frozen=True, tag="file"):
    """A small file of the job's folder, which replaces the previous version.

    `name`: relative to the folder.
    """

    name: str
    content: bytes


class PartSent(Word, frozen=True, tag="part"):
    """A part of a file that is too large for one message.

    `name`: relative to the job's folder. `size_bytes`: of the file.
    """

    name: str
    offset: int
    content: bytes
    size_bytes: int


class Alive(Word, frozen=True, tag="alive"):
    """The state of the job on its host, sent at intervals. `at_s`: the host's clock."""

    state: str
    supervisor: str
    at_s: float


class Finished(Word, frozen=True, tag="finished"):
    """The uplink has sent everything. It ends once the server has recorded it."""


class Answered(Word, frozen=True, tag="answered"):
    """The answer to an Ask with the number `ask`. `body`: JSON. `why`: the reason if there is no answer."""

    ask: int
    body: bytes = b""
    why: str = ""


class LineSaid(Word, frozen=True, tag="line-said"):
    """A message of the controller on connection `line`, which the server opened; the bodies are in
    model.calls.
    """

    line: int
    body: bytes


class LineEnded(Word, frozen=True, tag="line-ended"):
    """The connection `line` to the controller has ended, for the reason `why`."""

    line: int
    why: str


class Have(Word, frozen=True, tag="have"):
    """The answer to Begin, and the acknowledgement of rows: the server has recorded all up to
    number `seq`.
    """

    seq: int


class Refuse(Word, frozen=True, tag="refuse"):
    """The server rejects the job, and the uplink ends. `why`: the reason, one sentence."""

    why: str


class Kept(Word, frozen=True, tag="kept"):
    """The answer to Finished: the server has recorded everything."""


class Ask(Word, frozen=True, tag="ask"):
    """A request of the server for the job's output. `ask`: its number. `what`: files or output.

    `query`: JSON, as in the HTTP API.
    """

    ask: int
    what: str
    query: bytes = b"{}"


class OpenLine(Word, frozen=True, tag="open-line"):
    """A request to connect to the controller, as `holdfast exec` does. `line`: the connection's number."""

    line: int


class SayOnLine(Word, frozen=True, tag="say-on-line"):
    """A message of the server to the controller on connection `line`."""

    line: int
    body: bytes


class CloseLine(Word, frozen=True, tag="close-line"):
    """A request to close the connection `line` to the controller."""

    line: int


FromJob = (
    Begin | RowsSent | MetaSent | FileSent | PartSent | Alive | Finished | Answered | LineSaid | LineEnded
)
FromServer = Have | Refuse | Kept | Ask | OpenLine | SayOnLine | CloseLine

_from_job: msgspec.msgpack.Decoder[FromJob] = msgspec.msgpack.Decoder(FromJob)
_from_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)
packed = msgspec.msgpack.encode


class BadWord(ValueError):
    """Raised for bytes that are no valid message between uplink and server."""


def from_job(raw: bytes) -> FromJob:
    """Decodes a message from an uplink. raises: BadWord"""
    try:
        return _from_job.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadWord(f"a message of {len(raw)} bytes cannot be read: {error}") from error


def from_server(raw: bytes) -> FromServer:
    """Decodes a message from the server. raises: BadWord"""
    try:
        return _from_server.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadWord(f"a message of {len(raw)} bytes cannot be read: {error}") from error
