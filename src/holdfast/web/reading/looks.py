"""Keeps the last looks at jobs, so that many viewers of one job cost one reading.

A look is used again while the job's journal has not changed, and for a moment at most: the state of a live job can change
without an entry, and its files grow.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from holdfast.archive.index.tracked import stamp
from holdfast.archive.job import Reading, read
from holdfast.archive.places import Place
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.parts import LIVE_STATES

FRESH_S = 0.5
ENDED_FRESH_S = 5.0
LOOKS_MAX = 64
LOCKS = 16


class _Look(Struct, frozen=True):
    stamp: str
    at_s: float
    reading: Reading


class Looks:
    """For any thread. `clock`: never goes back. `wall`: that of files."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        self._looks: OrderedDict[str, _Look] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = [threading.Lock() for _ in range(LOCKS)]

    def reading(self, place: Place, job: JobDir) -> Reading:
        """raises: RecordUnreadable"""
        id_ = place.id_of(job.name)
        with self._reading[hash(id_) % LOCKS]:  # the second viewer waits for the first one's look
            found = self._known(id_, stamp(job))
            if found is not None:
                return found
            seen = stamp(job)
            made = read(job, self._wall, job_id=id_, source=place.source)
            with self._lock:
                self._looks[id_] = _Look(seen, self._clock(), made)
                self._looks.move_to_end(id_)
                while len(self._looks) > LOOKS_MAX:
                    self._looks.popitem(last=False)
            return made

    def _known(self, id_: str, now: str) -> Reading | None:
        with self._lock:
            look = self._looks.get(id_)
        if look is None or look.stamp != now:
            return None
        is_live = look.reading.truth.state in LIVE_STATES or look.reading.truth.state == "unknown"
        return look.reading if self._clock() - look.at_s < (FRESH_S if is_live else ENDED_FRESH_S) else None
