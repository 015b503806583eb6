"""Copies the newest checkpoint into memory while the training runs: a process of its own at the lowest priority.

`python -m holdfast.agent.checkpoints.copier JOB` (JSON). Input: inotify, and the agent's words, one a line. Output: notes,
one a line. It never writes to the disk. If the agent ends without a word, the copies are removed; of a training that goes
on without its supervisor, once no process of it is left.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import psutil

from holdfast.agent.checkpoints.content import TooManyFiles, open_for_writing, room
from holdfast.agent.checkpoints.copying import NotComplete, Source, copied, source_of
from holdfast.agent.checkpoints.inotify import Watches
from holdfast.agent.checkpoints.messages import Job, Note, Word
from holdfast.agent.checkpoints.store import Manifest, Store, sweep
from holdfast.agent.launch import marked
from holdfast.core.checkpoints.room import fit, limit_words, shortage
from holdfast.core.checkpoints.saves import Save, Saves, root_of
from holdfast.core.checks.node_findings import size
from holdfast.link.messages import UNREADABLE

NICE = 19
IDLE_S = 1.0  # without anything to do
SETTLING_S = 0.2  # while a save may become complete
MEMORY_S = 2.0  # between two looks at the memory
OPEN_S = 2.0  # between two looks at what ranks have open, until a first copy is made; then:
OPEN_RARELY_S = 30.0
ALIVE_S = 10.0  # between two looks for processes of a job without supervisor
TAKE_S = 20.0  # for the process that makes the copies now to give way
_READ_BYTES = 1 << 16


class Copier:
    """The process that makes the copies."""

    def __init__(self, job: Job, store: Store) -> None:
        self._job = job
        self._store = store
        self._saves = Saves()
        held = store.newest()
        since_ns = held.copied_ns if held is not None else job.since_ns
        self._watches = Watches((*job.left_out, job.shm), None if job.is_shared else since_ns)
        self._copying: Iterator[Manifest | None] | None = None
        self._source: Source | None = None
        self._pids: tuple[int, ...] = ()
        self._listens = self._has_begun = False  # an attempt runs; one has
        self._heard = b""
        self._has_agent = True
        self._looked_s = self._opened_s = self._alive_s = 0.0
        self._noted: set[str] = set()
        self._has_copied = False
        self.over = False
        self._watch_folders()

    def _watch_folders(self) -> None:
        """Watches the folders that the command names, and those beside it; the training may make them."""
        for folder in self._job.folders:
            self._watches.add(root_of(f"{folder}/x"), is_named=True)
        for folder in self._job.others:
            self._watches.add(folder, is_named=False)

    # Words of the agent -----------------------------------------------------------------------------------

    def turn(self) -> None:
        """Waits for something to do, and does one piece of it."""
        if self._copying is not None:
            wait_s = 0.0
        else:
            wait_s = SETTLING_S if self._saves.in_progress else IDLE_S
        sources = [self._watches.fileno(), *([0] if self._has_agent else [])]
        ready, _, _ = select.select(sources, [], [], wait_s)
        if 0 in ready:
            self._hear()
        at_s = time.monotonic()
        if self._listens:
            for change in self._watches.read(at_s):
                self._saves.feed(change)
        elif self._has_begun:
            self._watches.read(at_s)  # of the restored files
        if self._watches.why_not:
            self._tell_once(Note(kind="left-out", text=self._watches.why_not))
        self._look_at_memory(at_s)
        self._look_at_ranks(at_s)
        self._look_for_job(at_s)
        if self._copying is None:
            self._begin(at_s)
        else:
            self._go_on()

    def _hear(self) -> None:
        data = os.read(0, _READ_BYTES)
        if not data:
            self._has_agent = False
            self.over = self.over or not self._job.detach
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            with suppress(*UNREADABLE):
                self._obey(msgspec.json.decode(line, type=Word))

    def _obey(self, word: Word) -> None:
        match word.kind:
            case "runs":
                self._listens = self._has_begun = True
                self._pids = word.pids
            case "failed":
                self._listens, self._pids = False, ()
                for change in self._watches.read(time.monotonic()):
                    self._saves.feed(change)
                self._saves.failed()
            case "end":
                self.over = True

    def _look_for_job(self, at_s: float) -> None:
        if self._has_agent or at_s - self._alive_s < ALIVE_S:
            return
        self._alive_s = at_s
        self.over = not marked(self._job.owner.marks)

    # Copies -----------------------------------------------------------------------------------------------

    def _begin(self, at_s: float) -> None:
        save = self._saves.complete(at_s)
        if save is None:
            return
        if not save.is_renamed and self._is_being_written(save):
            self._saves.put_back(save, at_s)
            return
        try:
            source = source_of(save, self._store.newest(), only_seen=self._job.is_shared)
            if not self._fits(source):
                return
            self._source = source
            self._copying = copied(source, self._store, self._store.next_number())
        except NotComplete as error:
            self._tell_once(Note(kind="left-out", text=str(error)))
        except (OSError, TooManyFiles) as error:
            self._tell_once(Note(kind="failed", text=str(error)))

    def _is_being_written(self, save: Save) -> bool:
        place = f"{save.folder}/{save.unit}".rstrip("/") + "/"
        return any(path.startswith(place) for path in open_for_writing(self._pids))

    def _fits(self, source: Source) -> bool:
        before = source.before
        held = before.size_bytes if before is not None else 0
        now = room(self._job.limit_bytes, self._job.shm)
        needed = source.size_bytes - source.shared_bytes
        answer = fit(needed, held, now)
        if answer.drops_first:
            answer = fit(source.size_bytes, held, now)
        path = os.path.join(source.folder, source.unit)
        if answer.refused:
            text = f"larger than {limit_words(answer.limit, now)} allows ({size(answer.most_bytes)})"
            note = Note(kind="refused", path=path, size_bytes=source.size_bytes, text=text)
            self._tell_once(note, key=f"refused {answer.limit}")
            return False
        if answer.drops_first:
            if not self._store.drop():
                return False
            self._tell_once(Note(kind="replaced", path=path, size_bytes=source.size_bytes), key="replaced")
        return True

    def _go_on(self) -> None:
        assert self._copying is not None, "only called while a copy is made"
        try:
            manifest = next(self._copying, None)
            if manifest is not None:
                self._publish(manifest)
        except NotComplete as error:
            self._copying = None
            self._tell_once(Note(kind="left-out", text=str(error)), key="changed")
        except OSError as error:
            self._copying = None
            self._tell_once(Note(kind="failed", text=f"the copy was not made: {error}"))

    def _publish(self, manifest: Manifest) -> None:
        self._store.publish(manifest)
        self._end_copying()
        self._store.drop(but=manifest.number)
        self._saves.copied(manifest.took_s, time.monotonic())
        self._has_copied = True
        note = Note(
            kind="copied",
            path=manifest.path,
            copy=self._store.copy_path(manifest),
            size_bytes=manifest.size_bytes,
            files=len(manifest.files),
            took_s=manifest.took_s,
        )
        self._tell(note)

    def _end_copying(self) -> None:
        """Removes what was copied so far, unless it is complete."""
        close = getattr(self._copying, "close", None)
        self._copying = None
        if close is not None:
            close()

    def _look_at_memory(self, at_s: float) -> None:
        if at_s - self._looked_s < MEMORY_S:
            return
        self._looked_s = at_s
        now = room(self._job.limit_bytes, self._job.shm)
        short = shortage(now)
        if not short:
            return
        self._end_copying()
        held = self._store.newest()
        if held is not None and self._store.drop():
            text = f"memory is short: {limit_words(short, now)}"
            self._tell(Note(kind="dropped", path=held.path, size_bytes=held.size_bytes, text=text))

    def _look_at_ranks(self, at_s: float) -> None:
        """Finds folders in which ranks write checkpoints, where the command does not name them."""
        if not self._listens or at_s - self._opened_s < (OPEN_RARELY_S if self._has_copied else OPEN_S):
            return
        self._opened_s = at_s
        self._watch_folders()
        for path in open_for_writing(self._pids):
            self._watches.add(root_of(path), is_named=True)

    # Notes ------------------------------------------------------------------------------------------------

    def _tell_once(self, note: Note, key: str = "") -> None:
        key = key or f"{note.kind}{note.path}{note.text}"
        if key not in self._noted and len(self._noted) < 100:
            self._noted.add(key)
            self._tell(note)

    def _tell(self, note: Note) -> None:
        if self._has_agent:
            with suppress(OSError):  # it has just ended
                os.write(1, msgspec.json.encode(note) + b"\n")

    def close(self) -> None:
        self._end_copying()
        self._watches.close()


def main(words: list[str]) -> int:
    """Runs until the job is over. Returns the exit code."""
    lower_priority()
    job = msgspec.json.decode(words[0], type=Job)
    store = Store(job.owner, job.shm)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if not _taken(store):
        return 1
    sweep(job.shm)
    copier = Copier(job, store)
    try:
        while not copier.over:
            copier.turn()
    finally:
        copier.close()
        if copier.over:
            store.remove()
        store.release()
    return 0


def lower_priority() -> None:
    """Gives way to everything else: processor, and disk where its scheduler has classes."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError, psutil.Error):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def _taken(store: Store) -> bool:
    """Takes over from the copier of a supervisor that was killed."""
    until_s = time.monotonic() + TAKE_S
    while not store.take():
        if time.monotonic() > until_s:
            return False
        if (pid := store.copier()) is not None:
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        time.sleep(0.1)
    return True


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
