"""Connects to the controller of a running job, for commands that query its nodes.

Anyone who may read the job's secret may connect. The controller of a single-node job listens only on request,
by a file in its folder.
"""

import getpass
import os
import secrets
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from holdfast.jobs.agent_place import CONTROLLER, SECRET, WANTED, AgentPlace
from holdfast.jobs.record import RecordUnreadable, open_record, supervisor
from holdfast.journal.jobdir import JobDir
from holdfast.link.agent_link import AgentLink
from holdfast.link.heard import Connected, Lost, Refused, Said
from holdfast.model.calls import AnyCallWord
from holdfast.observe.clock import JobClock
from holdfast.parsers.call_words import decode, encode

CONNECT_S = 10.0
BEAT_S = 0.1  # the link wants to be turned so often
GOODBYE_S = 0.5


class NoLine(Exception):
    """Raised when the job's controller cannot be reached. The message is one line: why, and what to do."""


class LineLost(NoLine):
    """Raised when an open connection to the controller was lost."""


class AnyLine(Protocol):
    """Interface of a connection to a controller, direct or through a server.

    `words` and `say` raise LineLost.
    """

    @property
    def job(self) -> JobDir: ...

    def say(self, word: AnyCallWord) -> None: ...

    def words(self, within_s: float, /) -> list[AnyCallWord]: ...

    def close(self) -> None: ...


class JobLine:
    """A direct connection to a controller. Blocks only in `words`, and briefly in `close`."""

    def __init__(self, job: JobDir, secret: bytes, clock: Callable[[], float]) -> None:
        self.job = job
        self._name = f"client-{secrets.token_hex(6)}"
        self._place = AgentPlace(job_folder=job.path, node=self._name, secret=secret)
        self._refused = ""
        self._lost = ""
        self._early: list[AnyCallWord] = []
        self._link = AgentLink(
            name=self._name,
            role="client",
            secret=secret,
            where=self._place.where,
            hello=lambda: b"",
            spool=None,
            clock=clock,
            tls=self._place.tls(),
        )

    def connect(self, within_s: float) -> None:
        """Connects to the controller. Raises NoLine after `within_s` seconds."""
        until_s = time.monotonic() + within_s
        while not self._link.connected:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or self._refused:
                raise NoLine(self._why_not())
            self._wait(min(left_s, BEAT_S), ())
            for heard in self._link.turn():
                if isinstance(heard, Refused):
                    self._refused = heard.why
                elif isinstance(heard, Said) and (word := decode(heard.body)):
                    self._early.append(word)

    def say(self, word: AnyCallWord) -> None:
        """Sends a message. Raises LineLost."""
        if not self._link.say(encode(word)):
            raise LineLost(f"the connection to the controller of job {self.job.name} was lost")

    def words(self, within_s: float, *others: int) -> list[AnyCallWord]:
        """Returns messages as soon as some have arrived. `others`: further descriptors to wait for.

        Raises LineLost, once all that arrived before has been returned.
        """
        if self._lost:
            raise LineLost(self._lost)
        found, self._early = self._early, []
        if not found:
            self._wait(max(0.0, min(within_s, BEAT_S)), others)
        for heard in self._link.turn():
            match heard:
                case Said(body=body):
                    found += [word] if (word := decode(body)) else []
                case Lost(why=why) | Refused(why=why):
                    self._lost = f"the connection to the controller of job {self.job.name} was lost: {why}"
                    break
                case Connected():  # not the connection that the call was made over
                    self._lost = f"the connection to the controller of job {self.job.name} was lost"
                    break
        if self._lost and not found:  # what came before it is the answer, often of a controller that ends
            raise LineLost(self._lost)
        return found

    def close(self) -> None:
        self._link.close(GOODBYE_S)

    def _wait(self, within_s: float, others: tuple[int, ...]) -> None:
        with suppress(InterruptedError):
            select.select((self._link.fileno(), *others), (), (), within_s)

    def _why_not(self) -> str:
        name = self.job.name
        where = ", ".join(f"{host}:{port}" for host, port in self._place.where())
        if self._refused:
            return f"the controller of job {name} at {where} refused: {self._refused}"
        if not where:
            return (
                f"job {name} has no known controller address: check with holdfast status {name} whether the job "
                "is running"
            )
        why = f" ({self._link.trouble})" if self._link.trouble else ""
        return (
            f"the controller of job {name} did not respond at {where} within {CONNECT_S:g} s{why}: "
            f"holdfast status {name} shows whether the job is running"
        )


def open_line(job: JobDir, *, within_s: float = CONNECT_S) -> JobLine:
    """Returns a connection to the controller of a job. Raises NoLine."""
    _check_running(job)
    until_s = time.monotonic() + within_s
    while not (job.path / CONTROLLER).exists() and time.monotonic() < until_s:
        time.sleep(BEAT_S)
    secret = _secret(job)
    if secret is None:
        raise NoLine(
            f"job {job.name} has no {SECRET} in {job.path}: its controller does not listen, "
            "or was started by an older Holdfast"
        )
    line = JobLine(job, secret, JobClock())
    try:
        line.connect(until_s - time.monotonic())
    except BaseException:
        line.close()
        raise
    return line


def who() -> str:
    """Returns `user@host` of this process, for journals and audit logs."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a number without a name, as in many containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _check_running(job: JobDir) -> None:
    """Checks in the journal that the job runs, and requests that a single-node job listens. Raises NoLine."""
    try:
        record = open_record(job)
    except RecordUnreadable as error:
        if (job.path / CONTROLLER).exists():
            return
        raise NoLine(str(error)) from error
    try:
        record.all_lines()
        if record.story.ended:
            outcome = record.story.summary().outcome
            raise NoLine(
                f"job {job.name} is not running; it has ended ({outcome}): see holdfast log {job.name}"
            )
        if record.is_one_machine:
            _want(job, record.facts)
    except RecordUnreadable as error:
        raise NoLine(str(error)) from error
    finally:
        record.close()


def _want(job: JobDir, facts: dict[str, Any]) -> None:
    """Requests by a file that the controller of a single-node job listens; it checks once a second.

    Raises NoLine.
    """
    host = facts.get("host")
    if isinstance(host, str) and host and host != socket.gethostname():
        raise NoLine(f"job {job.name} runs on {host}, and can be queried there only")
    if not supervisor(job, facts):
        raise NoLine(f"job {job.name} has no supervisor now: reattach with holdfast attach {job.name}")
    try:
        os.close(os.open(job.path / WANTED, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise NoLine(
            f"job {job.name} cannot be reached: {error}. Only users who may write its folder can connect"
        ) from error


def _secret(job: JobDir) -> bytes | None:
    """Returns the job's secret; None if there is none yet. Raises NoLine."""
    path = job.path / SECRET
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise NoLine(
            f"the secret of job {job.name} cannot be read ({error}): only the user who started the job "
            "can query its nodes"
        ) from error
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if not found:
        raise NoLine(f"{path} does not contain the secret of a job (64 hexadecimal digits)")
    return found


def written_secret(folder: Path) -> bytes:
    """Returns the job's secret, created if missing, in a file readable by this user only. Raises OSError."""
    path = folder / SECRET
    with suppress(FileNotFoundError, ValueError):
        if found := bytes.fromhex(path.read_text()):
            return found
    secret = secrets.token_bytes(32)
    part = folder / f"{SECRET}.{os.getpid()}.part"
    with suppress(FileNotFoundError):
        part.unlink()
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(secret.hex() + "\n")
    part.rename(path)
    return secret
