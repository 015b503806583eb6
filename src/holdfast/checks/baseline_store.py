"""Reads and writes the baseline of this node: a JSON file in the state folder with the values that earlier checks
measured.

A lock file allows one writer at a time. A file that is damaged or of another format raises an error and is kept.
"""

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.model.checks import Baseline

FOLDER = "baseline"
_ODD = re.compile(r"[^A-Za-z0-9._-]")


class BaselineUnusable(OSError):
    """Raised when the baseline file exists and cannot be read or decoded.

    The message names the file and says what to do.
    """


def baseline_path(state_dir: Path, host: str) -> Path:
    return state_dir / FOLDER / f"{_ODD.sub('_', host) or 'node'}.json"


def read_baseline(path: Path) -> Baseline:
    """Returns the stored baseline, or an empty one if the file does not exist. Raises BaselineUnusable."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except FileNotFoundError:
        return Baseline()
    except (OSError, msgspec.MsgspecError) as error:
        raise BaselineUnusable(
            f"the baseline of this node cannot be read from {path}: {error};"
            " delete it with `holdfast check --baseline reset`"
        ) from error


def change_baseline(path: Path, change: Callable[[Baseline], Baseline]) -> Baseline:
    """Replaces the stored baseline by `change(baseline)` under a file lock, and returns the new baseline.

    raises: OSError if the file cannot be written; BaselineUnusable if the old one cannot be read
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_baseline(path)
        after = change(before)
        if after != before:
            new = path.with_suffix(".new")
            with new.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(after)))
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        return after
