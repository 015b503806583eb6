"""Detects that a training prints nothing: no output file of the current attempt has grown for some time."""

from collections.abc import Iterator
from contextlib import suppress

from holdfast.core.notify.happenings import Happening
from holdfast.journal.jobdir import JobDir
from holdfast.settings.times import length

FILES_MAX = 4_096


class Silence:
    """Detector of missing output. `silence_s`: seconds without output after which it is reported; 0 means
    never.

    Each silence is a notification of its own, identified by its start, so a restarted process does not report
    it twice.
    """

    def __init__(self, job: JobDir, silence_s: float) -> None:
        self._job, self._silence_s = job, silence_s
        self._key = ""  # of the silence that is on

    def look(self, attempt: int | None, now_s: float) -> Iterator[Happening]:
        """Yields the conditions to notify users of now. `attempt`: the number of the attempt that trains;
        None if none does.
        """
        last_s = self._last_output_s(attempt) if attempt is not None and self._silence_s > 0 else None
        if last_s is not None and now_s - last_s >= self._silence_s:
            key = f"silence-{int(last_s)}"
            if key != self._key:
                yield from self._over(now_s)
                self._key = key
                spoken = length(round(now_s - last_s))
                yield Happening(
                    key=key,
                    event="log-silence",
                    severity="warning",
                    at_s=now_s,
                    text=f"no output for {spoken}",
                    text_zh=f"{spoken} 没有输出",
                )
            return
        yield from self._over(now_s)

    def _over(self, now_s: float) -> Iterator[Happening]:
        if self._key:
            key, self._key = self._key, ""
            yield Happening(key=key, event="log-silence", severity="info", at_s=now_s, is_over=True)

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
