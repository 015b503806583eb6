"""Defines the layout of the state folder: where each job keeps its journal, logs and incidents.

    jobs/<job>/journal.db
    jobs/<job>/attempt-001/worker-0/
    jobs/<job>/incidents/

Names and locks jobs. Never looks into a journal and never removes anything.
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
_SUFFIX_LETTERS = "bcdfghjkmnpqrstvwxz23456789"  # no vowels, so no words; none that look alike
_NAME_TRIES_MAX = 100
_CREATED, _LOCK = "created", "lock"
_NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


class BadJobName(ValueError):
    """The name is not valid for a job; the message says why."""


class NoSuchJob(LookupError):
    """The state folder has no job of this name."""


class JobExists(Exception):
    """A job of this name exists."""


class JobInUse(Exception):
    """Another process runs this job. `pid`: its id; None when it could not be read."""

    def __init__(self, name: str, pid: int | None) -> None:
        self.name, self.pid = name, pid
        holder = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"job {name} is being run by {holder}: wait for it to end, stop it"
            f"{f' (kill {pid})' if pid is not None else ''}; a new run needs another name, with --job"
        )


class StateUnwritable(OSError):
    """The state folder cannot be written; the caller may fall back to another one."""


class JobLock:
    """A lock on a job until release() or the end of the process. `held` is False if the disk supports no locks."""

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
    """The folder of one job. Gives paths; only lock() touches the disk."""

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
        """When the job was created; if unknown, the folder's own time."""
        with suppress(OSError, ValueError):
            return float((self.path / _CREATED).read_text())
        with suppress(OSError):
            return self.path.stat().st_mtime
        return 0.0

    def is_empty(self) -> bool:
        """True if nothing was ever run here. raises: OSError"""
        return {entry.name for entry in self.path.iterdir()} <= {_CREATED, _LOCK}


class StateDir:
    """The state folder of all jobs. It need not exist before the first create()."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._jobs = root / "jobs"

    def jobs(self) -> list[JobDir]:
        """All jobs, newest first; none if the folder is missing or cannot be read."""
        return sorted(self._found(), key=lambda job: (job.created_at_s(), job.name), reverse=True)

    def count(self) -> int:
        """The number of jobs, without reading anything of theirs."""
        return len(self._found())

    def _found(self) -> list[JobDir]:
        with suppress(OSError):
            return [
                JobDir(path) for path in self._jobs.iterdir() if NAME.fullmatch(path.name) and path.is_dir()
            ]
        return []

    def job(self, name: str) -> JobDir:
        """The folder of an existing job. raises: BadJobName, NoSuchJob"""
        check_name(name)
        job = JobDir(self._jobs / name)
        if not job.path.is_dir():
            raise NoSuchJob(f"there is no job {name} in {self._jobs}")
        return job

    def create(self, name: str | None, at_s: float) -> JobDir:
        """Creates a folder for a new job, under a generated name if none is given.

        raises: BadJobName; JobInUse or JobExists when the name was used; StateUnwritable
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
        """The folder of a job whose workers each have their own supervisor: the first one creates it.

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
        """E.g. 0131-1502-k7p: month, day, hour, minute and three random letters."""
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
        """The first free name of NAME-2, NAME-3, …"""
        stem, number = re.sub(r"-\d{1,3}$", "", name)[: NAME_CHARACTERS_MAX - 5], 2
        while (self._jobs / f"{stem}-{number}").exists():
            number += 1
        return f"{stem}-{number}"


def check_name(name: str) -> None:
    """Checks a job's name. raises: BadJobName, with the reason"""
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
    """Locks the file. False if the disk supports no locks, which must not fail a run. raises: BlockingIOError"""
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
