"""The folder in memory that holds the copy of a checkpoint.

    /dev/shm/holdfast-ram-UID-HASH/    one for each worker of a job; mode 700
        owner.json                     the job: its name and state folder, the worker's node
        lock  pid                      held by the process that makes the copies; its id
        use                            held for reading while the disk is compared with the copy, for writing to drop one
        3/files/...                    the copied files
        3/manifest.json                which they are; written last: without it the copy is not complete

A folder whose lock is free and whose job has no process is a leftover (both were killed): `sweep` removes it.
"""

import fcntl
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.agent.launch import marked
from holdfast.core.checkpoints.judge import Kept
from holdfast.link.messages import UNREADABLE

SHM = "/dev/shm"
PREFIX = "holdfast-ram"
COPIER = b"holdfast.agent.checkpoints.copier"
MANIFEST, FILES, OWNER, LOCK, USE, PID = "manifest.json", "files", "owner.json", "lock", "use", "pid"


class Owner(Struct, frozen=True, kw_only=True):
    """Whose copies these are. `created`: when the job was; empty where that is not recorded."""

    job: str
    state_dir: str
    node: str
    created: str = ""

    @property
    def marks(self) -> dict[str, str]:
        """The variables by which processes of the job are found."""
        return {"HOLDFAST_JOB": self.job, "HOLDFAST_STATE_DIR": self.state_dir}


class Manifest(Struct, frozen=True, kw_only=True):
    """A complete copy. `folder`: on the disk; the names of the files are relative to it. `unit`: the checkpoint's own
    folder in there; empty: it is files in `folder` itself. `device`: number of the file system of `folder`.
    `copied_ns`: the time since the epoch. `took_s`: how long the copying took.
    """

    number: int
    folder: str
    unit: str
    device: int
    copied_ns: int
    took_s: float
    files: tuple[Kept, ...]

    @property
    def size_bytes(self) -> int:
        return sum(one.size for one in self.files)

    @property
    def path(self) -> str:
        """Returns the path of the checkpoint on the disk: of its folder, its only file, or the folder of its files."""
        return os.path.join(self.folder, self.inner_path)

    @property
    def inner_path(self) -> str:
        own = [one.name for one in self.files if not one.tracker]
        return self.unit or (own[0] if len(own) == 1 else "")


class Store:
    """The folder of one worker's copies. `shm`: the file system in memory."""

    def __init__(self, owner: Owner, shm: str = SHM) -> None:
        words = "\0".join((owner.job, owner.state_dir, owner.node, owner.created))
        name = f"{PREFIX}-{os.getuid()}-{hashlib.sha256(words.encode()).hexdigest()[:16]}"
        self.owner = owner
        self.shm = shm
        self.folder = Path(shm, name)
        self._lock = -1

    def take(self) -> bool:
        """Makes the folder and takes its lock. False: another process has it. Raises OSError."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if os.lstat(self.folder).st_uid != os.getuid() or self.folder.is_symlink():
            raise PermissionError(f"{self.folder} belongs to another user")
        lock = _locked(self.folder / LOCK)
        if lock is None:
            return False
        self._lock = lock
        _replace(self.folder / PID, str(os.getpid()).encode())
        _replace(self.folder / OWNER, msgspec.json.encode(self.owner))
        for number in self._numbers():
            if not (self.folder / str(number) / MANIFEST).exists():  # of a copier that was killed
                shutil.rmtree(self.folder / str(number), ignore_errors=True)
        return True

    def copier(self) -> int | None:
        """Returns the id of the process that makes the copies; None if there is none."""
        with suppress(OSError, ValueError):
            pid = int((self.folder / PID).read_text())
            if COPIER in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        return None

    def release(self) -> None:
        """Lets another process take it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def newest(self) -> Manifest | None:
        """Returns the newest complete copy; None if there is none."""
        for number in sorted(self._numbers(), reverse=True):
            with suppress(OSError, *UNREADABLE):
                data = (self.folder / str(number) / MANIFEST).read_bytes()
                return msgspec.json.decode(data, type=Manifest)
        return None

    def next_number(self) -> int:
        return max(self._numbers(), default=0) + 1

    def files(self, number: int) -> Path:
        return self.folder / str(number) / FILES

    def copy_path(self, manifest: Manifest) -> str:
        """Returns where the copy of the checkpoint lies."""
        return str(self.files(manifest.number) / manifest.inner_path)

    def publish(self, manifest: Manifest) -> None:
        """Makes a copy complete. Raises OSError."""
        _replace(self.folder / str(manifest.number) / MANIFEST, msgspec.json.encode(manifest))

    def drop(self, *, but: int = 0) -> bool:
        """Removes all copies except number `but` (they count from 1). Returns False, and removes none, if one is in use."""
        use = self._use(fcntl.LOCK_EX | fcntl.LOCK_NB)
        if use is None:
            return False
        try:
            for number in self._numbers():
                if number != but:
                    with suppress(OSError):  # first what says that it is complete
                        (self.folder / str(number) / MANIFEST).unlink()
                    shutil.rmtree(self.folder / str(number), ignore_errors=True)
        finally:
            os.close(use)
        return True

    def in_use(self) -> int | None:
        """Keeps the copies from being dropped until the returned descriptor is closed; None: there are none."""
        return self._use(fcntl.LOCK_SH)

    def _use(self, how: int) -> int | None:
        try:
            descriptor = os.open(self.folder / USE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, how)
        except OSError:
            os.close(descriptor)
            return None
        return descriptor

    def remove(self) -> None:
        """Removes the folder with all copies."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _numbers(self) -> list[int]:
        try:
            return [int(name) for name in os.listdir(self.folder) if name.isdigit()]
        except OSError:
            return []


def leftovers(shm: str = SHM) -> Iterator[Path]:
    """Yields the folders of this user that no process has locked."""
    try:
        names = [name for name in os.listdir(shm) if name.startswith(f"{PREFIX}-{os.getuid()}-")]
    except OSError:
        return
    for name in names:
        lock = _locked(Path(shm, name, LOCK), make=False)
        if lock is not None:
            os.close(lock)
            yield Path(shm, name)


def sweep(shm: str = SHM) -> None:
    """Removes the folders of jobs that have no process any more, on this machine and of this user."""
    for folder in leftovers(shm):
        owner = None
        with suppress(OSError, *UNREADABLE):
            owner = msgspec.json.decode((folder / OWNER).read_bytes(), type=Owner)
        if owner is not None and marked(owner.marks):
            continue  # with --detach the training goes on, and the next supervisor takes its copy
        shutil.rmtree(folder, ignore_errors=True)


def _replace(path: Path, data: bytes) -> None:
    """Writes a file so that others read the old content or the new. Raises OSError."""
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)


def _locked(path: Path, *, make: bool = True) -> int | None:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


if __name__ == "__main__":
    sweep(*sys.argv[1:])
