"""Writes the small files that agents look for, and raises the limit of connections, before a controller listens."""

import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CONNECTIONS = 65_536  # of agents, one each


def kept_text(path: Path, make: Callable[[], str]) -> str:
    """What is in the file, for this user alone; made where there is none. raises: OSError"""
    with suppress(FileNotFoundError):
        if text := path.read_text().strip():
            return text
    text = make()
    write_whole(path, f"{text}\n".encode(), mode=0o600)
    return text


def write_whole(path: Path, content: bytes, mode: int = 0o644) -> None:
    """A file that is there is whole. raises: OSError"""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(new, path)


def allow_many_connections() -> None:
    """One descriptor for each agent: of a few thousand the usual soft limit allows a quarter."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        if hard == resource.RLIM_INFINITY or soft < hard:
            wanted = CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, CONNECTIONS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
