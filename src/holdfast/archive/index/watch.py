"""Detects new, changed and removed jobs by sizes and times of files, which also works on network disks.

It checks active jobs each time and inactive ones (ended or dead) in turns, so that 10,000 inactive jobs cost
little.
"""

import os
from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from holdfast.archive.index.tracked import NO_JOURNAL, stamp
from holdfast.archive.places import Place, Places
from holdfast.journal.jobdir import NAME, JobDir

SWEEP_S = 10.0  # period in which each inactive job is checked once
SWEEP_MIN = 50  # minimum number of inactive jobs per check
SWEEP_MAX = 2_000  # maximum number of inactive jobs per check
SETTLED_S = 2.0  # a folder unchanged for this long is not read again
LIST_AGAIN_S = 30.0  # until this interval, because some disks have inexact times
NEW_S = 60.0  # a folder without a journal counts as active for this long


class Seen(Struct, frozen=True):
    """The result of one check of the folders.

    `due`: jobs whose journals changed; each occurs once until it is read. `gone`: removed jobs.
    """

    due: tuple[str, ...]
    gone: tuple[str, ...]


class _Watched:
    """A job of which file sizes and times are checked."""

    __slots__ = ("awake", "id", "is_due", "job", "place", "since_s", "stamp")

    def __init__(self, place: Place, job: JobDir, stamp: str, now_s: float) -> None:
        self.place, self.job, self.id = place, job, place.id_of(job.name)
        self.stamp = stamp  # of the journal when it was read; `NO_JOURNAL`: never read
        self.awake = True
        self.is_due = False
        self.since_s = now_s


class _Listing:
    """The names of the jobs in one state folder."""

    def __init__(self, place: Place, places: Places) -> None:
        self.place, self._places = place, places
        self.folder = place.root / "jobs"
        self._mtime_ns, self._read_s = -1, -LIST_AGAIN_S

    def names(self, now_s: float, wall_s: float) -> list[str] | None:
        """Returns the names; None if they have not changed.

        An unreadable folder counts as unchanged, a missing one as empty.
        """
        try:
            mtime_ns = os.stat(self.folder).st_mtime_ns
        except FileNotFoundError:
            self._mtime_ns = -1
            return []
        except OSError:
            return None
        is_settled = mtime_ns == self._mtime_ns and now_s - self._read_s < LIST_AGAIN_S
        if is_settled:
            return None
        try:
            with os.scandir(self.folder) as entries:
                found = [entry.name for entry in entries if self._is_job(entry)]
        except OSError:
            return None
        # Two changes within one tick of the disk's clock share a time.
        self._mtime_ns = mtime_ns if abs(wall_s - mtime_ns / 1e9) > SETTLED_S else -1
        self._read_s = now_s
        return found

    def _is_job(self, entry: os.DirEntry[str]) -> bool:
        named = NAME.fullmatch(entry.name) is not None and self._places.shows(self.place, entry.name)
        return named and entry.is_dir()


class Watch:
    """Watcher of state folders. `known`: stamps of indexed jobs. Not thread-safe."""

    def __init__(self, places: Places, known: dict[str, str]) -> None:
        self._known = known
        self._places = places
        self._listings: list[_Listing] = []
        self._jobs: dict[str, _Watched] = {}
        self._by_place: dict[str, set[str]] = {}
        self._sleepers: deque[str] = deque()
        self._swept_s: float | None = None

    def look(self, now_s: float, wall_s: float) -> Seen:
        """Checks the folders and returns what changed. `now_s`: the monotonic clock.

        `wall_s`: the clock of file times.
        """
        self._find_places()
        gone = [name for listing in self._listings for name in self._list(listing, now_s, wall_s)]
        due = [one.id for one in self._looked_at(now_s) if self._has_changed(one, now_s)]
        if self._known:  # indexed, but not on the disk
            gone += [name for name in self._known if name not in self._jobs]
            self._known = {}
        return Seen(tuple(dict.fromkeys(due)), tuple(dict.fromkeys(gone)))

    def place_of(self, name: str) -> tuple[Place, JobDir] | None:
        """Returns the state folder and the job folder of a job; None if it is gone."""
        one = self._jobs.get(name)
        return (one.place, one.job) if one is not None else None

    def was_read(self, name: str, stamp: str, *, awake: bool) -> None:
        """Records that a journal was read with this stamp.

        With `NO_JOURNAL`, the next check returns the job again.
        """
        one = self._jobs.get(name)
        if one is None:
            return
        one.stamp, one.is_due = stamp, False
        if one.awake and not awake:
            self._sleepers.append(name)
        one.awake = awake

    def wake(self, name: str) -> None:
        """Has the next turn check this job for changes."""
        one = self._jobs.get(name)
        if one is not None:
            one.awake, one.is_due = True, False

    def __len__(self) -> int:
        return len(self._jobs)

    # Inside -----------------------------------------------------------------------------------------------

    def _find_places(self) -> None:
        """Finds new sources of streamed jobs. A source without a folder has no jobs."""
        for place in self._places.all:
            if place.key not in self._by_place:
                self._by_place[place.key] = set()
                self._listings.append(_Listing(place, self._places))

    def _list(self, listing: _Listing, now_s: float, wall_s: float) -> Iterable[str]:
        names = listing.names(now_s, wall_s)
        if names is None:
            return ()
        before, now = self._by_place[listing.place.key], set(names)
        for name in now - before:
            job_id = listing.place.id_of(name)
            known = self._known.get(job_id, NO_JOURNAL)
            self._jobs[job_id] = _Watched(listing.place, JobDir(listing.folder / name), known, now_s)
        gone = [listing.place.id_of(name) for name in before - now]
        for job_id in gone:
            self._jobs.pop(job_id, None)
        self._by_place[listing.place.key] = now
        return gone

    def _looked_at(self, now_s: float) -> Iterable[_Watched]:
        """Yields all active jobs, and as many inactive ones as the time since the last check requires."""
        yield from [one for one in self._jobs.values() if one.awake and not one.is_due]
        passed_s = SWEEP_S if self._swept_s is None else now_s - self._swept_s
        share = min(1.0, max(0.0, passed_s / SWEEP_S))
        self._swept_s = now_s
        count = min(max(int(share * len(self._sleepers)), SWEEP_MIN), SWEEP_MAX, len(self._sleepers))
        for _ in range(count):
            name = self._sleepers.popleft()
            one = self._jobs.get(name)
            if one is not None and not one.awake:
                self._sleepers.append(name)
                if not one.is_due:
                    yield one

    def _has_changed(self, one: _Watched, now_s: float) -> bool:
        found = stamp(one.job)
        if found == NO_JOURNAL:
            if one.awake and now_s - one.since_s > NEW_S:
                one.awake = False
                self._sleepers.append(one.id)
            one.is_due = one.stamp != NO_JOURNAL  # the journal was removed
        else:
            one.is_due = found != one.stamp
        return one.is_due
