"""Who of an attempt's ranks is slower than the others, watched while it trains.

Brings the sources together: whom others are awaited by, once a second; how long control groups held a rank back; what
ranks log of their own; and, where these make somebody suspect and now and then anyway, when each rank entered its
collectives, from flight records fetched in a thread. Concludes nothing itself, and waits for nothing.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.core.stragglers.records import Arrival, arrivals, peers
from holdfast.core.stragglers.watch import StragglerWatch
from holdfast.model.flight import FlightRecord
from holdfast.model.samples import RankSample
from holdfast.model.steps import StepFinding, StepRecord, Straggler
from holdfast.observe.throttling import ThrottleReader
from holdfast.observe.worker_server import OTHER_RECORDER, flight_records
from holdfast.parsers.flight import read_record

RECORDS_S = 1.5  # for the answer of one rank; one that trains answers between two steps
THROTTLE_EVERY = 4  # samples; 0.4 ms of a core for each rank
ARRIVALS_AT_ONCE = 100  # taken in with one look: the wheel is not held up by a minute's worth
STEPS_WAITING_MAX = 64  # until every rank has told of a step
RECORDS_MAX = 20_000  # of all ranks, between two polls
COMPARED_S, SHORTEST_S = 0.1, 1e-4  # between two steps that are compared
LOWEST = 19


class StragglerWatching:
    """The ranks of one attempt on this worker. `folder`: where they listen."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watch = StragglerWatch()
        self._throttles: dict[int, ThrottleReader] = {}
        self._samples = 0
        self._told: deque[StepRecord] = deque(maxlen=RECORDS_MAX)
        self._told_by: set[int] = set()
        self._stride = 1
        self._steps: dict[int, dict[int, StepRecord]] = {}
        self._fetch: Fetch | None = None
        self._fetched = False
        self._arrivals: deque[Arrival] = deque()

    def told(self, record: StepRecord) -> None:
        """What one rank logs of one of its steps. Of short ones every few are compared, the same of all ranks."""
        if record.rank is None or record.step is None or record.time_s is None:
            return
        if record.time_s * self._stride < COMPARED_S / 2 or record.time_s * self._stride > 4 * COMPARED_S:
            self._stride = max(1, int(COMPARED_S / max(record.time_s, SHORTEST_S)))
        if record.step % self._stride == 0:
            self._told.append(record)

    def _one(self, record: StepRecord) -> None:
        if record.rank is None or record.step is None:
            return
        self._told_by.add(record.rank)
        step = self._steps.setdefault(record.step, {})
        step[record.rank] = record
        if len(step) == len(self._told_by) > 1:
            self._take_step(record.step)
        elif len(self._steps) > STEPS_WAITING_MAX:
            self._take_step(next(iter(self._steps)))

    def look(self, samples: Sequence[RankSample], pids: Mapping[int, int]) -> None:
        """All ranks once a second, while they train. `pids`: of those that live."""
        self._samples += 1
        throttled = self._held_back(pids) if self._samples % THROTTLE_EVERY == 1 else {}
        self._watch.look(samples, throttled)
        at_s = samples[0].at_s if samples else 0.0
        if self._fetch is None and len(pids) > 1 and self._watch.wants_records(at_s):
            self._fetch = Fetch(self._folder, sorted(pids))

    def poll(self) -> list[StepFinding]:
        """Takes in what was told and fetched, a part at a time: to be called often. Nothing is concluded yet.

        raises: whatever a fault of ours in reading the records raised
        """
        fetch = self._fetch
        if fetch is not None and fetch.is_done:
            self._fetch = None
            if fetch.error is not None:
                raise fetch.error
            if fetch.peers and not self._fetched:  # ranks that do different work: known only now
                self._watch = StragglerWatch(peers=fetch.peers)
            self._fetched = True
            for rank, groups in fetch.teams.items():
                self._watch.teams(rank, groups)
            self._arrivals.extend(fetch.arrivals)
        for _ in range(min(ARRIVALS_AT_ONCE, len(self._arrivals))):
            one = self._arrivals.popleft()
            self._watch.arrivals(one.group, one.sequence, one.at, device=one.device)
        while self._told:
            self._one(self._told.popleft())
        return []

    def findings(self, step: int | None, at_s: float) -> list[StepFinding]:
        """New ones, each once. None while what was fetched is still being taken in: half of it misleads."""
        return [] if self._arrivals else self._watch.findings(step, at_s)

    def now(self) -> str:
        """Those that are slower now, in a few words."""
        return "; ".join(map(_words, self._watch.stragglers()))

    def _held_back(self, pids: Mapping[int, int]) -> dict[int, float]:
        for rank in [rank for rank in self._throttles if rank not in pids]:
            del self._throttles[rank]
        seen = {}
        for rank, pid in pids.items():
            reader = self._throttles.get(rank)
            if reader is None:
                reader = self._throttles[rank] = ThrottleReader(pid)
            found = reader.sample()
            if found is not None:
                seen[rank] = found.throttled_s
        return seen

    def _take_step(self, step: int) -> None:
        records = self._steps.pop(step)
        times = {rank: one.time_s for rank, one in records.items() if one.time_s is not None}
        self._watch.step_times(step, times)
        waits = {rank: one.data_s for rank, one in records.items() if one.data_s is not None}
        if len(waits) == len(times):  # for its data a rank waits alone, and the others then for it
            self._watch.own_work(step, waits)


class Fetch:
    """Asks ranks for their flight records, in a thread."""

    def __init__(self, folder: Path, ranks: Sequence[int]) -> None:
        self.arrivals: list[Arrival] = []
        self.teams: dict[int, dict[int, tuple[int, ...]]] = {}
        self.peers: dict[int, str] = {}
        self.error: Exception | None = None
        self._folder, self._ranks = folder, ranks
        self._done = threading.Event()
        threading.Thread(target=self._run, name="holdfast-arrivals", daemon=True).start()

    @property
    def is_done(self) -> bool:
        return self._done.is_set()

    def _run(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
        try:
            records = [record for rank in self._ranks for record in self._records(rank)]
            self.arrivals = arrivals(records)
            self.peers = peers(records)
        except Exception as error:  # noqa: BLE001 - raised again in the thread that can say so
            self.error = error
        finally:
            self._done.set()

    def _records(self, rank: int) -> Iterator[FlightRecord]:
        path = self._folder / f"rank-{rank}.sock"
        found = flight_records(path, time.monotonic() + RECORDS_S, time.monotonic) or ()
        for number, pickled in enumerate(found):
            with suppress(ValueError):  # what a rank sends may be anything
                record = read_record(pickled, rank)
                self.teams.setdefault(rank, {}).update(_teams(record, OTHER_RECORDER if number else 0))
                yield record


def _teams(record: FlightRecord, shift: int) -> dict[int, tuple[int, ...]]:
    """Members of the groups, by the id that the status of this rank gives them."""
    names = {one.group_id: one.group for one in record.operations if one.group_id >= 0}
    return {
        number + shift: record.groups[name].ranks for number, name in names.items() if name in record.groups
    }


def _words(one: Straggler) -> str:
    ranks = ", ".join(map(str, one.ranks))
    who = f"rank {ranks}" if len(one.ranks) == 1 else f"node {one.node}" if one.node else f"ranks {ranks}"
    return f"{who} {(one.ratio - 1) * 100:+.0f} %" if one.ratio is not None else who
