"""Looks whether the training still prints: no output file of the present attempt has grown for a while."""

from collections.abc import Iterator
from contextlib import suppress

from holdfast.core.notify.happenings import Happening
from holdfast.journal.jobdir import JobDir
from holdfast.settings.times import length

FILES_MAX = 4_096


class Silence:
    """`silence_s` 0: never."""

    def __init__(self, job: JobDir, silence_s: float) -> None:
        self._job, self._silence_s = job, silence_s
        self._is_silent = False

    def look(self, attempt: int | None, now_s: float) -> Iterator[Happening]:
        """`attempt`: the one that trains now; None: none does."""
        last_s = self._last_output_s(attempt) if attempt is not None and self._silence_s > 0 else None
        is_silent = last_s is not None and now_s - last_s >= self._silence_s
        if is_silent == self._is_silent:
            return
        self._is_silent = is_silent
        yield Happening(
            key="silence",
            event="log-silence",
            severity="warning" if is_silent else "info",
            at_s=now_s,
            text=f"no output for {length(round(now_s - last_s))}" if is_silent and last_s is not None else "",
            is_over=not is_silent,
        )

    def _last_output_s(self, attempt: int) -> float | None:
        newest: float | None = None
        count = 0
        for path in self._job.attempt(attempt).glob("worker-*/*"):
            if path.name not in ("stdout", "stderr") and path.suffix != ".log":
                continue
            count += 1
            if count > FILES_MAX:
                break
            with suppress(OSError):
                changed_s = path.stat().st_mtime
                newest = changed_s if newest is None else max(newest, changed_s)
        return newest
