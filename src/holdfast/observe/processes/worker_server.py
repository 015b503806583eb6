"""Queries the progress of ranks in their collectives through the socket of the shim, with a short deadline.

`rank-N.sock` in the worker's folder replies to b"s" with the status of all process groups and to b"r" with
the flight records; a reply begins with its length in 4 bytes. A rank that holds the GIL, is stopped or is in
the kernel accepts the query and does not reply: `GroupStatusReader.unanswered_since_s` records since when,
which is evidence too.
"""

import os
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from holdfast.model.flight.records import Group, GroupStatus

PATH_BYTES_MAX = 107  # sun_path, less its end
STATUS_BYTES_MAX = 4 << 20
RECORDS_BYTES_MAX = 256 << 20  # a ring of 2,000 entries: 0.3 MiB
GROUPS_BYTES_MAX = 64 << 20
MEMBERS_MAX = 1 << 20
# NCCL's recorder and that of the other backends both number their groups from 0: where a rank has both, the ids of
# the others are raised by this.
OTHER_RECORDER = 1_000_000
MPI_CALLS = 2_000_000  # calls of MPI, likewise: all of a rank's count as one group

Count = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]


class _Counts(Struct, frozen=True):
    last_enqueued_collective: Count = -1
    last_started_collective: Count = -1
    last_completed_collective: Count = -1


class _Recorder(Struct, frozen=True):
    pg_status: dict[Count, _Counts] = {}


class _Answer(Struct, frozen=True):
    at: float
    nccl: _Recorder = _Recorder()
    fr: _Recorder = _Recorder()
    mpi: _Recorder = _Recorder()
    thread: Count = 0
    sequences: tuple[Count, ...] = ()


class _Members(Struct, frozen=True):
    desc: str = ""
    backend: str = ""
    ranks: tuple[int, ...] = ()
    ranges: str = ""


# PyTorch writes its numbers as text in JSON: {"0": {"last_enqueued_collective": "3000", ...}}
_ANSWERS = msgspec.json.Decoder(_Answer, strict=False)
_GROUPS = msgspec.json.Decoder(dict[str, _Members])


class GroupStatusReader:
    """Client that queries one rank's progress repeatedly over one connection, without blocking.

    At most one query is open, so a rank that was stopped finds one and not a thousand. The next `ask`
    reconnects a lost connection.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self.path = path
        self.thread = 0  # that runs the script, by the last answer; 0: the main one
        self.unanswered_since_s: float | None = None  # by `clock`; None: every question was answered
        self._clock = clock
        self._socket: socket.socket | None = None
        self._received = bytearray()

    def ask(self) -> bool:
        """Sends the query, unless one is open.

        Returns False if no rank listens on the socket (not yet, or no longer).
        """
        if self._socket is None:
            self._socket = _connect(self.path)
            self._received.clear()
            if self._socket is None:
                self.unanswered_since_s = None
                return False
        elif self.unanswered_since_s is not None:
            return True
        try:
            self._socket.send(b"s")
        except OSError:
            self.close()
            return False
        if self.unanswered_since_s is None:
            self.unanswered_since_s = self._clock()
        return True

    def read(self) -> tuple[GroupStatus, ...] | None:
        """Returns the progress in each process group in use; None if the reply has not arrived."""
        try:
            body = self._take()
            answer = None if body is None else _ANSWERS.decode(body)
        except (OSError, ValueError):
            self.close()
            return None
        if answer is None:
            return None
        self.unanswered_since_s, self.thread = None, max(0, answer.thread)
        return _groups_in(answer)

    def _take(self) -> bytes | None:
        """Returns the reply if it is complete, else None.

        Raises OSError, and ValueError if it is too long.
        """
        if self._socket is None:
            return None
        try:
            while piece := self._socket.recv(1 << 16):
                self._received += piece
                if (body := _whole(self._received, STATUS_BYTES_MAX)) is not None:
                    self._received.clear()
                    return body
        except BlockingIOError:
            return None
        raise ConnectionResetError("the rank has closed its socket")

    def fileno(self) -> int:
        """Returns the file descriptor of the connection for select; -1 without a connection."""
        return -1 if self._socket is None else self._socket.fileno()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self.unanswered_since_s = None, None


def group_status(path: Path, deadline_s: float, clock: Callable[[], float]) -> tuple[GroupStatus, ...] | None:
    """Returns the progress of the rank behind the socket `path`; None if it does not reply before
    `deadline_s` of `clock`.
    """
    body = _answer(path, b"s", STATUS_BYTES_MAX, deadline_s, clock)
    try:
        return None if body is None else parse_status(body)
    except ValueError:
        return None


def flight_records(path: Path, deadline_s: float, clock: Callable[[], float]) -> tuple[bytes, ...] | None:
    """Returns the flight records of a rank without stacks, NCCL's first; None if it does not reply before
    `deadline_s`.

    Each is a pickle, to be read with an unpickler that refuses every class. The request takes the rank 1-10
    ms.
    """
    made = ask_records(path)
    return None if made is None else read_records(made, deadline_s, clock)


def ask_records(path: Path) -> socket.socket | None:
    """Sends the query for flight records, in less than a millisecond, and returns the socket; for ranks
    that may soon end.
    """
    return _asked(path, b"r")


def read_records(
    made: socket.socket, deadline_s: float, clock: Callable[[], float]
) -> tuple[bytes, ...] | None:
    """Returns the reply to `ask_records`; see `flight_records`."""
    body = _received(made, RECORDS_BYTES_MAX, deadline_s, clock)
    records = []
    while body:
        end = 4 + int.from_bytes(body[:4])
        if end > len(body):
            return None
        records.append(body[4:end])
        body = body[end:]
    return None if body is None else tuple(records)


def parse_status(body: bytes) -> tuple[GroupStatus, ...]:
    """Parses the status reply of a rank. Raises ValueError.

        {"at": 812.25, "fr": {"pg_status": {"0": {"last_enqueued_collective": "3000", ...}}, ...}}

    Without a flight recorder (torch 2.5 to 2.8 on gloo) there are only the counts of collectives issued to
    each group, in the order in which the groups were created: `{"at": 812.25, "sequences": [3000]}`.
    """
    return _groups_in(_ANSWERS.decode(body))


def _groups_in(answer: _Answer) -> tuple[GroupStatus, ...]:
    shift = OTHER_RECORDER if answer.nccl.pg_status else 0
    found = [_status(group, counts) for group, counts in answer.nccl.pg_status.items()]
    found += [_status(group + shift, counts) for group, counts in answer.fr.pg_status.items()]
    found += [_status(group + MPI_CALLS, counts) for group, counts in answer.mpi.pg_status.items()]
    found += [GroupStatus(group, count, -1, -1) for group, count in enumerate(answer.sequences)]
    return tuple(sorted(found, key=lambda one: one.group_id))


def _status(group: int, counts: _Counts) -> GroupStatus:
    return GroupStatus(
        group,
        counts.last_enqueued_collective,
        counts.last_started_collective,
        counts.last_completed_collective,
    )


def read_groups(path: Path) -> dict[str, Group]:
    """Returns the process groups in the file `rank-N.groups.json`, by name; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return parse_groups(file.read(GROUPS_BYTES_MAX))
    except (OSError, ValueError):
        return {}


def parse_groups(text: bytes) -> dict[str, Group]:
    """Parses a list of process groups into a dictionary by name. Raises ValueError.

    {"1": {"desc": "dp0", "backend": "gloo", "ranks": [0, 2]}, "2": {"desc": "", "ranges": "0-1016:8,2000-2007"}}
    """
    return {
        name: Group(
            name=name,
            about=one.desc,
            ranks=one.ranks or parse_ranges(one.ranges),
            backend=one.backend,
        )
        for name, one in _GROUPS.decode(text).items()
    }


def parse_ranges(text: str) -> tuple[int, ...]:
    """Parses ranges of ranks: 0, 1, 2, 3, 8, 16, 20, 24 for "0-3,8,16-24:4".

    Raises ValueError for another form, and for more than a million ranks.
    """
    members: list[int] = []
    for part in filter(None, text.split(",")):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        found = range(int(first), int(last or first) + 1, int(step or 1))
        if len(members) + len(found) > MEMBERS_MAX or found.step < 1:
            raise ValueError(f"not a list of ranks: {text[:80]!r}")
        members.extend(found)
    return tuple(members)


# Connections


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """Yields a name of `path` that is short enough for the address of a Unix socket."""
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _connect(path: Path) -> socket.socket | None:
    """Connects without blocking; None if no process listens, or if its queue of connections is full."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.setblocking(False)
    try:
        with _short(path) as name:
            made.connect(name)
    except (OSError, ValueError):
        made.close()
        return None
    return made


def _whole(received: bytearray, bytes_max: int) -> bytes | None:
    """Returns the reply once it is complete, else None.

    Raises ValueError if its length exceeds `bytes_max`.
    """
    if len(received) < 4:
        return None
    length = int.from_bytes(received[:4])
    if length > bytes_max:
        raise ValueError(f"the reply has {length} bytes, which is too long")
    return bytes(received[4 : 4 + length]) if len(received) >= 4 + length else None


def _answer(
    path: Path, question: bytes, bytes_max: int, deadline_s: float, clock: Callable[[], float]
) -> bytes | None:
    made = _asked(path, question)
    return None if made is None else _received(made, bytes_max, deadline_s, clock)


def _asked(path: Path, question: bytes) -> socket.socket | None:
    made = _connect(path)
    if made is None:
        return None
    try:
        made.send(question)
    except OSError:
        made.close()
        return None
    return made


def _received(
    made: socket.socket, bytes_max: int, deadline_s: float, clock: Callable[[], float]
) -> bytes | None:
    received = bytearray()
    with made:
        try:
            while (body := _whole(received, bytes_max)) is None:
                if not _is_ready(made, deadline_s - clock()) or not (piece := made.recv(1 << 20)):
                    return None
                received += piece
        except (OSError, ValueError):
            return None
    return body


def _is_ready(made: socket.socket, within_s: float) -> bool:
    poll = select.poll()
    poll.register(made, select.POLLIN)
    return bool(poll.poll(max(0.0, within_s * 1000)))
