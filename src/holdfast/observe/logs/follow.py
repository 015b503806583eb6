"""Follows the growing output files of one worker by polling, without threads or blocking calls.

It never writes, locks or shortens an output file. A follower that falls far behind skips ahead and reports
it; the skipped lines stay in the file. Returns complete lines as bytes.
"""

import os
import stat
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

from holdfast.observe.logs.index import SOURCE, IndexWriter
from holdfast.parsers.log_lines.text import LineCutter

STILL_S = 0.5  # an unfinished line is given when its file has stood still so long: a prompt, a progress bar
LIST_S = 1.0  # the folder is listed at least so often; its mtime alone misses two changes in one tick
BLOCK_BYTES = 256 << 10
POLL_BYTES_MAX = 2 << 20  # read of one file in one poll: what a burst costs the agent at once
FINISH_BYTES_MAX = 8 << 20  # read of one file at the end
BEHIND_BYTES_MAX = 64 << 20
TAIL_BYTES = 64  # of what was read last: by it a file is known to be the same text, however long it is now
FILES_MAX = 512
NOTES_MAX = 100


class Chunk(Struct, frozen=True):
    """New lines of one file, without line ends.

    `offset`: offset in the file at or just before the first line.
    """

    source: str
    at_s: float
    offset: int
    lines: list[bytes]


class Follower:
    """Follower of the files `stdout`, `stderr` and `rank-N.log` in a worker's folder; each poll returns the
    new lines.

    `write_index`: also write the time index beside each file. `from_end`: skip what exists at the first poll.
    `notes`: sentences to log about problems, newest last; the caller empties it.
    """

    def __init__(self, folder: Path, *, write_index: bool = False, from_end: bool = False) -> None:
        self._folder = folder
        self._write_index = write_index
        self._from_end = from_end
        self._offsets: dict[str, int] = {}  # where to go on in files that could not be read for a while
        self._files: dict[str, _File] = {}
        self._listed_at_s = float("-inf")
        self._folder_mtime_ns = -1
        self._replaced: set[str] = set()  # names whose file was another one before: its index is of no use
        self._complained: set[str] = set()
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def poll(self, at_s: float) -> list[Chunk]:
        """Returns new lines, at most POLL_BYTES_MAX of each file; the rest comes with the next poll."""
        self._look_for_files(at_s)
        return self._read_all(at_s, POLL_BYTES_MAX, BEHIND_BYTES_MAX, still_s=STILL_S)

    def finish(self, at_s: float) -> list[Chunk]:
        """Returns the remaining lines, also unfinished ones: at most the last FINISH_BYTES_MAX of each file.

        To be called when no process writes any more.
        """
        self._list(at_s)
        return self._read_all(at_s, FINISH_BYTES_MAX, FINISH_BYTES_MAX, still_s=float("-inf"))

    def sizes(self) -> dict[str, int]:
        """Returns the size in bytes of each file at the last poll."""
        return {source: file.size_bytes for source, file in self._files.items()}

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _read_all(self, at_s: float, bytes_max: int, behind_bytes_max: int, still_s: float) -> list[Chunk]:
        chunks = []
        for source, file in list(self._files.items()):
            try:
                chunk = file.read(at_s, bytes_max, behind_bytes_max, still_s)
                if chunk is not None:
                    chunks.append(chunk)
                if file.is_gone and file.is_read and not file.is_moved:
                    self._drop(source)
            except OSError as error:
                self._complain(source, f"{file.path} cannot be read ({error}); trying again")
                self._offsets[source] = file.line_at
                self._drop(source, is_replaced=False)
        return chunks

    def _look_for_files(self, at_s: float) -> None:
        try:
            mtime_ns = os.stat(self._folder).st_mtime_ns
        except OSError:
            mtime_ns = -1
        if mtime_ns != self._folder_mtime_ns or at_s - self._listed_at_s >= LIST_S:
            self._folder_mtime_ns = mtime_ns
            self._list(at_s)

    def _list(self, at_s: float) -> None:
        self._listed_at_s = at_s
        try:
            found = _regular_files(self._folder)
        except OSError as error:  # a sick file system is no verdict on its files: those open are read on
            self._complain("", f"{self._folder} cannot be listed ({error}); trying again")
            return
        for source, file in self._files.items():
            file.is_gone = found.get(source) != file.identity  # still open: it is read to its end
            file.is_moved = source not in found and file.has_a_name
        for source in found:
            if source not in self._files:
                self._begin(source, at_s)
        self._from_end = False

    def _begin(self, source: str, at_s: float) -> None:
        if len(self._files) >= FILES_MAX:
            self._complain("", f"{self._folder} has more than {FILES_MAX} logs: the others are not searched")
            return
        path = self._folder / source
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._complain(source, f"{path} cannot be opened ({error}); trying again")
            return
        index = IndexWriter(path, self.notes.append) if self._write_index else None
        file = _File(path, source, fd, at_s, self.notes, index)
        start = None if self._from_end else self._offsets.pop(source, 0)
        file.begin_at(start, is_other_file=source in self._replaced)
        self._replaced.discard(source)
        self._complained.discard(source)
        self._files[source] = file

    def _drop(self, source: str, *, is_replaced: bool = True) -> None:
        self._files.pop(source).close()
        self._listed_at_s = float("-inf")  # another may lie there already
        if is_replaced:
            self._replaced.add(source)

    def _complain(self, source: str, sentence: str) -> None:
        if source not in self._complained:
            self.notes.append(sentence)
        self._complained.add(source)


class _File:
    """One followed file.

    It is kept open, because its name may come to mean another file before all lines are read.
    """

    def __init__(
        self, path: Path, source: str, fd: int, at_s: float, notes: deque[str], index: IndexWriter | None
    ) -> None:
        self.path = path
        self.size_bytes = 0
        self.is_gone = False  # its name is gone or means another file
        self.is_moved = False  # it has another name now, and no file its old one: its writer may write on
        self._source = source
        self._fd = fd
        self._grew_at_s = at_s
        self._notes = notes
        self._index = index
        self._at = 0
        self._tail = b""  # what stood before `_at` when it was read
        self._changed_ns = 0
        self._cutter = LineCutter()
        about = os.fstat(fd)
        self.identity = (about.st_dev, about.st_ino)

    @property
    def is_read(self) -> bool:
        return self._at >= self.size_bytes

    @property
    def has_a_name(self) -> bool:
        try:
            return os.fstat(self._fd).st_nlink > 0
        except OSError:  # stale, on a file system of others
            return False

    @property
    def line_at(self) -> int:
        """Returns the offset of the first line that has not been returned."""
        return self._at - self._cutter.held_bytes

    def begin_at(self, offset: int | None, *, is_other_file: bool) -> None:
        """Continues reading at `offset`; None means the end of the file."""
        size_bytes = os.fstat(self._fd).st_size
        self._at = size_bytes if offset is None else offset if offset <= size_bytes else 0
        if self._index and (is_other_file or self._index.size_bytes > size_bytes):
            self._index.reset()

    def read(self, at_s: float, bytes_max: int, behind_bytes_max: int, still_s: float) -> Chunk | None:
        about = os.fstat(self._fd)
        size_bytes = about.st_size
        if size_bytes != self.size_bytes or about.st_mtime_ns != self._changed_ns:
            self._note_size(at_s, size_bytes)
            self._changed_ns = about.st_mtime_ns
        if self._at == size_bytes and not self._cutter.held_bytes:
            return None
        if size_bytes - self._at > behind_bytes_max:
            self._skip_ahead(size_bytes - min(bytes_max, behind_bytes_max))
        offset = self.line_at
        lines = self._read_lines(min(size_bytes, self._at + bytes_max))
        is_over = self.is_gone and not self.is_moved
        stood_still = is_over or at_s - self._grew_at_s >= still_s
        if self._at == size_bytes and stood_still and (rest := self._cutter.flush()):
            lines.append(rest)
        return Chunk(self._source, at_s, offset, lines) if lines else None

    def close(self) -> None:
        os.close(self._fd)
        if self._index:
            self._index.close()

    def _note_size(self, at_s: float, size_bytes: int) -> None:
        is_cut = size_bytes < self._at or size_bytes < self.size_bytes
        if is_cut or self._is_rewritten():
            said = f"truncated to {size_bytes} bytes" if is_cut else "truncated and rewritten"
            self._notes.append(f"{self.path} was {said}: reading it from its start")
            self._at, self._tail, self._cutter = 0, b"", LineCutter()
            if self._index:
                self._index.reset()
        elif size_bytes == self.size_bytes:
            return
        self.size_bytes = size_bytes
        self._grew_at_s = at_s
        if self._index and not self.is_gone:
            self._index.append(at_s, size_bytes)

    def _is_rewritten(self) -> bool:
        """Returns True if the file was truncated and rewritten up to the old size.

        Zeros mean something else: a hole, left by a writer that continued at its old offset.
        """
        now = os.pread(self._fd, len(self._tail), self._at - len(self._tail))
        return now != self._tail and bool(now.strip(b"\0"))

    def _skip_ahead(self, to: int) -> None:
        self._notes.append(
            f"{self.path} grows faster than it can be read: {to - self._at} bytes were skipped in the search; "
            "the file is complete"
        )
        self._at, self._tail = to, b""
        self._cutter.skip_line()

    def _read_lines(self, end: int) -> list[bytes]:
        lines: list[bytes] = []
        while self._at < end:
            block = os.pread(self._fd, min(BLOCK_BYTES, end - self._at), self._at)
            if not block:  # cut short since it was measured: the next poll sees it
                break
            self._at += len(block)
            self._tail = (self._tail + block)[-TAIL_BYTES:]
            lines += self._cutter.feed(block)
        return lines


def _regular_files(folder: Path) -> dict[str, tuple[int, int]]:
    """Returns the logs in a folder with their device and inode numbers; a link counts as its target.

    Raises OSError if they cannot be listed; a missing folder or file is no error.
    """
    found = {}
    try:
        names = sorted(name for name in os.listdir(folder) if SOURCE.fullmatch(name))
    except FileNotFoundError:
        return {}
    for name in names:
        try:
            about = os.stat(folder / name)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(about.st_mode):  # opening a pipe, even to look, would let its writer go ahead
            found[name] = (about.st_dev, about.st_ino)
    return found
