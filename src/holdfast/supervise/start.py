"""Begins and resumes a run: its folder, its journal, its environment."""

import os
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from holdfast import __version__
from holdfast.controller.loop import replay
from holdfast.journal.jobdir import JobDir, JobExists, JobInUse, JobLock, StateDir, StateUnwritable
from holdfast.journal.recorder import Recorder
from holdfast.journal.rows import RawEntry
from holdfast.journal.store import JournalUnusable, NewerJournal, open_reader
from holdfast.model.events import StopRequested
from holdfast.model.settings import RunSettings
from holdfast.model.state import Ended, State
from holdfast.observe.clock import JobClock
from holdfast.parsers.commands import recognise
from holdfast.settings.read import state_places
from holdfast.views.console import Console

Made = TypeVar("Made")
USAGE = 2
NO_RECORD = (NewerJournal, JournalUnusable, OSError, msgspec.MsgspecError, KeyError)
ENVIRONMENT = "environment"  # beside the journal, while a job lives that may be resumed


class Begun(NamedTuple):
    """A new run: its settings, locked folder and working directory."""

    settings: RunSettings
    job: JobDir
    lock: JobLock
    cwd: str


def begun(settings: RunSettings, console: Console) -> Begun | None:
    """Returns the locked folder and working directory of a new run; None if that is impossible, after
    printing why.
    """
    try:
        cwd = os.getcwd()
    except OSError as error:
        console.tell(f"the working folder no longer exists ({error.strerror}): change to another folder")
        return None
    try:
        job, lock, settings = job_folder(settings, JobClock()(), console)
    except (JobExists, JobInUse, ValueError) as error:
        console.tell(str(error))
        return None
    return Begun(with_launcher(settings), job, lock, cwd)


def write_facts(record: Recorder, settings: RunSettings, name: str, cwd: str) -> None:
    """Records in the journal how the job was started, for later processes. `name`: name of the whole job."""
    record.set_meta("policy", msgspec.json.encode(settings.policy))
    facts = {
        "name": name,
        "command": settings.command,
        "cwd": cwd,
        "host": socket.gethostname(),
        "version": __version__,
        "pid": os.getpid(),
        "detach": settings.detach,
        "settings": settings,
    }
    record.set_meta("job", msgspec.json.encode(facts))


def stop_request(number: int, at_s: float, *, force: bool, finish_s: float) -> StopRequested:
    """Returns the stop request for a signal.

    `finish_s`: if the signal was passed on to the command, how many seconds that may take to end.
    """
    reason = f"{signal.Signals(number).name} was sent to Holdfast"
    return StopRequested(
        at_s=at_s,
        reason=reason,
        force=force,
        code=128 + number,
        finish_s=0.0 if force else finish_s,
        by="signal",
    )


def with_launcher(settings: RunSettings) -> RunSettings:
    """Returns settings adjusted for a launcher that restarts its ranks itself: Holdfast acts only when it
    gives up.
    """
    if not recognise(settings.command, os.environ).restarts:
        return settings
    policy = msgspec.structs.replace(settings.policy, launcher_restarts=True)
    return msgspec.structs.replace(settings, policy=policy)


def recorded(job: JobDir) -> tuple[RunSettings, str, list[RawEntry]]:
    """Returns settings, working directory and journal rows of a job."""
    reader = open_reader(job.journal_path)
    try:
        facts = msgspec.json.decode(reader.meta("job") or b"{}")
        settings = msgspec.convert(facts["settings"], RunSettings)
        return settings, str(facts["cwd"]), list(reader.read_raw())
    finally:
        reader.close()


class TakenUp(NamedTuple):
    """A resumed job: its settings, its working directory, its journal, and the state computed from it."""

    settings: RunSettings
    cwd: str
    rows: list[RawEntry]
    state: State


class NotTakenUp(NamedTuple):
    """Result if a job was not resumed, after the reason was printed. `code`: exit code."""

    code: int
    has_ended: bool


def locked(job: JobDir, console: Console) -> JobLock | None:
    """Locks a recorded job; None if another process holds it or its folder is not writable, after printing
    why.
    """
    try:
        return job.lock()
    except (JobInUse, StateUnwritable) as error:
        console.tell(str(error))
        return None


def taken_up(job: JobDir, console: Console, *, quiet: bool | None = None) -> TakenUp | NotTakenUp:
    """Reads the journal of a locked job. `quiet`: overrides the setting of its first start."""
    try:
        settings, cwd, rows = recorded(job)
    except NO_RECORD as error:
        console.tell(f"the journal of {job.name} cannot be read: {error}")
        return NotTakenUp(USAGE, has_ended=False)
    state = replay(rows, settings.policy)
    if isinstance(state.phase, Ended):
        console.tell(f"{job.name} has ended: {state.phase.outcome}: {state.phase.reason}")
        return NotTakenUp(state.phase.code, has_ended=True)
    if quiet is not None:
        settings = msgspec.structs.replace(settings, quiet=quiet)
    return TakenUp(settings, cwd, rows, state)


def kept_environment(job: JobDir, console: Console) -> Mapping[str, str]:
    """Returns the environment of the `holdfast run` that started the job."""
    try:
        pairs = (job.path / ENVIRONMENT).read_bytes().split(b"\0")
    except OSError:
        console.tell(
            "the environment of the first start is unknown: restarts use the environment of this shell"
        )
        return os.environ
    return dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)


def job_folder(settings: RunSettings, at_s: float, console: Console) -> tuple[JobDir, JobLock, RunSettings]:
    """Creates the job's folder and locks it. Raises ValueError, JobExists and JobInUse."""

    def held(state: StateDir) -> tuple[JobDir, JobLock]:
        job = state.create(settings.job, at_s)
        return job, job.lock()

    (job, lock), settings = in_state_folder(settings, held, console)
    return job, lock, settings


def in_state_folder(
    settings: RunSettings, make: Callable[[StateDir], Made], console: Console
) -> tuple[Made, RunSettings]:
    """Creates something in the state folder, or in a fallback folder with a message if that is not writable.

    Raises ValueError if no folder is writable.
    """
    places = state_places(Path(settings.state_dir))
    for place in places:
        try:
            return make(StateDir(place)), msgspec.structs.replace(settings, state_dir=str(place))
        except StateUnwritable as error:
            console.tell(f"{error}; trying another folder for the record; the training starts anyway")
    raise ValueError(f"no folder can be written for the job's output: tried {', '.join(map(str, places))}")


def keep_environment(job: JobDir, env: Mapping[str, str], console: Console) -> None:
    """Stores the environment for restarts after an attach from another shell.

    It can contain secrets, so the file is readable by this user only, and removed when the job ends.
    """
    try:
        fd = os.open(job.path / ENVIRONMENT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(b"\0".join(os.fsencode(f"{key}={value}") for key, value in env.items()))
    except OSError as error:
        console.tell(f"the environment cannot be saved for a later attach: {error}")


def forget_environment(job: JobDir) -> None:
    with suppress(OSError):
        os.unlink(job.path / ENVIRONMENT)
