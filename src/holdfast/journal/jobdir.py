"""Defines the layout of the state folder, in which each job keeps its journal, logs and incident reports.

    jobs/<job>/journal.db
    jobs/<job>/attempt-001/worker-0/
    jobs/<job>/incidents/

Also names and locks jobs. Never reads a journal and never removes a file.
"""

import errno
import fcntl
import os
import re
import secrets
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NAME_CHARACTERS_MAX = 64
_SUFFIX_LETTERS = "bcdfghjkmnpqrstvwxz23456789"  # no vowels, to avoid words; no characters that look alike
_NAME_TRIES_MAX = 100
_CREATED, _LOCK = "created", "lock"
_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


class BadJobName(ValueError):
    """Raised for an invalid job name; the message gives the reason."""


class NoSuchJob(LookupError):
    """Raised if the state folder has no job of the given name."""


class JobExists(Exception):
    """Raised when a new job is given the name of an existing one."""


class JobInUse(Exception):
    """Raised when another process already runs the job. `pid`: the id of that process; None if it could not
    be read.
    """

    def __init__(self, name: str, pid: int | None) -> None:
        self.name, self.pid = name, pid
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"job {name} is being run by {holder}: wait for it to end, stop it"
            f"{f' (kill {pid})' if pid is not None else ''}; a new run needs another name, with --job"
        )


class StateUnwritable(OSError):
    """Raised when the state folder cannot be written; the caller may fall back to another folder."""


class JobLock:
    """A file lock by which one process reserves a job, held until release() or the end of the process.

    `held`: False if the file system supports no locks; the job is then not protected against a second
    process.
    """

    def __init__(self, descriptor: int, held: bool) -> None:
        self.held = held
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class JobDir:
    """The folder of one job: returns the paths of its files. Only lock() writes to disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.journal_path = path / "journal.db"
        self.incidents = path / "incidents"

    def attempt(self, number: int) -> Path:
        return self.path / f"attempt-{number:03}"

    def worker(self, attempt: int, worker: int) -> Path:
        return self.attempt(attempt) / f"worker-{worker}"

    def lock(self) -> JobLock:
        """Locks the job for this process. raises: JobInUse, StateUnwritable"""
        try:
            descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StateUnwritable(f"job {self.name} cannot be locked in {self.path}: {error}") from error
        try:
            held = flocked(descriptor)
        except BlockingIOError:
            pid = _pid_in(descriptor)
            os.close(descriptor)
            raise JobInUse(self.name, pid) from None
        except OSError as error:
            os.close(descriptor)
            raise StateUnwritable(f"job {self.name} cannot be locked in {self.path}: {error}") from error
        with suppress(OSError):  # on a full disk the lock holds all the same
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return JobLock(descriptor, held)

    def created_at_s(self) -> float:
        """Returns when the job was created, in seconds since the epoch; if not recorded, the folder's
        modification time.
        """
        with suppress(OSError, ValueError):
            return float((self.path / _CREATED).read_text())
        with suppress(OSError):
            return self.path.stat().st_mtime
        return 0.0

    def is_empty(self) -> bool:
        """Returns whether nothing was ever run in this job's folder. raises: OSError"""
        return {entry.name for entry in self.path.iterdir()} <= {_CREATED, _LOCK}


class StateDir:
    """The state folder, which holds the folders of all jobs. It need not exist before the first create()."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._jobs = root / "jobs"

    def jobs(self) -> list[JobDir]:
        """Returns all jobs, newest first; an empty list if the folder is missing or unreadable."""
        return sorted(self._found(), key=lambda job: (job.created_at_s(), job.name), reverse=True)

    def count(self) -> int:
        """Returns the number of jobs, without reading any file of theirs."""
        return len(self._found())

    def _found(self) -> list[JobDir]:
        with suppress(OSError):
            return [
                JobDir(path) for path in self._jobs.iterdir() if NAME.fullmatch(path.name) and path.is_dir()
            ]
        return []

    def job(self, name: str) -> JobDir:
        """Returns the folder of an existing job. raises: BadJobName, NoSuchJob"""
        check_name(name)
        job = JobDir(self._jobs / name)
        if not job.path.is_dir():
            raise NoSuchJob(f"there is no job {name} in {self._jobs}")
        return job

    def create(self, name: str | None, at_s: float) -> JobDir:
        """Creates the folder of a new job.

        `name`: None generates a name. `at_s`: creation time, seconds since the epoch.

        raises: BadJobName; JobInUse or JobExists if the name was used; StateUnwritable
        """
        if name is not None:
            check_name(name)
        try:
            self._jobs.mkdir(parents=True, exist_ok=True)
            job = self._made_up(at_s) if name is None else self._named(name)
            if not (job.path / _CREATED).exists():
                (job.path / _CREATED).write_text(f"{at_s!r}\n")
        except OSError as error:
            raise StateUnwritable(f"the state folder {self.root} cannot be written: {error}") from error
        return job

    def shared(self, name: str, at_s: float) -> JobDir:
        """Returns the folder of a job that several supervisors share, one per worker: the first one creates
        it.

        raises: BadJobName, StateUnwritable
        """
        check_name(name)
        job = JobDir(self._jobs / name)
        try:
            job.path.mkdir(parents=True, exist_ok=True)
            if not (job.path / _CREATED).exists():
                (job.path / _CREATED).write_text(f"{at_s!r}\n")
        except OSError as error:
            raise StateUnwritable(f"the state folder {self.root} cannot be written: {error}") from error
        return job

    def _made_up(self, at_s: float) -> JobDir:
        """Creates a job's folder with a generated name: month, day, hour, minute and 3 random characters
        (0131-1502-k7p).
        """
        day = datetime.fromtimestamp(at_s).astimezone()
        for _ in range(_NAME_TRIES_MAX):
            suffix = "".join(secrets.choice(_SUFFIX_LETTERS) for _ in range(3))
            path = self._jobs / f"{day:%m%d-%H%M}-{suffix}"
            with suppress(FileExistsError):
                path.mkdir()
                return JobDir(path)
        raise FileExistsError(f"no free job name was found in {self._jobs}")

    def _named(self, name: str) -> JobDir:
        job = JobDir(self._jobs / name)
        job.path.mkdir(exist_ok=True)
        if not job.is_empty():
            job.lock().release()  # raises JobInUse if the job still runs
            raise JobExists(
                f"job {name} exists in {self._jobs}: if it has not ended, holdfast attach {name} reattaches to it; else give "
                f"this run another name, such as --job {self._next(name)}, or remove {job.path} if it is not needed "
                f"any more"
            )
        return job

    def _next(self, name: str) -> str:
        """Returns the first unused name of NAME-2, NAME-3, …"""
        stem, number = re.sub(r"-\d{1,3}$", "", name)[: NAME_CHARACTERS_MAX - 5], 2
        while (self._jobs / f"{stem}-{number}").exists():
            number += 1
        return f"{stem}-{number}"


def check_name(name: str) -> None:
    """Checks that a job name is valid. raises: BadJobName with the reason"""
    if NAME.fullmatch(name):
        return
    if not name:
        reason = "it is empty"
    elif len(name) > NAME_CHARACTERS_MAX:
        reason = f"it has {len(name)} characters, at most {NAME_CHARACTERS_MAX} are allowed"
    elif not re.match("[A-Za-z0-9]", name):
        reason = f"it begins with {name[0]!r}, not with a letter or digit"
    else:
        bad = "".join(dict.fromkeys(re.sub("[A-Za-z0-9._-]", "", name)))
        reason = f"only letters, digits, dot, underscore and hyphen are allowed, not {bad!r}"
    raise BadJobName(f"{name!r} cannot be the name of a job: {reason}")


def flocked(descriptor: int) -> bool:
    """Locks an open file with flock.

    Returns False if the file system supports no locks, which must not fail a run.

    raises: BlockingIOError if another process holds the lock
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _NO_LOCKS_HERE:
            return False
        raise
    return True


def _pid_in(descriptor: int) -> int | None:
    with suppress(OSError, ValueError):
        return int(os.pread(descriptor, 32, 0))
    return None
