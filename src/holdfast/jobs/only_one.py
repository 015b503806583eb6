"""Ensures by a lock file that only one process of a kind runs for a job."""

import os
from pathlib import Path

from holdfast.journal.jobdir import flocked


def is_only_one(lock: Path) -> bool:
    """Returns True if no other process holds the lock file; this process then holds it until it ends.

    Raises OSError.

    On a disk without support for locks it is always True.
    """
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        flocked(descriptor)
    except OSError:
        os.close(descriptor)
        return False
    return True
