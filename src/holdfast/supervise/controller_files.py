"""Prepares a controller: files by which agents find and authenticate it, and its limit of open files."""

import os
import resource
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.engines.nodes import JobPlace
from holdfast.jobs.agent_place import CONTROLLER, SECRET, TOKEN
from holdfast.journal.jobdir import JobDir
from holdfast.model.nodes.workers import PROTOCOL

SECRET_BYTES = 32
CONNECTIONS = 65_536  # of agents, one each


def job_secret(job: JobDir) -> bytes:
    """Returns the secret by which controller and agents authenticate each other, created if missing.

    Raises OSError.
    """
    return bytes.fromhex(_kept_text(job.path / SECRET, lambda: secrets.token_hex(SECRET_BYTES)))


def shared_token(job: JobDir) -> str:
    """Returns a text from the job's folder; an agent that reads the same text shares the folder with the controller.

    Raises OSError.
    """
    return _kept_text(job.path / TOKEN, lambda: secrets.token_hex(8))


def publish(job: JobDir, listening: Sequence[tuple[str, int]], fingerprint: str) -> JobPlace:
    """Writes where the controller listens to `controller.json`, before any agent is started.

    Raises OSError.
    """
    addresses = tuple(f"{_bracketed(host)}:{port}" for host, port in listening)
    where: dict[str, object] = {
        "addresses": addresses,
        "instance": secrets.token_hex(8),
        "protocol": PROTOCOL,
        "fingerprint": fingerprint,
    }
    _write_whole(job.path / CONTROLLER, msgspec.json.encode(where))
    return JobPlace(
        job=job.name,
        folder=job.path,
        addresses=addresses,
        secret_file=job.path / SECRET,
        fingerprint=fingerprint,
    )


def withdraw(job: JobDir) -> None:
    """Removes `controller.json`, because the job has ended."""
    with suppress(OSError):
        (job.path / CONTROLLER).unlink()


def _kept_text(path: Path, make: Callable[[], str]) -> str:
    """Returns the text of a file readable by this user only, written first if it is missing.

    Raises OSError.
    """
    with suppress(FileNotFoundError):
        if text := path.read_text().strip():
            return text
    text = make()
    _write_whole(path, f"{text}\n".encode(), mode=0o600)
    return text


def _write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Writes a file atomically. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(new, path)


def allow_many_connections() -> None:
    """Raises the soft limit of open files, because each agent needs one; the usual limit allows a
    thousand.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        if hard == resource.RLIM_INFINITY or soft < hard:
            wanted = CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, CONNECTIONS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
