"""Requests Python stacks from ranks by signal and collects them, without stopping or tracing a process.

The shim in a rank registers faulthandler on a free signal and notes it in `rank-N.shim.json` (`{"pid": 4711,
"stack_signal": 12}`); dumps go to `rank-N.stacks` beside it. A signal without a handler would end the
training, so it is sent only if the file names this very process and the kernel reports a handler.
"""

import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.model.samples import Stack
from holdfast.observe.processes.procs import parse_stat
from holdfast.parsers.stacks import last_stack

CANNOT_ANSWER = frozenset("TtDZX")  # stopped, traced, blocked, ended
DUMP_BYTES_MAX = 1 << 20  # 100 threads of 100 frames of 100 bytes
POLL_S = 0.02  # a dump takes 0.6-3 ms


class ShimNote(msgspec.Struct, frozen=True):
    """Content of `rank-N.shim.json`: the rank's pid and the signal of its faulthandler; 0: none.

    Other keys are ignored.
    """

    pid: int
    stack_signal: int


class Asked(NamedTuple):
    """A rank to which the signal for a stack dump was sent.

    `from_bytes`: offset in its dump file at which the reply begins.
    """

    rank: int
    path: Path
    from_bytes: int


def ask(worker_dir: Path, rank: int, pid: int) -> Asked | None:
    """Sends the signal for a stack dump; None if it was not sent: no shim, another process, or no handler."""
    note = shim_note(worker_dir, rank)
    if note is None or note.pid != pid or not 0 < note.stack_signal < signal.NSIG:
        return None
    path = worker_dir / f"rank-{rank}.stacks"
    asked = Asked(rank, path, _size_bytes(path))
    return asked if _send(pid, note.stack_signal) else None


def collect(
    asked: Iterable[Asked], deadline_s: float, clock: Callable[[], float], wait: Callable[[float], object]
) -> tuple[Stack, ...]:
    """Returns the stacks that arrive before `clock` reaches `deadline_s`, by rank; as soon as all have
    arrived.

    A dump is complete when it ends with a line end and has not grown between two reads.
    """
    missing = {one.rank: one for one in asked}
    texts: dict[int, bytes] = {}
    stacks: dict[int, Stack] = {}
    while missing and clock() < deadline_s:
        wait(POLL_S)
        for rank, one in list(missing.items()):
            text = written_since(one)
            stack = last_stack(text, rank) if text.endswith(b"\n") and text == texts.get(rank) else None
            texts[rank] = text
            if stack is not None:
                stacks[rank] = stack
                del missing[rank]
    return tuple(stacks[rank] for rank in sorted(stacks))


def shim_note(worker_dir: Path, rank: int) -> ShimNote | None:
    """Returns what the shim has noted for a rank; None if it has noted nothing that can be read."""
    try:
        return msgspec.json.decode((worker_dir / f"rank-{rank}.shim.json").read_bytes(), type=ShimNote)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _send(pid: int, number: int) -> bool:
    """Sends a signal to a process through a pidfd, so that it cannot reach another process that has got
    the pid since.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _kill(pid, number)
    try:
        if not _will_answer(pid, number):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def _kill(pid: int, number: int) -> bool:
    if not _will_answer(pid, number):
        return False
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def _will_answer(pid: int, number: int) -> bool:
    try:
        stat = parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return stat is not None and stat.state not in CANNOT_ANSWER and catches(status, number)


def catches(status: str, number: int) -> bool:
    r"""Returns True if a process has a handler for a signal, by `SigCgt:` in /proc/PID/status.

    SigCgt:\t0000000000000800     bit 11, so signal 12 has a handler
    """
    _, found, rest = status.partition("SigCgt:")
    try:
        return bool(found) and bool(int(rest.split(maxsplit=1)[0], 16) >> (number - 1) & 1)
    except (ValueError, IndexError):
        return False


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def written_since(asked: Asked) -> bytes:
    """Returns the bytes that the rank has appended to its dump file since the request; all if the file was
    recreated.
    """
    try:
        with asked.path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            file.seek(asked.from_bytes if size_bytes >= asked.from_bytes else 0)
            return file.read(DUMP_BYTES_MAX)
    except OSError:
        return b""
