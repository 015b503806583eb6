"""Caches snapshots of jobs, so that many viewers of one job cost one reading.

A snapshot is used again while the job's journal has not changed, and for a short time only, because the state
of a live job can change without an entry, and its files grow.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from holdfast.archive.heard import Heard
from holdfast.archive.index.tracked import stamp
from holdfast.archive.job import Reading
from holdfast.archive.places import Place
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.parts import LIVE_STATES

FRESH_S = 0.5
ENDED_FRESH_S = 5.0
LOOKS_MAX = 64
LOCKS = 16


class _Look(Struct, frozen=True):
    """A cached snapshot.

    `heard`: the journal as far as it was read, from which the next reading continues.
    """

    stamp: str
    at_s: float
    reading: Reading
    heard: Heard


class Looks:
    """The cache of snapshots, for any thread. `clock`: the monotonic clock.

    `wall`: the clock of file times.
    """

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        self._looks: OrderedDict[str, _Look] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = [threading.Lock() for _ in range(LOCKS)]

    def reading(self, place: Place, job: JobDir) -> Reading:
        """Returns a snapshot of a job. Raises RecordUnreadable."""
        id_ = place.id_of(job.name)
        with self._reading[hash(id_) % LOCKS]:  # the second viewer waits for the first one's look
            now = stamp(job)
            look = self._known(id_)
            if look is not None and look.stamp == now and self._is_fresh(look):
                return look.reading
            heard = look.heard if look is not None else Heard(job)
            heard.read_on()
            made = Reading(heard, self._wall, job_id=id_, source=place.source)
            with self._lock:
                self._looks[id_] = _Look(now, self._clock(), made, heard)
                self._looks.move_to_end(id_)
                while len(self._looks) > LOOKS_MAX:
                    self._looks.popitem(last=False)
            return made

    def _known(self, id_: str) -> _Look | None:
        with self._lock:
            return self._looks.get(id_)

    def _is_fresh(self, look: _Look) -> bool:
        is_live = look.reading.truth.state in LIVE_STATES or look.reading.truth.state == "unknown"
        return self._clock() - look.at_s < (FRESH_S if is_live else ENDED_FRESH_S)
