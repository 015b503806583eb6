"""Reads many journals at once in separate processes, because one Python process cannot use two cores.

A reading process ends when its standard input closes, so it never outlives the server.
"""

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from holdfast.archive.index.entry import JobEntry
from holdfast.archive.index.tracked import Tracked
from holdfast.archive.living import ProcessTable
from holdfast.archive.places import Place
from holdfast.journal.jobdir import JobDir

MODULE = "holdfast.archive.index.reading_processes"
ANSWER_BYTES_MAX = 256 << 20
PROCESSES_S = 1.0  # how long a process table of this machine stays valid
_LENGTH_BYTES = 8


class Batch(Struct, frozen=True):
    """A batch of journals to read: names of jobs in one state folder. `number`: identifies the batch."""

    number: int
    root: str
    key: str
    source: str
    names: tuple[str, ...]


class Answer(Struct, frozen=True):
    """The result of a batch. `failed`: its process died without a result."""

    batch: Batch
    entries: tuple[JobEntry, ...] = ()
    failed: bool = False


_ENTRIES = msgspec.msgpack.Decoder(tuple[JobEntry, ...])
_BATCH = msgspec.json.Decoder(Batch)


class ReadingProcesses:
    """A pool of reading processes. `put` queues a batch; `answers` returns finished ones. Neither blocks."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._batches: queue.Queue[Batch | None] = queue.Queue()
        self._answers: queue.Queue[Answer] = queue.Queue()
        self._threads = list[threading.Thread]()
        self._processes = list[subprocess.Popen[bytes]]()
        self._closing = False
        self.open = 0  # batches without an answer

    def put(self, batch: Batch) -> None:
        while len(self._threads) < self.count:
            thread = threading.Thread(target=self._serve, name="index-reading", daemon=True)
            self._threads.append(thread)
            thread.start()
        self.open += 1
        self._batches.put(batch)

    def answers(self, wait_s: float = 0.0) -> list[Answer]:
        """Returns finished batches. Waits up to `wait_s` seconds for the first one."""
        found = list[Answer]()
        with suppress(queue.Empty):
            found.append(self._answers.get(timeout=wait_s) if wait_s else self._answers.get_nowait())
            while True:
                found.append(self._answers.get_nowait())
        self.open -= len(found)
        return found

    def close(self) -> None:
        self._closing = True
        for _ in self._threads:
            self._batches.put(None)
        for process in self._processes:
            process.kill()
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _serve(self) -> None:
        process: subprocess.Popen[bytes] | None = None
        while (batch := self._batches.get()) is not None and not self._closing:
            if process is None or process.poll() is not None:
                process = self._started()
            self._answers.put(_asked(process, batch))
        if process is not None:
            _end(process)

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches only the server, which ends these processes
        )
        self._processes.append(process)
        if self._closing:
            process.kill()
        return process


def _asked(process: subprocess.Popen[bytes], batch: Batch) -> Answer:
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    try:
        process.stdin.write(msgspec.json.encode(batch) + b"\n")
        process.stdin.flush()
        head = process.stdout.read(_LENGTH_BYTES)
        length = int.from_bytes(head, "big")
        if len(head) == _LENGTH_BYTES and length <= ANSWER_BYTES_MAX:
            body = process.stdout.read(length)
            return Answer(batch, _ENTRIES.decode(body))
    except (OSError, msgspec.MsgspecError):
        pass
    _end(process)
    return Answer(batch, failed=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


def read_entries(batch: Batch, processes: ProcessTable) -> tuple[JobEntry, ...]:
    """Reads the journals of a batch, and returns their index entries. Leaves out jobs without a journal."""
    place = Place(root=Path(batch.root), key=batch.key, source=batch.source)
    found = list[JobEntry]()
    for name in batch.names:
        tracked = Tracked(place, JobDir(place.root / "jobs" / name), time.time)
        tracked.read()
        if tracked.has_journal:
            found.append(tracked.entry(processes))
    return tuple(found)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Reads batches from `requests` and writes their results until the input closes.

    A request is one line of JSON; a result is a length and a MessagePack value.
    """
    processes = ProcessTable(keep_s=PROCESSES_S)
    for line in requests:
        body = msgspec.msgpack.encode(read_entries(_BATCH.decode(line), processes))
        answers.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        answers.flush()


def batches(jobs: Sequence[tuple[Place, str, int]], bytes_max: int, jobs_max: int, first: int) -> list[Batch]:
    """Splits jobs into batches, in order. Each batch has jobs of one state folder.

    `jobs`: tuples of place, name, and size of the journal in bytes.
    """
    found, names, size = list[Batch](), list[str](), 0
    for number, (place, name, job_bytes) in enumerate(jobs):
        names.append(name)
        size += job_bytes
        following = jobs[number + 1][0] if number + 1 < len(jobs) else None
        if following != place or size >= bytes_max or len(names) >= jobs_max:
            found.append(Batch(first + len(found), str(place.root), place.key, place.source, tuple(names)))
            names, size = [], 0
    return found


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        serve(sys.stdin.buffer, sys.stdout.buffer)
