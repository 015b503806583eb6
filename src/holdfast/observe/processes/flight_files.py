"""Finds and reads flight records, lists of process groups and stack dumps among the files of a job.

A rank may have several records: dumped with its exception, fetched live, written by the watchdog. The one
with the newest operation is used; on a tie, the one with more operations, then more completed ones, then the
first by name. Ignored records are noted. If files of several attempts lie side by side ("attempt-2/..."),
only those of the last attempt with a record are used.

Memory holds one file at a time, of at most 64 MiB, and 300,000 operations of all records. Of further records
only digests are kept; groups whose members are listed in a file of their own are filled in afterwards.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.flight.digest import digest
from holdfast.core.flight.members import runs
from holdfast.core.plurals import counted
from holdfast.model.flight.digests import Digest, GroupDigest
from holdfast.model.flight.records import FlightRecord, Group
from holdfast.model.flight.scenes import FlightScene, FoundStacks, RecordFile
from holdfast.model.flight.thread_stacks import RankStacks, ThreadStack
from holdfast.model.matches import Skipped
from holdfast.model.signatures import Words
from holdfast.observe.logs.streams import Reader, Unreadable
from holdfast.observe.logs.tree import Log, find, natural, opened
from holdfast.parsers.flight.names import rank_of
from holdfast.parsers.flight.pickled import SIZE_BYTES_MAX, Refused
from holdfast.parsers.flight.records import groups_of, read_record, with_groups
from holdfast.parsers.pyspy import error_in, parse_json, parse_text
from holdfast.parsers.stacks import last_stack

OPERATIONS_HELD_MAX = 300_000  # in all records; some 350 bytes each
STACKS_BYTES_MAX = 16 << 20
READ_BYTES = 1 << 20
FILES_MAX = 100_000
NOTES_MAX = 50
ATTEMPT = re.compile(r"(?i)(?:^|[\\/])attempt[-_]?(\d{1,6})(?=[\\/])")


def read_scene(paths: Sequence[Path], operations_held_max: int = OPERATIONS_HELD_MAX) -> FlightScene:
    """Returns all flight records and stack dumps under the paths: folders, files, archives, bundles.

    Logs are skipped.
    """
    reader = SceneReader(operations_held_max)
    skipped: list[Skipped] = []
    for file in find(paths, skipped.append):
        for log in opened(file, skipped.append):
            if log.kind is not None:
                reader.take(log)
    return reader.scene()


class _Held(Struct):
    """The best flight record of a rank so far, whole or only as a digest."""

    file: str
    attempt: int
    weight: tuple[int, int, int]
    record: FlightRecord | None
    digest: Digest | None = None


class SceneReader:
    """Collector of flight records and stack dumps.

    Takes files from any thread and in any order, with the same result.
    """

    def __init__(self, operations_held_max: int = OPERATIONS_HELD_MAX) -> None:
        self._operations_held_max = operations_held_max
        self._lock = Lock()
        self._records: dict[int, _Held] = {}
        self._groups: dict[int, dict[str, Group]] = {}
        self._stacks: dict[tuple[int, str], FoundStacks] = {}
        self._left_out: dict[int, list[str]] = {}
        self._skipped: list[Skipped] = []
        self._operations = 0
        self._files = 0
        self._size_bytes = 0

    def take(self, log: Log) -> None:
        """Reads a file to its end.

        Never raises because of its content: unreadable files are listed in the result's `skipped`.
        """
        with self._lock:
            if self._files >= FILES_MAX:
                return
            self._files += 1
            try:
                self._take(log)
            except (Refused, Unreadable) as refused:
                self._skipped.append(Skipped(name=log.name, why=str(refused)))
            except MemoryError:
                self._skipped.append(Skipped(name=log.name, why="there is too little memory to read it"))

    def scene(self) -> FlightScene:
        with self._lock:
            attempt = max((held.attempt for held in self._records.values()), default=-1)
            kept = {rank: one for rank, one in sorted(self._records.items()) if one.attempt == attempt}
            return FlightScene(
                digests=tuple(self._digest(rank, one) for rank, one in kept.items()),
                records=tuple(RecordFile(rank, one.file) for rank, one in kept.items()),
                stacks=tuple(one for _, one in sorted(self._stacks.items())),
                notes=tuple(self._notes(kept)),
                skipped=tuple(sorted(self._skipped, key=lambda one: natural(one.name))),
                files=self._files,
                size_bytes=self._size_bytes,
            )

    def whole_records(self) -> tuple[FlightRecord, ...]:
        """Returns the complete flight records of the last attempt that are in memory, ordered by rank."""
        with self._lock:
            attempt = max((held.attempt for held in self._records.values()), default=-1)
            return tuple(
                one.record
                for _, one in sorted(self._records.items())
                if one.attempt == attempt and one.record is not None
            )

    def groups(self) -> tuple[Group, ...]:
        """Returns all process groups in the ranks' lists; a group that several ranks list occurs several times."""
        with self._lock:
            return tuple(group for _, groups in sorted(self._groups.items()) for group in groups.values())

    def _take(self, log: Log) -> None:
        most = STACKS_BYTES_MAX if log.kind in ("faulthandler", "py-spy") else SIZE_BYTES_MAX
        data = _all_of(log.stream, most)
        self._size_bytes += len(data)
        rank = rank_of(log.name)
        match log.kind:
            case "record":
                self._add_record(read_record(data, rank, log.name))
            case "groups":
                if rank is None:
                    raise Refused("its name contains no rank number")
                self._groups.setdefault(rank, {}).update(groups_of(data))
            case "faulthandler" | "py-spy":
                if rank is None:
                    raise Refused("its name contains no rank number")
                self._add_stacks(
                    _faulthandler(data, rank) if log.kind == "faulthandler" else _pyspy(data, rank), log.name
                )
            case None:
                pass
            case never:
                assert_never(never)

    def _add_record(self, record: FlightRecord) -> None:
        found = ATTEMPT.findall(record.file)
        new = _Held(record.file, int(found[-1]) if found else -1, _weight(record), record)
        held = self._records.get(record.rank)
        if held is not None:
            first, second = sorted((held, new), key=lambda one: natural(one.file))
            better = first if (first.attempt, first.weight) >= (second.attempt, second.weight) else second
            worse = second if better is first else first
            self._left_out.setdefault(record.rank, []).append(worse.file)
            if worse.record is not None and worse is held:
                self._operations -= len(worse.record.operations)
            if better is held:
                return
        if self._operations + len(record.operations) > self._operations_held_max:
            new.digest, new.record = digest(record, self._groups.get(record.rank)), None
        else:
            self._operations += len(record.operations)
        self._records[record.rank] = new

    def _add_stacks(self, stacks: RankStacks, name: str) -> None:
        """Adds a stack dump; of several of one rank and source, the last by name that has a stack is kept."""
        before = self._stacks.get((stacks.rank, stacks.source))
        if before is None or (bool(stacks.threads), natural(name)) >= (
            bool(before.stacks.threads),
            natural(before.file),
        ):
            self._stacks[stacks.rank, stacks.source] = FoundStacks(name, stacks)

    def _digest(self, rank: int, held: _Held) -> Digest:
        known = self._known_groups(rank)
        if held.record is not None:
            return digest(with_groups(held.record, known))
        assert held.digest is not None
        return replace(held.digest, groups=tuple(_filled(group, known) for group in held.digest.groups))

    def _known_groups(self, rank: int) -> dict[str, Group]:
        """Returns process groups by name as the rank itself recorded them, and those of other ranks that
        it belongs to.
        """
        known: dict[str, Group] = {}
        for other in sorted(self._groups):
            for name, group in self._groups[other].items():
                if rank in group.ranks:
                    known.setdefault(name, group)
        return known | self._groups.get(rank, {})

    def _notes(self, kept: Mapping[int, _Held]) -> list[Words]:
        notes: list[Words] = []
        if several := [rank for rank in self._left_out if rank in kept]:
            first = min(several)
            notes.append(
                Words(
                    en=f"several records each for {_ranks(len(several))}: the newest is used, for rank {first} "
                    f"{kept[first].file}",
                    zh=f"{len(several)} 个 rank 有多份记录，以最新者为准（rank {first}：{kept[first].file}）",
                )
            )
        if older := len(self._records) - len(kept):
            notes.append(
                Words(
                    en=f"{_ranks(older)} with records of earlier attempts only: ignored",
                    zh=f"{older} 个 rank 只有更早尝试的记录，未采用",
                )
            )
        versions = Counter(_version(one) or "?" for one in kept.values())
        if len(versions) > 1:
            said = ", ".join(f"{version} ({count})" for version, count in sorted(versions.items()))
            notes.append(
                Words(en=f"the records are of different formats: {said}", zh=f"记录的格式版本不一致：{said}")
            )
        for rank, one in kept.items():
            of_record = one.record.notes if one.record else one.digest.notes if one.digest else ()
            notes += [
                Words(en=f"the record of rank {rank}: {note}", zh=f"rank {rank} 的记录：{note}")
                for note in of_record
            ]
        return notes[:NOTES_MAX]


def _ranks(count: int) -> str:
    return counted(count, "rank")


def _version(held: _Held) -> str:
    return held.record.version if held.record else held.digest.version if held.digest else ""


def _weight(record: FlightRecord) -> tuple[int, int, int]:
    newest = max((one.created_ns for one in record.operations), default=0)
    ended = sum(one.retired for one in record.operations) + sum(
        max(0, one.completed) for one in record.status
    )
    return newest, len(record.operations), ended


def _filled(group: GroupDigest, known: Mapping[str, Group]) -> GroupDigest:
    complete = known.get(group.name)
    return (
        replace(group, members=runs(complete.ranks))
        if complete and complete.ranks and not group.members
        else group
    )


def _all_of(stream: Reader, most: int) -> bytes:
    """Returns all bytes of a stream. Raises Refused if there are more than `most`, and Unreadable."""
    parts: list[bytes] = []
    size = 0
    while part := stream.read(READ_BYTES):
        size += len(part)
        if size > most:
            raise Refused(f"it has more than {most >> 20} MiB, more than any file of this kind: not read")
        parts.append(part)
    return b"".join(parts)


def _faulthandler(data: bytes, rank: int) -> RankStacks:
    stack = last_stack(data, rank)
    threads = (ThreadStack(is_main=True, frames=stack.frames),) if stack else ()
    return RankStacks(
        rank=rank,
        pid=0,
        threads=threads,
        source="faulthandler",
        why_not="" if stack else "the stack dump contains no main thread",
    )


def _pyspy(data: bytes, rank: int) -> RankStacks:
    if data.lstrip()[:1] == b"[":
        return RankStacks(rank=rank, pid=0, threads=parse_json(data), source="py-spy")
    text = data.decode("utf-8", "replace")
    return RankStacks(rank=rank, pid=0, threads=parse_text(text), source="py-spy", why_not=error_in(text))
