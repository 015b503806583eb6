"""Lets one process of a kind run for a job: the others find its lock held."""

import os
from pathlib import Path

from holdfast.journal.jobdir import flocked


def is_only_one(lock: Path) -> bool:
    """True if no other process holds the lock file; this process then holds it until it ends.

    On a disk that supports no locks always True, as for the lock of a job. raises: OSError
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flocked(descriptor)
    except OSError:
        os.close(descriptor)
        return False
    return True
