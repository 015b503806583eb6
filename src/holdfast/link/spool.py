"""Keeps an agent's outgoing entries until the controller has recorded them. Disk errors raise nothing.

Entries that must not be lost are written to disk at once. Entries that may be dropped (samples) stay in
memory, and are written to disk if memory is short or the controller unreachable. Memory holds the newest
entries of both kinds; older ones are in two logs on disk, `kept` and `loose`. Only `loose` is truncated when
space runs out.
"""

import errno
import fcntl
import os
import secrets
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.link.frames import BODY_BYTES_MAX
from holdfast.link.messages import ENTRY_OVERHEAD_BYTES, UNREADABLE
from holdfast.link.segments import OVERHEAD_BYTES, SEGMENT_BYTES, SegmentLog

# Entries of a reopened spool are numbered from its opening time in seconds times this, which no earlier opening
# can have reached: the controller may know numbers of entries that only a killed process had in memory.
NUMBERS_PER_OPENING = 1 << 20
RETRY_S = 5.0
ENTRY_MEMORY_BYTES = 200  # about the overhead of an entry besides its body
_STREAM, _LOCK = "stream", "lock"
_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


class SpoolInUse(Exception):
    """Raised when another process uses the spool: two agents with the same name, probably on one node."""


class SpoolLimits(Struct, frozen=True, kw_only=True):
    """The sizes that a spool may use, in bytes.

    `disk_bytes`: on disk, for entries that may be dropped. `kept_bytes`: on disk, for the others; beyond it
    new ones stay in memory, and if that is full too they are lost, counted and reported.
    """

    memory_bytes: int = 8 << 20
    disk_bytes: int = 128 << 20
    kept_bytes: int = 256 << 20
    segment_bytes: int = SEGMENT_BYTES


LIMITS = SpoolLimits()


class Entry(Struct):
    """An entry in the spool's memory. `drop`: it may be dropped. `written`: it is also on disk."""

    seq: int
    body: bytes
    drop: bool
    written: bool = False


class _Stream(msgspec.Struct, frozen=True):
    """The content of the file `stream`: the stream's id.

    `opening`: number of the last opening; see NUMBERS_PER_OPENING.
    """

    id: str
    opening: int


class Spool:
    """A queue of an agent's outgoing entries, on disk and in memory.

    Raises nothing but SpoolInUse at its creation.

    `folder`: None keeps all in memory. `clock`: returns seconds since the epoch. `dropped`: number of entries
    that were dropped because space ran out. `lost`: number of entries lost that must not be dropped.
    """

    def __init__(self, folder: Path | None, clock: Callable[[], float], limits: SpoolLimits = LIMITS) -> None:
        self._folder = folder
        self._clock = clock
        self._limits = limits
        self._memory: list[Entry] = []
        self._memory_bytes = 0
        self._received = 0
        self._kept: SegmentLog | None = None
        self._loose: SegmentLog | None = None
        self._lock: int | None = None
        self._unsaved = b""  # the content of the file `stream` that could not be written yet
        self._trouble = ""  # why the disk is not written now; empty if it is
        self._retry_at_s = 0.0
        self._notes: list[str] = []
        self._noted: set[str] = set()
        self.dropped = 0
        self.lost = 0
        self.stream_id = secrets.token_hex(8)
        self._next = int(clock()) * NUMBERS_PER_OPENING
        if folder is not None:
            self._open(folder)

    def notes(self) -> list[str]:
        """Returns new messages for users since the last call; each comes once."""
        notes, self._notes = self._notes, []
        return notes

    @property
    def held(self) -> tuple[int, int]:
        """Returns the number of entries in memory, and their total size in bytes."""
        return len(self._memory), self._memory_bytes

    @property
    def last(self) -> int:
        """Returns the number of the newest entry; if there is none yet, the number before that of the first entry."""
        return self._next - 1

    def append(self, body: bytes, *, drop: bool) -> None:
        if len(body) > BODY_BYTES_MAX - ENTRY_OVERHEAD_BYTES:
            self._lose(f"an entry of {len(body)} bytes is too large for the link", drop)
            return
        if not self._has_room(len(body), drop):
            return
        entry = Entry(self._next, body, drop)
        self._next += 1
        if not drop:
            self._write_kept(entry)
        self._memory.append(entry)
        self._memory_bytes += _cost(entry)

    def read(self, after: int, bytes_max: int) -> list[Entry]:
        """Returns the entries after number `after`, in order, up to `bytes_max` bytes, but at least one if
        there is any.
        """
        entries = self._on_disk(after)
        if not entries:
            entries = self._memory[bisect_right(self._memory, after, key=lambda entry: entry.seq) :]
        total = 0
        for index, entry in enumerate(entries):
            total += len(entry.body)
            if total > bytes_max and index:
                return entries[:index]
        return entries

    def received(self, upto: int) -> None:
        """Records that the controller process has received all entries up to `upto`; it may still end before they are
        in the journal.
        """
        self._received = upto

    def recorded(self, upto: int) -> None:
        """Removes all entries up to number `upto`, which the controller has recorded."""
        count = bisect_right(self._memory, upto, key=lambda entry: entry.seq)
        self._memory_bytes -= sum(_cost(entry) for entry in self._memory[:count])
        del self._memory[:count]
        for log in (self._kept, self._loose):
            if log is not None:
                log.forget(upto)

    def count_from(self, seq: int) -> None:
        """Sets the number of the next entry to more than `seq`, the highest number that the controller has
        received.
        """
        self._next = max(self._next, seq + 1)

    def put_away(self) -> None:
        """Writes entries that are only in memory to disk, because the controller is unreachable."""
        if self._memory and self._disk_is_well():
            self._shrink_to(0)

    def close(self) -> None:
        self.put_away()
        for log in (self._kept, self._loose):
            if log is not None:
                log.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # Opening ----------------------------------------------------------------------------------------------

    def _open(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._note_trouble(error)
            return
        try:
            self._lock = _locked(folder / _LOCK)
        except BlockingIOError:
            raise SpoolInUse(
                f"the spool {folder} is used by another agent: give each agent a different name"
            ) from None
        except OSError as error:  # a full disk: what is there can still be read
            self._note_trouble(error)
        self._kept = SegmentLog(folder, "kept", self._limits.segment_bytes)
        self._loose = SegmentLog(folder, "loose", self._limits.segment_bytes)
        for log in (self._kept, self._loose):
            if log.damaged:
                self._note(f"the spool was damaged, and has been repaired: {log.damaged}")
        self._continue_stream(folder / _STREAM)

    def _continue_stream(self, path: Path) -> None:
        assert self._kept is not None and self._loose is not None
        highest = max(self._kept.last, self._loose.last) // NUMBERS_PER_OPENING
        opening = int(self._clock())
        with suppress(OSError, *UNREADABLE):
            stream = msgspec.json.decode(path.read_bytes(), type=_Stream)
            self.stream_id, opening = stream.id, max(opening, stream.opening + 1)
        opening = max(opening, highest + 1)
        self._next = opening * NUMBERS_PER_OPENING
        self._unsaved = msgspec.json.encode(_Stream(self.stream_id, opening))
        try:
            self._save_stream()
        except OSError as error:
            self._note_trouble(error)

    def _save_stream(self) -> None:
        """Writes the stream's id.

        Must precede any entry: else a reopened spool would resend its entries under another id.
        """
        if self._unsaved and self._folder is not None:
            _replace(self._folder / _STREAM, self._unsaved)
            self._unsaved = b""

    # Disk -------------------------------------------------------------------------------------------------

    def _on_disk(self, after: int) -> list[Entry]:
        """Returns the entries on disk after number `after` that are older than those in memory."""
        before = self._memory[0].seq if self._memory else self._next
        if after + 1 >= before:
            return []
        found: list[Entry] = []
        for log, drop in ((self._kept, False), (self._loose, True)):
            if log is None or log.last <= after:
                continue
            part = log.read(after)
            if part and part[-1][0] < log.last:  # there is more: the other log is not read past it
                before = min(before, part[-1][0] + 1)
            found += [Entry(seq, body, drop, written=True) for seq, body in part]
        return sorted((one for one in found if one.seq < before), key=lambda one: one.seq)

    def _write_kept(self, entry: Entry) -> None:
        """Writes an entry that must not be lost to disk if possible, and marks it as written."""
        if not entry.written and self._disk_is_well():
            try:
                self._append_kept(entry)
            except OSError as error:
                self._note_trouble(error)

    def _append_kept(self, entry: Entry) -> None:
        """Appends an entry to the log `kept`, and drops samples if the disk is full. raises: OSError"""
        assert self._kept is not None and self._loose is not None
        if self._kept.size_bytes + len(entry.body) + OVERHEAD_BYTES > self._limits.kept_bytes:
            raise OSError(
                errno.EDQUOT, f"the spool has reached its limit of {self._limits.kept_bytes >> 20} MiB"
            )
        while not entry.written:
            try:
                self._kept.append(entry.seq, entry.body)
                entry.written = True
            except OSError as error:
                self._make_room(error)

    def _make_room(self, error: OSError) -> None:
        """Drops the oldest samples from a full disk. raises: `error`, if that is not its cause"""
        assert self._loose is not None
        dropped = self._loose.drop_oldest() if error.errno in (errno.ENOSPC, errno.EDQUOT) else 0
        if not dropped:
            raise error
        self._drop(dropped)

    def _write_loose(self, entry: Entry) -> bool:
        if self._loose is None or not self._disk_is_well():
            return False
        try:
            while self._loose.size_bytes + len(entry.body) + OVERHEAD_BYTES > self._limits.disk_bytes:
                self._make_room(OSError(errno.EDQUOT, "one entry is larger than the limit of the spool"))
            while self._loose.last < entry.seq:
                try:
                    self._loose.append(entry.seq, entry.body)
                except OSError as error:
                    self._make_room(error)
        except OSError as error:
            self._note_trouble(error)
            return False
        return True

    def _disk_is_well(self) -> bool:
        """Returns whether the disk can be written.

        After an error it retries at intervals, with the waiting entries first.
        """
        if not self._trouble:
            return self._kept is not None
        if self._clock() < self._retry_at_s or self._kept is None:
            return False
        try:
            self._save_stream()
            for entry in self._memory:
                if not entry.drop and not entry.written:
                    self._append_kept(entry)
        except OSError as error:
            self._note_trouble(error)
            return False
        self._trouble = ""
        self._note(f"the spool {self._folder} is being written again")
        return True

    def _note_trouble(self, error: OSError) -> None:
        self._retry_at_s = self._clock() + RETRY_S
        if not self._trouble:
            self._note(
                f"the spool {self._folder} cannot be written ({error.strerror or error}): entries that the "
                f"controller does not have yet wait in memory, up to {self._limits.memory_bytes >> 20} MiB"
            )
        self._trouble = str(error) or type(error).__name__

    # Memory -----------------------------------------------------------------------------------------------

    def _has_room(self, size_bytes: int, drop: bool) -> bool:
        room = self._limits.memory_bytes - size_bytes - ENTRY_MEMORY_BYTES
        if self._memory_bytes <= room:
            return True
        self._shrink_to(room * 3 // 4)
        if self._memory_bytes > room and not drop:
            self._retry_at_s = self._clock()  # try the disk once more before anything is lost
            self._shrink_to(room * 3 // 4)
        if self._memory_bytes <= room or not self._memory:
            return True
        self._lose(f"the spool has no space for an entry of {size_bytes} bytes", drop)
        return False

    def _shrink_to(self, bytes_max: int) -> None:
        """Reduces memory to `bytes_max` by removing the oldest entries: those on disk, those that can be
        written, samples.

        Entries that can be neither dropped nor written stay.
        """
        staying: list[Entry] = []
        index = 0
        while index < len(self._memory) and self._memory_bytes > bytes_max:
            entry = self._memory[index]
            index += 1
            if not entry.drop:
                self._write_kept(entry)
            if entry.drop and entry.seq > self._received and (staying or not self._write_loose(entry)):
                self._drop(1)
            elif not entry.drop and (staying or not entry.written):
                staying.append(entry)
                continue
            self._memory_bytes -= _cost(entry)
        self._memory[:index] = staying

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._note_once("the spool is out of space: the oldest samples are being dropped")

    def _lose(self, why: str, drop: bool) -> None:
        if drop:
            self.dropped += 1
            self._note_once(f"{why}: this entry is dropped")
        else:
            self.lost += 1
            self._note_once(f"{why}: this entry is lost")

    def _note(self, text: str) -> None:
        self._notes.append(text)

    def _note_once(self, text: str) -> None:
        if text not in self._noted and len(self._noted) < 100:
            self._noted.add(text)
            self._notes.append(text)


def _cost(entry: Entry) -> int:
    return len(entry.body) + ENTRY_MEMORY_BYTES


def _locked(path: Path) -> int:
    """Opens and locks a file, and returns its descriptor.

    raises: BlockingIOError if another process holds it; OSError
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS_HERE:
            return descriptor
        os.close(descriptor)
        raise
    return descriptor


def _replace(path: Path, data: bytes) -> None:
    """Replaces a file atomically, even if the machine crashes. raises: OSError"""
    beside = path.with_suffix(".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(beside, path)
