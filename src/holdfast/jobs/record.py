"""Opens a job for reading, running or not: its journal, its settings, its supervisor.

Never writes, and never takes a job's lock.
"""

import errno
import fcntl
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.controller.loop import decisions
from holdfast.core.job.story import Line, Story
from holdfast.jobs.elsewhere import JobElsewhere, is_elsewhere
from holdfast.jobs.places import found_job
from holdfast.journal.jobdir import BadJobName, JobDir, NoSuchJob, StateDir
from holdfast.journal.rows import RawEntry
from holdfast.journal.store import JournalUnusable, Reader, open_reader
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.observe.processes.procs import is_there
from holdfast.settings.read import SettingsRefused, state_root

LOOK_S = 0.5  # while following
LOCK_NAME = "lock"

Kind = TypeVar("Kind")


class RecordUnreadable(Exception):
    """Raised when the job does not exist or its journal cannot be read. The message is one line: which, and what to
    do.
    """


class Record:
    """A job open for reading. `story`: the summary of its journal, as far as it was read."""

    def __init__(self, job: JobDir, reader: Reader) -> None:
        self.job = job
        self.reader = reader
        meta = reader.all_meta()
        self.facts: dict[str, Any] = _decoded(meta.get("job"), dict[str, Any]) or {}
        policy = _decoded(meta.get("policy"), Policy)
        self.notes = (
            [] if policy is not None else ["the journal contains no policy: default settings are assumed"]
        )
        self.policy = policy or Policy()
        self.story = Story(self.policy)

    def lines(self, rows: Iterator[RawEntry]) -> Iterator[Line]:
        for event, decision in decisions(rows, self.policy):
            yield from self.story.hear(event, decision)

    def all_lines(self) -> list[Line]:
        """Returns all log lines in the journal so far. Raises RecordUnreadable."""
        try:
            return list(self.lines(self.reader.read_raw()))
        except JournalUnusable as error:
            raise RecordUnreadable(str(error)) from error

    def followed(self, go_on: Callable[[], bool]) -> Iterator[RawEntry]:
        """Yields all journal rows, and new ones as they come, until `go_on` returns False and there is
        nothing new.
        """
        seq = 0
        while True:
            more = go_on()
            for row in self.reader.read_raw(seq):
                seq = row[5]
                yield row
            if not more or self.reader.damage:
                return
            time.sleep(LOOK_S)

    @property
    def command(self) -> str:
        words = self.facts.get("command")
        return shlex.join(map(str, words)) if isinstance(words, list) else ""

    @property
    def settings(self) -> RunSettings | None:
        """Returns the settings that the job was started with; None if the journal does not have them."""
        try:
            return msgspec.convert(self.facts["settings"], RunSettings)
        except (KeyError, msgspec.MsgspecError):
            return None

    @property
    def is_one_machine(self) -> bool:
        """Returns True if the job runs on one node, with agent and controller in one process."""
        settings = self.settings
        return settings is None or settings.is_one_machine

    def close(self) -> None:
        self.reader.close()


def labels_of(facts: dict[str, Any]) -> dict[str, str]:
    """Returns the labels that the job was started with."""
    settings = facts.get("settings")
    found = settings.get("labels") if isinstance(settings, dict) else None
    pairs = (str(one).partition("=") for one in found) if isinstance(found, list) else ()
    return {key: value for key, _, value in pairs}


def named_job(name: str | None, state_dir: str | None) -> JobDir:
    """Returns the job of this name, or the newest job without a name. Raises RecordUnreadable."""
    try:
        root = state_root(state_dir, os.environ)
        found = found_job(name, root)
    except NoSuchJob as error:
        why = _with_near_name(str(error), name, state_dir)
        if is_elsewhere(name, root, os.environ):
            raise JobElsewhere(name, root, why) from error
        raise RecordUnreadable(why) from error
    except (BadJobName, SettingsRefused) as error:
        raise RecordUnreadable(_with_near_name(str(error), name, state_dir)) from error
    if found is None:
        if is_elsewhere(name, root, os.environ):
            raise JobElsewhere(name, root, f"there is no job in {root}")
        raise RecordUnreadable(f"there is no job in {root} yet: start one with holdfast run -- COMMAND")
    return found


def open_record(job: JobDir) -> Record:
    """Opens a job for reading. Raises RecordUnreadable."""
    try:
        return Record(job, open_reader(job.journal_path))
    except JournalUnusable as error:
        raise RecordUnreadable(str(error)) from error


def supervisor(job: JobDir, facts: dict[str, Any]) -> str:
    """Returns a description of the process that holds the job's lock; empty if there is none."""
    path = job.path / LOCK_NAME
    if not path.exists():
        return ""
    pid = _pid(path)
    held = _is_locked(path)
    if held is None:  # the disk has no locks: the process must do
        held = pid is not None and is_there(pid)
    if not held:
        return ""
    host = facts.get("host")
    where = f" on {host}" if isinstance(host, str) and host else ""
    return f"process {pid}{where}" if pid is not None else f"another process{where}"


def _with_near_name(text: str, name: str | None, state_dir: str | None) -> str:
    if name is None:
        return text
    with suppress(SettingsRefused):
        jobs = [job.name for job in StateDir(state_root(state_dir, os.environ)).jobs()]
        if jobs:
            return f"{text}; the newest are {', '.join(jobs[:5])}"
    return text


def _is_locked(path: Path) -> bool | None:
    """Returns whether another process holds the lock; None if unknown.

    It tries a shared lock and releases it at once, which does not disturb a holder.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return True if error.errno == errno.EWOULDBLOCK else None
    finally:
        os.close(descriptor)
    return False


def _pid(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text().strip() or "x")
    return None


def _decoded(raw: bytes | None, kind: type[Kind]) -> Kind | None:
    """Returns a decoded value; None if it is missing, or another version wrote it in another format."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.MsgspecError:
        return None
