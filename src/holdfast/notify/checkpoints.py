"""Detects that the newest checkpoint is too old, by the last checkpoint that the training's log mentions."""

from collections.abc import Iterator

from holdfast.core.notify.happenings import Happening
from holdfast.journal.jobdir import JobDir
from holdfast.observe.logs.step_file import read
from holdfast.settings.times import length

WORKERS_MAX = 64  # rank 0 prints it, or every rank does


class CheckpointAge:
    """Detector of a checkpoint that is too old. `limit_s`: maximum age in seconds; 0 means that age is never
    reported.

    If the log mentions no checkpoint, the age is counted from the start of the attempt.
    """

    def __init__(self, job: JobDir, limit_s: float) -> None:
        self._job, self._limit_s = job, limit_s
        self._key = ""  # of what was said to be too old

    def look(self, attempt: int | None, started_s: float | None, now_s: float) -> Iterator[Happening]:
        """Yields the conditions to notify users of now. `attempt`: the number of the attempt that trains;
        None if none does.

        `started_s`: when that attempt started.
        """
        if attempt is None or self._limit_s <= 0:
            return
        saved_s = self._saved_s(attempt)
        last_s = saved_s if saved_s is not None else started_s
        if last_s is None:
            return
        key = f"checkpoint-{int(last_s)}"
        if now_s - last_s < self._limit_s:
            if self._key and saved_s is not None:
                yield Happening(
                    key=self._key, event="checkpoint-old", severity="info", at_s=now_s, is_over=True
                )
                self._key = ""
            return
        if key != self._key:
            self._key = key
            age = length(round(now_s - last_s))
            since = "the last checkpoint" if saved_s is not None else "the start, without a checkpoint"
            since_zh = "上一个检查点" if saved_s is not None else "启动"
            yield Happening(
                key=key,
                event="checkpoint-old",
                severity="warning",
                at_s=now_s,
                text=f"{age} since {since}: a failure now would lose the training since then",
                text_zh=f"距{since_zh}已 {age}，此时故障将损失全部进度",
            )

    def _saved_s(self, attempt: int) -> float | None:
        folders = sorted(self._job.attempt(attempt).glob("worker-*"))[:WORKERS_MAX]
        times = [
            found.now.checkpoint_at_s
            for found in map(read, folders)
            if found is not None and found.now.checkpoint_at_s is not None
        ]
        return max(times, default=None)
