"""Prints the output of all workers on the console, from the files in the job's folder.

Each turn reads some workers, and one that falls far behind skips ahead; the files have everything.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.observe.logs.follow import Chunk, Follower

LOOKED_AT_MAX = 32  # workers, in one turn
NOTES_MAX = 20  # reported for one attempt


class WorkerEcho:
    """Printer of the workers' output. `folder`: the job's. `echo`: prints lines with their prefix."""

    def __init__(
        self, folder: Path, echo: Callable[[Chunk, bytes], None], tell: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._echo = echo
        self._tell = tell
        self._attempt = 0
        self._followers: dict[int, Follower] = {}
        self._next = 0
        self._notes = 0

    def follow(self, attempt: int, workers: Iterable[int], at_s: float, *, from_end: bool = False) -> None:
        """Follows these workers. `from_end`: another process has printed their earlier output."""
        if attempt == self._attempt:
            return
        self.finish(at_s)
        self._attempt, self._next, self._notes = attempt, 0, 0
        self._followers = {
            worker: Follower(self._folder / f"attempt-{attempt:03d}" / f"worker-{worker}", from_end=from_end)
            for worker in sorted(workers)
        }

    def turn(self, at_s: float) -> None:
        workers = list(self._followers)
        for _ in range(min(LOOKED_AT_MAX, len(workers))):
            self._next %= len(workers)
            worker = workers[self._next]
            self._next += 1
            follower = self._followers[worker]
            self._show(worker, follower.poll(at_s))
            self._say(worker, follower)

    def look_at(self, worker: int, at_s: float) -> None:
        """Prints this worker's output now, so that it precedes the next message about it."""
        if (follower := self._followers.get(worker)) is not None:
            self._show(worker, follower.poll(at_s))

    def finish(self, at_s: float) -> None:
        """Prints the remaining output, and stops following this attempt."""
        for worker, follower in self._followers.items():
            self._show(worker, follower.finish(at_s))
            follower.close()
        self._followers = {}
        self._attempt = 0

    def _show(self, worker: int, chunks: Iterable[Chunk]) -> None:
        before = b"[worker %d] " % worker if len(self._followers) > 1 else b""
        for chunk in chunks:
            self._echo(chunk, before)

    def _say(self, worker: int, follower: Follower) -> None:
        for text in follower.notes:
            if self._notes < NOTES_MAX:
                self._tell(f"worker {worker}: {text}")
            self._notes += 1
        follower.notes.clear()
