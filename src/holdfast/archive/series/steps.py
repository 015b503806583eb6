"""Reads the step times of jobs from their journals, and caches them. Each read costs only the new entries."""

import threading
from collections import OrderedDict

import msgspec
from msgspec import Struct

from holdfast.journal.jobdir import JobDir
from holdfast.journal.rows import Tail
from holdfast.journal.store import Reader, open_reader
from holdfast.views.jobs.series import Steps

STEP_KIND = "step-reached"
JOBS_MAX = 32
ENTRIES_MAX = 4_000_000  # per job: 46 days at one entry a second


class _Reached(Struct):
    attempt: int
    step: int


_reached = msgspec.json.Decoder(_Reached)


class StepTimes:
    """A cache of step times of the most recently requested jobs. Thread-safe."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Job] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, job: JobDir) -> Steps:
        """Returns the steps of a job, which the caller must not change. Raises JournalUnusable."""
        with self._lock:
            key = str(job.path)
            known = self._jobs.pop(key, None) or _Job()
            known.read_on(job)
            self._jobs[key] = known
            while len(self._jobs) > JOBS_MAX:
                self._jobs.popitem(last=False)
            return known.steps


class _Job:
    def __init__(self) -> None:
        self.steps = Steps()
        self._tail = Tail()

    def read_on(self, job: JobDir) -> None:
        """Reads new entries. Raises JournalUnusable."""
        reader = open_reader(job.journal_path)
        try:
            if not reader.holds(self._tail):  # the journal was replaced
                self.steps, self._tail = Steps(), Tail()
            self._read(reader)
        finally:
            reader.close()

    def _read(self, reader: Reader) -> None:
        for chunk in reader.read_chunks(self._tail):
            self._tail = Tail(*chunk[-1][5:])
            for row in chunk:
                if row[1] == STEP_KIND and len(self.steps.at_s) < ENTRIES_MAX:
                    self._add(row[0], row[2])

    def _add(self, at_s: float, event: bytes) -> None:
        try:
            reached = _reached.decode(event)
        except msgspec.MsgspecError:  # written by another version
            return
        self.steps.add(at_s, reached.step, reached.attempt)
