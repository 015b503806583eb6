"""Finds ranks of an attempt that are slower than the others, during training.

It combines four sources: which ranks the others wait for, once a second; throttling by cgroups; step times
that ranks log; and, on suspicion and at intervals, the times at which ranks entered collectives, from flight
records that a thread fetches. The comparison itself is in `core`. Never waits. With several workers the
controller compares the ranks of all of them.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.core.stragglers.limits import CROWDED
from holdfast.core.stragglers.logged_steps import LoggedSteps
from holdfast.core.stragglers.records import Arrival, entered, joined, peers
from holdfast.core.stragglers.watch import StragglerWatch
from holdfast.core.stragglers.wording import in_few_words
from holdfast.model.flight.records import Entered, FlightRecord
from holdfast.model.samples import RankSample
from holdfast.model.steps import RankStep, StepFinding, StepRecord, Straggler
from holdfast.observe.host.throttling import ThrottleReader
from holdfast.observe.processes.worker_server import OTHER_RECORDER, flight_records
from holdfast.parsers.flight.records import read_record

RECORDS_S = 1.5  # for the answer of one rank; one that trains answers between two steps
THROTTLE_EVERY = 4  # samples; 0.4 ms of a core for each rank
ARRIVALS_AT_ONCE = 100  # taken in with one look: the wheel is not held up by a minute's worth
RECORDS_MAX = 20_000  # of all ranks, between two polls
COMPARED_S, SHORTEST_S = 0.1, 1e-4  # between two steps that are compared
MANY_RANKS, MANY_COMPARED_S = 512, 1.0
STEP_MAX = 1 << 53  # a larger one is no step, and cannot be sent
LOWEST = 19


def is_crowded(pids: Collection[int]) -> bool:
    """Returns whether these processes may use fewer processors than they are; False if that cannot be read."""
    try:
        processors = set().union(*map(os.sched_getaffinity, pids))
    except OSError:
        return False
    return len(processors) < len(pids)


class StragglerWatching:
    """Detector of slow ranks for one attempt on this worker. `folder`: of the ranks' sockets.

    `shares`: this worker only collects data (`logged_steps`, `held_back`, `fetch`), which the controller
    compares.
    """

    def __init__(self, folder: Path, *, shares: bool = False) -> None:
        self._folder = folder
        self._shares = shares
        self._watch = StragglerWatch()
        self._throttles: dict[int, ThrottleReader] = {}
        self._samples = 0
        self._logged: deque[RankStep] = deque(maxlen=RECORDS_MAX)
        self._stride = 1
        self._steps = LoggedSteps()
        self._throttled: dict[int, float] = {}
        self._fetch: Fetch | None = None
        self._fetched = False
        self._arrivals: deque[Arrival] = deque()

    def add_step(self, record: StepRecord, ranks: int | None = None) -> None:
        """Adds one rank's step from its log. If steps are short, only some are compared, the same ones of all
        ranks.

        `ranks`: number of ranks of the whole job, if known.
        """
        if record.rank is None or record.step is None or record.time_s is None or record.step > STEP_MAX:
            return
        compared_s = COMPARED_S if (ranks or 0) <= MANY_RANKS else MANY_COMPARED_S
        if not compared_s / 2 <= record.time_s * self._stride <= 4 * compared_s:
            most = max(1, int(compared_s / max(record.time_s, SHORTEST_S)))
            self._stride = 1 << (most.bit_length() - 1)  # workers that differ have steps in common
        if record.step % self._stride == 0:
            self._logged.append(RankStep(record.step, record.rank, record.time_s, record.data_s))

    def look(self, samples: Sequence[RankSample], pids: Mapping[int, int]) -> None:
        """Samples all ranks. Call it once a second while they train. `pids`: of living ranks."""
        self._samples += 1
        if self._samples == 1 and is_crowded(pids.values()):
            self._watch = StragglerWatch(CROWDED)
        throttled = self._held_back(pids) if self._samples % THROTTLE_EVERY == 1 else {}
        self._watch.look(samples, throttled)
        at_s = samples[0].at_s if samples else 0.0
        if self._fetch is None and len(pids) > 1 and self._watch.wants_records(at_s):
            self._fetch = Fetch(self._folder, sorted(pids))

    def poll(self) -> list[StepFinding]:
        """Processes logged and fetched data in small parts; to be called often. Draws no conclusions.

        raises: any exception of an internal error while reading the flight records
        """
        if self._shares:
            return []
        fetch = self._fetch
        if fetch is not None and fetch.is_done:
            self._fetch = None
            if fetch.error is not None:
                raise fetch.error
            if fetch.peers and not self._fetched:  # ranks that do different work: known only now
                self._watch = StragglerWatch(self._watch.settings, peers=fetch.peers)
            self._fetched = True
            for rank, groups in fetch.teams.items():
                self._watch.teams(rank, groups)
            self._arrivals.extend(joined(fetch.entered))
        for _ in range(min(ARRIVALS_AT_ONCE, len(self._arrivals))):
            one = self._arrivals.popleft()
            self._watch.arrivals(one.group, one.sequence, one.at, device=one.device)
        while self._logged:
            self._steps.add(self._logged.popleft(), self._watch)
        return []

    def findings(self, step: int | None, at_s: float) -> list[StepFinding]:
        """Returns new findings about slow ranks, each once. Empty while fetched data is still being
        processed, because incomplete data misleads.
        """
        return [] if self._arrivals else self._watch.findings(step, at_s)

    @property
    def slower(self) -> tuple[Straggler, ...]:
        """Returns the ranks and nodes that are slower than the others now."""
        return tuple(self._watch.stragglers())

    def now(self) -> str:
        """Returns the ranks that are slower than the others now, as a few words of text."""
        return "; ".join(map(in_few_words, self._watch.stragglers()))

    # Of one of several workers -----------------------------------------------------------------------------

    def logged_steps(self) -> tuple[RankStep, ...]:
        """Returns the step times that ranks have logged since the last call."""
        steps = tuple(self._logged)
        self._logged.clear()
        return steps

    def held_back(self, pids: Mapping[int, int]) -> dict[int, float]:
        """Returns the seconds that each rank was throttled by its CPU quota; refreshed every few seconds,
        empty between.
        """
        self._samples += 1
        return self._held_back(pids) if self._samples % THROTTLE_EVERY == 1 else {}

    def fetch(self, ranks: Sequence[int], most: int) -> None:
        """Starts to fetch the times at which ranks entered their last collectives, unless a fetch is running.

        `most`: number of collectives of each rank.
        """
        if self._fetch is None:
            self._fetch = Fetch(self._folder, ranks, most)

    def fetched(self) -> "Fetch | None":
        """Returns the result of the fetch, once; None if there is none."""
        fetch = self._fetch
        if fetch is None or not fetch.is_done:
            return None
        self._fetch = None
        return fetch

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


class Fetch:
    """A thread that fetches flight records of ranks. `most`: number of collectives of each rank; None:
    all.
    """

    def __init__(self, folder: Path, ranks: Sequence[int], most: int | None = None) -> None:
        self.entered: list[Entered] = []
        self.teams: dict[int, dict[int, tuple[int, ...]]] = {}
        self.peers: dict[int, str] = {}
        self.error: Exception | None = None
        self._folder, self._ranks, self._most = folder, ranks, most
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
            self.entered = [one for record in records for one in entered(record, self._most)]
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
