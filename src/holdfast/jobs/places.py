"""Finds the folder of a job: in the state folder, or in a fallback folder if that is not writable."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.journal.jobdir import JobDir, NoSuchJob, StateDir
from holdfast.settings.read import state_places


def found_job(name: str | None, root: Path) -> JobDir | None:
    """Returns the job of this name, or the newest job without a name; None if there is none.

    `root`: the state folder. Raises BadJobName and NoSuchJob.
    """
    if name is not None:
        return _of_name(name, root)
    newest = next(iter(StateDir(root).jobs()), None)
    if newest is None and not _can_be_written(root):
        return next((job for place in _other_places(root) for job in place.jobs()), None)
    return newest


def _of_name(name: str, root: Path) -> JobDir:
    try:
        return StateDir(root).job(name)
    except NoSuchJob:
        for place in _other_places(root):
            with suppress(NoSuchJob):
                return place.job(name)
        raise


def _other_places(root: Path) -> Iterator[StateDir]:
    """Yields fallback folders that this user owns, because anyone may write where they are."""
    for place in state_places(root)[1:]:
        with suppress(OSError):
            if (place / "jobs").stat().st_uid == os.getuid():
                yield StateDir(place)


def _can_be_written(folder: Path) -> bool:
    there = next((one for one in (folder, *folder.parents) if one.exists()), folder)
    return os.access(there, os.W_OK)
