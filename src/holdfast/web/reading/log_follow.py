"""Finds new log lines of jobs that viewers watch."""

import threading
from collections.abc import Callable

from holdfast.archive.job import Reading
from holdfast.model.documents.live import Change
from holdfast.web.refusals import Refusal

LINES_MAX = 1_000  # of one job at once


class LogFollow:
    """Follower of the logs of watched jobs. `read`: returns a snapshot of a job.

    `lines` is for one thread at a time.
    """

    def __init__(self, read: Callable[[str], Reading]) -> None:
        self._read = read
        self._watched: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._sent: dict[str, int] = {}  # the seq up to which lines were returned

    def begin(self, job: str) -> None:
        """Begins to follow a job, unless it is followed already; lines from now on are new.

        Raises Refusal.
        """
        seq = self._read(job).last_seq
        with self._lock:
            self._sent.setdefault(job, seq)

    def watch(self, jobs: frozenset[str]) -> None:
        """Sets the jobs that are watched now."""
        self._watched = jobs

    def lines(self) -> list[Change]:
        """Returns the new lines of watched jobs."""
        jobs = self._watched
        with self._lock:
            for job in self._sent.keys() - jobs:
                del self._sent[job]
        found: list[Change] = []
        for job in jobs:
            try:
                reading = self._read(job)
            except Refusal:
                continue
            since = self._sent.get(job, reading.last_seq)
            new = [one for one in reading.log if one.seq > since][-LINES_MAX:]
            found += [Change(kind="log", job=job, data=line) for line in new]
            with self._lock:
                self._sent[job] = max(since, reading.last_seq)
        return found
