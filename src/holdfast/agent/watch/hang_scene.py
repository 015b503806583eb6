"""Collects evidence while ranks make no progress: flight records, stacks, the state of each rank.

Runs in a thread, takes seconds, and pauses no rank. The evidence is stored in the worker's folder, so that
the evidence bundle contains it and it can be diagnosed again.
"""

import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from holdfast.core.flight.digest import digest
from holdfast.core.flight.gloo_sizes import bytes_of
from holdfast.core.flight.locate import locate
from holdfast.core.hang.classes import lives
from holdfast.core.hang.tracks import RankTrack
from holdfast.model.flight.digests import Digest, Located, RankLife
from holdfast.model.flight.records import FlightRecord, Group
from holdfast.model.flight.scenes import FlightScene, FoundStacks, RecordFile
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.samples import Stack
from holdfast.observe.processes.pyspy import Ask, collect, tool_path
from holdfast.observe.processes.worker_server import (
    ask_records,
    flight_records,
    parse_status,
    read_groups,
    read_records,
)
from holdfast.parsers.flight.records import read_record
from holdfast.parsers.pyspy import as_text

RECORDS_S = 1.0  # a rank that answers does so in 1-10 ms; one that does not is a sign by itself
UNHEARD_S = 0.3  # one that did not answer how far it is
STACKS_S = 3.0  # 5-50 ms are usual, also of many ranks: only a busy node needs more
AT_ONCE = 8
RECORD, STATUS = "flight.pickle", "status.json"  # left by a rank at its end
EXIT_TIME = re.compile(rb'"exit_time": (\d+\.\d+)}\s*$')  # what its status ends with
EXIT_TIME_BYTES = 64
ASKED = "flight-live.pickle"  # given by a rank that was asked
STACKS = "hang-stacks.json"


class Person(NamedTuple):
    """A rank that is examined."""

    rank: int
    pid: int
    is_gone: bool
    exit_code: int | None = None
    was_ended: bool = False  # by its launcher, after others had failed


class Seen(NamedTuple):
    """The evidence that one examination of ranks has collected."""

    located: Located | None
    stacks: tuple[RankStacks, ...] = ()
    notes: tuple[str, ...] = ()
    digests: tuple[Digest, ...] = ()
    lives: Mapping[int, RankLife] = {}


def usual_bytes(folder: Path, rank: int) -> frozenset[int]:
    """Returns the sizes in bytes that this rank's collectives usually have.

    Called once while the job is healthy, because it delays the rank by 1-10 ms.
    """
    found = flight_records(folder / f"rank-{rank}.sock", time.monotonic() + RECORDS_S, time.monotonic)
    sizes: frozenset[int] = frozenset()
    for data in found or ():
        try:
            sizes |= bytes_of(read_record(data, rank).operations)
        except ValueError:
            continue
    return sizes


def as_flight_scene(seen: Seen, usual: frozenset[int], world_size: int | None) -> FlightScene:
    """Returns the evidence as a FlightScene. `usual`: collective sizes from before the stall
    (usual_bytes).
    """
    return FlightScene(
        usual_bytes=usual,
        world_size=world_size,
        digests=seen.digests,
        records=tuple(RecordFile(one.rank, f"rank-{one.rank}.{RECORD}") for one in seen.digests),
        stacks=tuple(FoundStacks(f"rank-{one.rank}.py-spy.txt", one) for one in seen.stacks),
    )


class HangScene:
    """One examination of all ranks that make no progress. Call `start`, then `result` once `is_done`.

    `stalled_s`: seconds without progress; None: ranks have failed, and the flight records of living ranks are
    fetched before their launcher ends them, without stacks.
    """

    def __init__(
        self,
        folder: Path,
        people: Sequence[Person],
        tracks: Mapping[int, RankTrack],
        errors: Mapping[int, str],
        world_size: int | None,
        stalled_s: float | None,
    ) -> None:
        self._folder = folder
        self._people = tuple(people)
        self._tracks = dict(tracks)
        self._errors = dict(errors)
        self._world_size = world_size
        self._stalled_s = stalled_s
        self._result: Seen | None = None
        self._questions: dict[int, socket.socket | None] = {}
        self._thread = threading.Thread(target=self._run, name="holdfast-hang", daemon=True)

    def start(self) -> None:
        """Requests the flight records of all ranks at once: a launcher may end the ranks within a tenth of a
        second.
        """
        for one in self._people:
            if not one.is_gone and self._can_answer(one.rank):
                self._questions[one.rank] = ask_records(self._folder / f"rank-{one.rank}.sock")
        self._thread.start()

    def _can_answer(self, rank: int) -> bool:
        """Returns whether a rank can respond; not if it is stopped or traced."""
        track = self._tracks.get(rank)
        return track is None or track.last.state not in "Tt"

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def result(self) -> Seen:
        """Returns the result of a finished examination."""
        return self._result or Seen(None)

    def _run(self) -> None:
        try:
            self._result = self._look()
        except Exception as error:  # noqa: BLE001 - the hang is reported without it, never delayed
            self._result = Seen(None, (), (_not_looked_at(error),))

    def _look(self) -> Seen:
        living = [one for one in self._people if not one.is_gone]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-records") as pool:
            asked = pool.map(self._record, self._people)
            stacks = self._stacks(living) if self._stalled_s is not None else ()
            digest_of = {one.rank: one for one in asked if one is not None}
        return self._concluded(digest_of, stacks)

    def _concluded(self, digest_of: Mapping[int, Digest], stacks: tuple[RankStacks, ...]) -> Seen:
        by_rank = {
            one.rank: Stack(rank=one.rank, frames=one.threads[0].frames) for one in stacks if one.threads
        }
        ended = {one.rank: one.exit_code for one in self._people if one.is_gone and not one.was_ended}
        seen = lives(self._tracks, by_rank, self._errors, ended)
        digests = tuple(digest_of.values())
        located = None  # for failed ranks, the diagnosis names the awaited ones with their log lines
        if digest_of and self._stalled_s is not None:
            located = locate(digests, self._world_size, seen, stalled_s=self._stalled_s)
        return Seen(located, stacks, digests=digests, lives=seen)

    def again(self, people: Sequence[Person], errors: Mapping[int, str]) -> Seen:
        """Returns the same flight records with the current state of the ranks and the files that the ranks
        wrote at their end.

        `errors`: error message by rank.
        """
        self._people, self._errors = tuple(people), dict(errors)
        try:
            digest_of = {one.rank: one for one in self.result.digests}
            for one in self._people:
                if one.is_gone and (left := self._left_by(one)) is not None:
                    digest_of[one.rank] = self._digest(left)
            return self._concluded(digest_of, self.result.stacks)
        except Exception as error:  # noqa: BLE001 - the failure is reported without it, never delayed
            return Seen(None, (), (_not_looked_at(error),))

    def _stacks(self, living: Sequence[Person]) -> tuple[RankStacks, ...]:
        found = collect(
            [Ask(one.rank, one.pid, self._folder, self._script_thread(one.rank)) for one in living],
            STACKS_S,
            signal_first=False,  # the signal ends sleeping calls of C code early
            tool=tool_path(),
        )
        self._leave(STACKS, msgspec.json.format(msgspec.json.encode(found), indent=1))
        for one in found:
            if one.threads:
                self._leave(f"rank-{one.rank}.py-spy.txt", as_text(one).encode())
        return found

    def _script_thread(self, rank: int) -> int:
        track = self._tracks.get(rank)
        return 0 if track is None else track.last.thread

    def _record(self, one: Person) -> Digest | None:
        """Returns the flight record from the rank itself, else from the file that it wrote at its end."""
        record = None if one.is_gone else self._asked(one)
        if record is None:
            record = self._left_by(one)
        return None if record is None else self._digest(record)

    def _digest(self, record: FlightRecord) -> Digest:
        return digest(record, _groups(self._folder, record.rank), taken_ns=time.time_ns())

    def _asked(self, one: Person) -> FlightRecord | None:
        question = self._questions.get(one.rank)
        if question is None:
            return None
        track = self._tracks.get(one.rank)
        within_s = RECORDS_S if track is None or track.is_heard else UNHEARD_S
        found = read_records(question, time.monotonic() + within_s, time.monotonic)
        if not found:
            return None
        records = []
        for data in found:  # NCCL's recorder, and that of the others
            try:
                records.append((read_record(data, one.rank, f"rank-{one.rank}.{RECORD}"), data))
            except ValueError:
                continue
        if not records:
            return None
        record, data = max(records, key=lambda pair: _busy(pair[0]))
        self._leave(f"rank-{one.rank}.{ASKED}", data)
        return record

    def _left_by(self, one: Person) -> FlightRecord | None:
        try:
            path = self._folder / f"rank-{one.rank}.{RECORD}"
            return read_record(path.read_bytes(), one.rank, path.name)
        except (OSError, ValueError):
            pass
        try:
            status = parse_status((self._folder / f"rank-{one.rank}.{STATUS}").read_bytes())
        except (OSError, ValueError):
            return None
        return FlightRecord(rank=one.rank, status=status)

    def _leave(self, name: str, data: bytes) -> None:
        """Writes evidence for the bundle. A failed write does not affect the verdict."""
        try:
            (self._folder / name).write_bytes(data)
        except OSError:
            return


def goodbye_s(folder: Path, rank: int) -> float | None:
    """Returns when this rank began a normal exit, in seconds of its own clock; None if it has not."""
    try:
        with (folder / f"rank-{rank}.{STATUS}").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - EXIT_TIME_BYTES))
            said = EXIT_TIME.search(file.read())
    except OSError:
        return None
    return float(said[1]) if said else None


def _not_looked_at(error: Exception) -> str:
    return f"the ranks could not be examined: {type(error).__name__}: {error}"


def _busy(record: FlightRecord) -> tuple[int, int]:
    waits = sum(1 for one in record.status if one.enqueued > one.completed)
    return waits, len(record.operations)


def _groups(folder: Path, rank: int) -> dict[str, Group]:
    return read_groups(folder / f"rank-{rank}.groups.json")
