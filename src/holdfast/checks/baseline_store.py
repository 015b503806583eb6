"""Stores the baseline of this node in the state folder. One writer at a time; a damaged or foreign file is reported."""

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
    """The file exists and cannot be read; the message names it and says what to do."""


def baseline_path(state_dir: Path, host: str) -> Path:
    return state_dir / FOLDER / f"{_ODD.sub('_', host) or 'node'}.json"


def read_baseline(path: Path) -> Baseline:
    """The stored baseline; empty if there is none. raises: BaselineUnusable"""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except FileNotFoundError:
        return Baseline()
    except (OSError, msgspec.MsgspecError) as error:
        raise BaselineUnusable(
            f"the baseline of this node cannot be read from {path}: {error};"
            " `holdfast check --baseline reset` starts a new one"
        ) from error


def change_baseline(path: Path, change: Callable[[Baseline], Baseline]) -> Baseline:
    """Reads, changes and replaces the baseline under a lock. raises: OSError, BaselineUnusable"""
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
