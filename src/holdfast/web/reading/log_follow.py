"""Finds new lines of the fault-tolerance logs of jobs that somebody watches."""

from collections.abc import Callable, Iterable

from holdfast.archive.job import Reading
from holdfast.model.documents.live import Change
from holdfast.web.refusals import Refusal

LINES_MAX = 1_000  # of one job at once


class LogFollow:
    """`read`: a look at a job, as it is now. Called from one thread at a time, but for `watch`."""

    def __init__(self, read: Callable[[str], Reading]) -> None:
        self._read = read
        self._watched: frozenset[str] = frozenset()
        self._told: dict[str, int] = {}  # the seq up to which lines were told

    def watch(self, jobs: frozenset[str]) -> None:
        """Only these jobs are watched now."""
        self._watched = jobs

    def lines(self, changed: Iterable[Change]) -> list[Change]:
        """New lines of watched jobs that have changed; of a job that is watched from now on, those to come."""
        jobs = {one.job for one in changed if one.job in self._watched}
        jobs |= self._watched - self._told.keys()
        self._told = {job: seq for job, seq in self._told.items() if job in self._watched}
        found: list[Change] = []
        for job in jobs:
            try:
                reading = self._read(job)
            except Refusal:
                continue
            since = self._told.get(job, reading.last_seq)
            new = [one for one in reading.log if one.seq > since][-LINES_MAX:]
            found += [Change(kind="log", job=job, data=line) for line in new]
            self._told[job] = max(since, reading.last_seq)
        return found
