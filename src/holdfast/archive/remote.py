"""Stores jobs of other hosts: one folder for each job, written from the messages of its uplink (the process that
streams its journal) and read like a local job.

    streamed/SOURCE/jobs/JOB/journal.db      the same rows with the same checksums
    streamed/SOURCE/jobs/JOB/remote.json     the sender, and the state of the job on its host

Nothing outside the folder is written, whatever names the messages contain.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from holdfast.archive.places import SOURCE, STREAMED
from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import JournalUnusable, Row
from holdfast.journal.store import Store
from holdfast.link.uplink_messages import (
    FILE_BYTES_MAX,
    PROTOCOL,
    Alive,
    Begin,
    FileSent,
    PartSent,
    Raw,
)

REMOTE = "remote.json"
LOCK = "lock"
JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SMALL_FILE = re.compile(
    r"attempt-\d{1,6}/(?:worker-\d{1,6}/)?steps\.json|attempt-\d{1,6}/worker-\d{1,6}/clock\.json"
)
LARGE_FILE = re.compile(
    r"incidents/incident-\d{1,6}\.tar\.zst"
    r"|attempt-\d{1,6}/worker-\d{1,6}/(?:stdout|stderr|rank-\d{1,9}\.log)(?:\.idx)?"
)
LARGE_BYTES_MAX = 64 << 20  # limit per file; output is written at its own offset
WRITE_S = 5.0  # maximum interval of writes of `remote.json` while messages arrive
OTHER_NAMES_MAX = 100


class Remote(Struct, frozen=True, kw_only=True):
    """The sender of a streamed job. `heard_s`: time of its last message by the server's clock.

    `state`: the JobState on the job's host; empty if it is unknown yet.
    """

    identity: str
    host: str
    source: str
    job: str
    version: str = ""
    state: str = ""
    supervisor: str = ""
    heard_s: float = 0.0


class NotTaken(Exception):
    """Raised when the server rejects a message of an uplink. The text says why."""


def read_remote(job: JobDir) -> Remote | None:
    """Returns the sender of a streamed job; None for a local job."""
    try:
        return msgspec.json.decode((job.path / REMOTE).read_bytes(), type=Remote)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


class RemoteJob:
    """The folder of one streamed job, locked for one connection."""

    def __init__(self, job: JobDir, remote: Remote, store: Store, clock: Callable[[], float]) -> None:
        self.job = job
        self._remote = remote
        self._store = store
        self._clock = clock
        self._written_s = 0.0

    @property
    def last_seq(self) -> int:
        return self._store.last_seq

    def take_rows(self, rows: tuple[Raw, ...]) -> int:
        """Appends new journal rows and returns the number of the last one.

        Raises NotTaken on a gap, and JournalUnusable.
        """
        fresh = [row for row in rows if row[5] > self._store.last_seq]
        if fresh and fresh[0][5] != self._store.last_seq + 1:
            raise NotTaken(f"row {fresh[0][5]} does not follow row {self._store.last_seq}")
        if any(later[5] != row[5] + 1 for row, later in zip(fresh, fresh[1:], strict=False)):
            raise NotTaken("the rows of one message have a gap")
        return self._store.append([Row(*row[:5]) for row in fresh])

    def take_meta(self, key: str, value: bytes) -> None:
        """Stores one meta value of the journal. Raises JournalUnusable."""
        if self._store.meta(key) != value:
            self._store.set_meta(key, value)

    def take_file(self, sent: FileSent) -> None:
        """Writes a small file. Raises NotTaken and OSError."""
        if not SMALL_FILE.fullmatch(sent.name) or len(sent.content) > FILE_BYTES_MAX:
            raise NotTaken(f"a file {sent.name!r} of {len(sent.content)} bytes is rejected")
        path = self._place(sent.name)
        part = path.with_name(path.name + ".part")
        part.write_bytes(sent.content)
        os.replace(part, path)

    def take_part(self, sent: PartSent) -> None:
        """Writes a part of a large file. Raises NotTaken and OSError."""
        if not LARGE_FILE.fullmatch(sent.name) or sent.offset < 0:
            raise NotTaken(f"a part of {sent.name!r} is rejected")
        is_bundle = sent.name.startswith("incidents/")
        if is_bundle and sent.offset + len(sent.content) > LARGE_BYTES_MAX:
            raise NotTaken(f"{sent.name} has more than {LARGE_BYTES_MAX} bytes")
        path = self._place(sent.name)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "wb") as file:
            file.seek(sent.offset)
            file.write(sent.content)

    def alive(self, said: Alive) -> None:
        """Stores the state of the job as its host reports it. If it cannot be written, only this state is lost."""
        now_s = self._clock()
        changed = (said.state, said.supervisor) != (self._remote.state, self._remote.supervisor)
        self._remote = msgspec.structs.replace(
            self._remote, state=said.state, supervisor=said.supervisor, heard_s=now_s
        )
        if changed or now_s - self._written_s >= WRITE_S:
            self._written_s = now_s
            with suppress(OSError):
                _write_remote(self.job, self._remote)

    def close(self) -> None:
        with suppress(OSError):
            _write_remote(self.job, self._remote)
        self._store.close()

    def _place(self, name: str) -> Path:
        path = self.job.path.joinpath(*PurePosixPath(name).parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def opened(root: Path, begin: Begin, clock: Callable[[], float]) -> RemoteJob:
    """Opens the folder of a streamed job below `root`, and creates it if needed.

    Raises NotTaken, JournalUnusable and OSError.
    """
    if begin.protocol != PROTOCOL:
        raise NotTaken(
            f"the job uses protocol {begin.protocol} and this server uses protocol {PROTOCOL}: "
            "install the same version of Holdfast on both sides"
        )
    if not SOURCE.fullmatch(begin.source) or not JOB.fullmatch(begin.job):
        raise NotTaken(f"a job {begin.job!r} of {begin.source!r} is rejected: the name is not valid")
    jobs = root / STREAMED / begin.source / "jobs"
    job = _folder(jobs, begin)
    job.path.mkdir(parents=True, exist_ok=True)
    (job.path / "created").write_text(f"{begin.created_s!r}\n")
    remote = Remote(
        identity=begin.identity,
        host=begin.host,
        source=begin.source,
        job=begin.job,
        version=begin.version,
        heard_s=clock(),
    )
    _write_remote(job, remote)
    store = Store.open(job.journal_path)
    try:
        for key, value in begin.meta.items():
            if store.meta(key) != value:
                store.set_meta(key, value)
    except JournalUnusable:
        store.close()
        raise
    return RemoteJob(job, remote, store, clock)


def _folder(jobs: Path, begin: Begin) -> JobDir:
    """Returns the folder of a streamed job, with a number suffix if another job used its name.

    Raises NotTaken.
    """
    for number in range(1, OTHER_NAMES_MAX):
        name = begin.job if number == 1 else f"{begin.job[:58]}.{number}"
        job = JobDir(jobs / name)
        known = read_remote(job)
        if known is None or known.identity == begin.identity:
            return job
    raise NotTaken(f"{OTHER_NAMES_MAX} jobs of {begin.source} have the name {begin.job}: choose another")


def _write_remote(job: JobDir, remote: Remote) -> None:
    part = job.path / f"{REMOTE}.part"
    part.write_bytes(msgspec.json.encode(remote))
    os.replace(part, job.path / REMOTE)
