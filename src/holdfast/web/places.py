"""Finds the folder of a job by its id: its name, and `~2`, `~3`, ... behind it for jobs of the second, third ... folder."""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from holdfast.journal.jobdir import JobDir, StateDir, check_name
from holdfast.web.refusals import not_there


class Places:
    """`job`: only this one is there."""

    def __init__(self, folders: Sequence[Path], job: str = "") -> None:
        self._states = [StateDir(folder) for folder in folders]
        self._only = job

    def place(self, id_: str) -> JobDir:
        """raises: Refusal"""
        name, _, number = id_.partition("~")
        state = self._state(number)
        if state is None or (self._only and id_ != self._only):
            raise not_there(f"there is no job {id_}")
        try:
            check_name(name)
            return state.job(name)
        except (ValueError, LookupError) as error:
            near = get_close_matches(name, [job.name for job in state.jobs()[:1_000]], n=3)
            raise not_there(f"there is no job {id_}", near) from error

    def all(self) -> list[tuple[str, JobDir]]:
        """By id, the newest first."""
        found = [
            (job.name if number == 1 else f"{job.name}~{number}", job)
            for number, state in enumerate(self._states, 1)
            for job in state.jobs()
        ]
        if self._only:
            return [one for one in found if one[0] == self._only]
        return (
            sorted(found, key=lambda one: one[1].created_at_s(), reverse=True)
            if len(self._states) > 1
            else found
        )

    def _state(self, number: str) -> StateDir | None:
        if not number:
            return self._states[0]
        index = int(number) - 1 if number.isascii() and number.isdigit() else 0
        return self._states[index] if 0 < index < len(self._states) else None
