r"""Parses PyTorch's flight records, pickles and JSON of all formats. Pure; notes invalid parts.

As a pickle (`_dump_nccl_trace`, files `nccl_trace_rank_N`), and as the JSON of torch's worker server, where
numbers of `pg_status` are text and times that are not known are 0:

    {"version": "2.10", "comm_lib_version": "2.27.3",
     "pg_config": {"41": {"name": "41", "desc": "TENSOR_MODEL_PARALLEL_GROUP", "ranks": "[12, 13]"}},
     "pg_status": {"5": {"last_enqueued_collective": 42817, "last_started_collective": -1,
                         "last_completed_collective": 42805}},
     "entries": [{"record_id": 90083, "pg_id": 5, "process_group": ["41", "TENSOR_MODEL_PARALLEL_GROUP"],
                  "collective_seq_id": 42806, "p2p_seq_id": 0, "op_id": 42806,
                  "profiling_name": "nccl:_all_gather_base", "time_created_ns": 1758610505880883597,
                  "input_sizes": [[4096, 5120]], "input_dtypes": ["BFloat16"], "output_sizes": [[8192, 5120]],
                  "output_dtypes": ["BFloat16"], "state": "scheduled", "time_discovered_started_ns": null,
                  "time_discovered_completed_ns": null, "retired": false, "timeout_ms": 180000, "is_p2p": false}]}

Versions: torch 2.2 wrote only the list of entries, in microseconds; up to 2.3 (format 1.x) there is one
`seq_id` for collectives and point-to-point operations, and no types; 2.4 (2.0) has two; 2.5 (2.3) added
`pg_status`; 2.9 renamed `nccl_version` to `comm_lib_version`. gloo leaves `pg_config` empty: {"": {"ranks": "[]"}}.

source: torch/csrc/distributed/c10d/TraceUtils.h (2.2-2.4), NCCLUtils.hpp (2.5), FlightRecorder*.hpp (2.6-2.13)
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from holdfast.late_pattern import late
from holdfast.model.flight.records import FlightRecord, Group, GroupStatus, Operation, OperationState
from holdfast.parsers.flight.pickled import SIZE_BYTES_MAX, Refused, unpickled

OPERATIONS_MAX = 200_000  # per record, the newest
TENSORS_MAX = 1_000_000  # in all entries; entries of a pickle may share lists
AT_ONCE = 500  # entries
GROUPS_MAX = 100_000
MEMBERS_MAX = 4_000_000  # in all groups of a record
RANK_MAX = 1 << 20
NAME_MAX = 300
NOTES_MAX = 20
KNOWN_MAJOR = 2
NUMBER = late(r"-?\d{1,12}(?!\d)")
STATES: Mapping[str, OperationState] = {
    "scheduled": "scheduled",
    "started": "started",
    "completed": "completed",
}
KEYS = ("entries", "pg_config", "pg_status")

Size = Annotated[tuple[int, ...], Meta(max_length=16)]
Sizes = Annotated[tuple[Size, ...], Meta(max_length=16_384)]
Types = Annotated[tuple[str, ...], Meta(max_length=16_384)]


class Entry(Struct, gc=False):
    """An entry of a flight record as torch writes it; msgspec checks its types."""

    record_id: int = -1
    pg_id: int | str = -1
    process_group: Annotated[tuple[str, ...], Meta(max_length=4)] = ()
    collective_seq_id: int | None = None
    seq_id: int = 0
    p2p_seq_id: int = 0
    op_id: int = 0
    profiling_name: str = ""
    input_sizes: Sizes = ()
    input_dtypes: Types = ()
    output_sizes: Sizes = ()
    output_dtypes: Types = ()
    state: str = "scheduled"
    retired: bool = False
    is_p2p: bool | None = None
    time_created_ns: int = 0
    time_created_us: int = 0
    time_discovered_started_ns: int | None = None
    time_discovered_completed_ns: int | None = None
    time_discovered_started_us: int | None = None
    time_discovered_completed_us: int | None = None
    timeout_ms: int | None = 0


def read_record(data: bytes, rank: int | None, file: str = "") -> FlightRecord:
    """Parses a flight record. `rank`: of the file's name; None: derived from the groups in the record.

    raises: Refused, if it is no record, would run code, is damaged or too large, or shows no rank
    """
    value = decoded(data)
    if isinstance(value, list):  # torch 2.2
        value = {"entries": value}
    if not isinstance(value, dict) or not any(key in value for key in KEYS):
        raise Refused("it is not a flight record: none of the keys of one is present")
    return _Reading(value, file).record(rank)


def decoded(data: bytes) -> Any:
    """Decodes a pickle or JSON text. raises: Refused"""
    if data.lstrip()[:1] not in (b"{", b"[") or data[:1] == b"]":
        return unpickled(data)
    if len(data) > SIZE_BYTES_MAX:
        raise Refused(
            f"it is larger than {SIZE_BYTES_MAX >> 20} MiB, the maximum for a flight record: not read"
        )
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise Refused(f"it is not complete JSON: {error}") from error


def groups_of(data: bytes) -> dict[str, Group]:
    """Parses the groups that a rank created: {"1": {"desc": "dp0", "ranks": [0, 2], "backend": "gloo"}}.

    raises: Refused
    """
    value = decoded(data)
    if not isinstance(value, dict):
        raise Refused("it does not contain the process groups of a rank: no group is named")
    notes: list[str] = []
    groups = _groups(value, notes)
    if value and not groups:
        raise Refused(
            "it does not contain the process groups of a rank: "
            + (notes[0] if notes else "no group is named")
        )
    return groups


def with_groups(record: FlightRecord, known: Mapping[str, Group]) -> FlightRecord:
    """Returns the record with members of its groups from other ranks' data; its own data has precedence."""
    groups = dict(record.groups)
    for name, other in known.items():
        own = groups.get(name)
        if own is None:
            groups[name] = other
        elif not own.ranks and other.ranks:
            groups[name] = replace(own, ranks=other.ranks, about=own.about or other.about)
    return replace(record, groups=groups)


class _Reading:
    """Parses one record, and collects notes on its irregularities."""

    def __init__(self, value: dict[Any, Any], file: str) -> None:
        self._value = value
        self._file = file
        self._notes: list[str] = []
        self._names: dict[str, tuple[str, str]] = {}
        self._same: dict[Any, Any] = {}  # one object for what is the same in thousands of entries

    def record(self, rank: int | None) -> FlightRecord:
        version = _text(self._value.get("version"))
        self._note_version(version)
        groups = _groups(self._value.get("pg_config"), self._notes)
        operations = self._operations()
        for one in operations:
            known = groups.get(one.group)
            if known is None or not known.backend:
                about = known.about if known and known.about else one.group_about
                ranks = known.ranks if known else ()
                groups[one.group] = Group(name=one.group, about=about, ranks=ranks, backend=one.backend)
        status = self._status()
        return FlightRecord(
            rank=self._rank(rank, groups),
            version=version,
            library=_text(self._value.get("comm_lib_version") or self._value.get("nccl_version")),
            groups=groups,
            status=status,
            operations=operations,
            file=self._file,
            is_wrapped=_is_wrapped(operations, status),
            notes=_few(self._notes),
        )

    def _note_version(self, version: str) -> None:
        major = version.partition(".")[0]
        if not version:
            self._notes.append("it contains no format version")
        elif not major.isdigit() or int(major) > KNOWN_MAJOR:
            self._notes.append(
                f"its format {version} is unknown: only the parts that equal known formats were read"
            )

    def _rank(self, named: int | None, groups: Mapping[str, Group]) -> int:
        value = self._value.get("rank")
        own = value if isinstance(value, int) and not isinstance(value, bool) else None
        common = _common_members([group.ranks for group in groups.values() if group.ranks])
        rank = named if named is not None else own
        if rank is None and len(common) == 1:
            (rank,) = common
            self._notes.append(f"its name shows no rank; its groups have only rank {rank} in common")
        if rank is None:
            raise Refused("nothing shows its rank: neither its name nor its groups")
        if not 0 <= rank < RANK_MAX:
            raise Refused(f"its rank would be {rank}, which is out of range")
        if common and rank not in common:
            self._notes.append(f"its name gives rank {rank}, which is not in all of its groups")
        return rank

    # Operations

    def _operations(self) -> tuple[Operation, ...]:
        entries = self._value.get("entries")
        if entries is None:
            return ()
        if not isinstance(entries, (list, tuple)):
            self._notes.append("its entries are not a list")
            return ()
        if len(entries) > OPERATIONS_MAX:
            self._notes.append(f"of its {len(entries)} entries the last {OPERATIONS_MAX} were read")
            entries = entries[-OPERATIONS_MAX:]
        found: list[Operation] = []
        tensors = 0
        for begin in range(0, len(entries), AT_ONCE):
            some = entries[begin : begin + AT_ONCE]
            tensors += sum(map(_tensors, some))  # before they are copied
            if tensors > TENSORS_MAX:
                raise Refused(
                    f"it lists more than {TENSORS_MAX} tensors, the maximum for a flight record: not read"
                )
            found += map(self._operation, self._entries(some))
        return self._in_order(found)

    def _entries(self, raw: Sequence[Any]) -> list[Entry]:
        """Converts all entries at once; one by one, with the valid parts of each, if some are invalid."""
        try:
            return msgspec.convert(raw, list[Entry])
        except (msgspec.ValidationError, UnicodeError, RecursionError):
            pass
        return [entry for one in raw if (entry := self._entry(one)) is not None]

    def _entry(self, raw: Any) -> Entry | None:
        try:
            return msgspec.convert(raw, Entry)
        except (msgspec.ValidationError, UnicodeError, RecursionError):
            return self._repaired(raw)

    def _operation(self, entry: Entry) -> Operation:
        backend, kind = self._names.get(entry.profiling_name) or self._named(entry.profiling_name)
        state = STATES.get(entry.state)
        if state is None:
            self._notes.append(f"an entry has an unknown state: {entry.state[:40]!r}")
        same, group, local_id = self._same, entry.process_group, entry.pg_id
        is_p2p = entry.is_p2p if entry.is_p2p is not None else kind.startswith(("send ", "recv "))
        sequence = entry.collective_seq_id if entry.collective_seq_id is not None else entry.seq_id
        started = entry.time_discovered_started_ns or (entry.time_discovered_started_us or 0) * 1000
        completed = entry.time_discovered_completed_ns or (entry.time_discovered_completed_us or 0) * 1000
        return Operation(
            group=group[0][:NAME_MAX] if group else str(entry.pg_id),
            group_about=group[1][:NAME_MAX] if len(group) > 1 else "",
            group_id=local_id if type(local_id) is int and 0 <= local_id < RANK_MAX else _local_id(local_id),
            sequence=sequence,
            p2p_sequence=entry.p2p_seq_id,
            operation_id=entry.op_id,
            record_id=entry.record_id,
            kind=kind,
            backend=backend,
            is_p2p=is_p2p,
            input_sizes=same.setdefault(entry.input_sizes, entry.input_sizes),
            input_types=same.setdefault(entry.input_dtypes, entry.input_dtypes),
            output_sizes=same.setdefault(entry.output_sizes, entry.output_sizes),
            output_types=same.setdefault(entry.output_dtypes, entry.output_dtypes),
            state=state or "scheduled",
            retired=entry.retired,
            created_ns=entry.time_created_ns or entry.time_created_us * 1000,
            started_ns=started or None,
            completed_ns=completed or None,
            timeout_ms=entry.timeout_ms or 0,
        )

    def _named(self, name: str) -> tuple[str, str]:
        backend, colon, kind = name[:NAME_MAX].partition(":")
        self._names[name] = found = (backend, kind) if colon else ("", backend)
        return found

    def _repaired(self, raw: Any) -> Entry | None:
        """Returns an entry without its invalid parts; None if nothing of it is valid."""
        if not isinstance(raw, dict):
            self._notes.append("an entry is not a record of an operation")
            return None
        kept: dict[str, Any] = {}
        for name, field in _FIELDS.items():
            if name not in raw:
                continue
            try:
                kept[name] = msgspec.convert(raw[name], field, strict=False)
            except (msgspec.ValidationError, UnicodeError, RecursionError):
                self._notes.append(f"an entry has an invalid {name}")
        return Entry(**kept) if kept else None

    def _in_order(self, operations: list[Operation]) -> tuple[Operation, ...]:
        """Returns the operations by record id, each once; of several with one id the last counts."""
        numbers = [one.record_id for one in operations]
        if any(later <= earlier for earlier, later in zip(numbers, numbers[1:], strict=False)):
            if len(set(numbers)) == 1 and numbers[0] < 0:  # none has any
                return tuple(operations)
            by_id = {one.record_id: one for one in operations}
            if len(by_id) < len(operations):
                self._notes.append(
                    f"{len(operations) - len(by_id)} of its entries repeat the id of another entry: the last one is used"
                )
            if numbers != sorted(numbers):
                self._notes.append("its entries are not in the order of their numbers")
            return tuple(by_id[number] for number in sorted(by_id))
        return tuple(operations)

    # How far each group is

    def _status(self) -> tuple[GroupStatus, ...]:
        found: list[GroupStatus] = []
        groups = self._value.get("pg_status")
        if groups is not None and not isinstance(groups, dict):
            self._notes.append("its pg_status is not an object")
            return ()
        for key, one in list((groups or {}).items())[:GROUPS_MAX]:
            local_id = _local_id(key)
            if local_id < 0 or not isinstance(one, dict):
                self._notes.append(f"its pg_status entry of group {str(key)[:40]!r} is invalid")
                continue
            found.append(
                GroupStatus(
                    local_id,
                    _whole(one.get("last_enqueued_collective")),
                    _whole(one.get("last_started_collective")),
                    _whole(one.get("last_completed_collective")),
                )
            )
        return tuple(sorted(found, key=lambda status: status.group_id))


_FIELDS: dict[str, Any] = {field.name: field.type for field in msgspec.structs.fields(Entry)}


def _tensors(raw: Any) -> int:
    if not isinstance(raw, dict):
        return 0
    lists = (
        raw.get("input_sizes"),
        raw.get("output_sizes"),
        raw.get("input_dtypes"),
        raw.get("output_dtypes"),
    )
    return sum([len(one) for one in lists if isinstance(one, (list, tuple))])


def _groups(config: Any, notes: list[str]) -> dict[str, Group]:
    """Returns the groups in pg_config by name: {"41": {"name": "41", "desc": "TP", "ranks": "[12, 13]"}}.

    Groups without name and members are left out.
    """
    if config is None:
        return {}
    if not isinstance(config, dict):
        notes.append("its pg_config is not an object")
        return {}
    found: dict[str, Group] = {}
    left = MEMBERS_MAX
    for key, one in list(config.items())[:GROUPS_MAX]:
        if not isinstance(one, dict):
            notes.append(f"its pg_config entry of group {str(key)[:40]!r} is invalid")
            continue
        name = _text(one.get("name")) or _text(key)
        ranks = _members(one.get("ranks"), name, notes)
        left -= len(ranks)
        if left < 0:
            notes.append("its groups have too many members to be read: the rest was left out")
            break
        if name:  # gloo's only one has none, and no operation is of it
            found[name] = Group(
                name=name, about=_text(one.get("desc")), ranks=ranks, backend=_text(one.get("backend"))
            )
    return found


def _members(value: Any, name: str, notes: list[str]) -> tuple[int, ...]:
    """Parses the members of a group: "[0, 1]" as text, or a list."""
    if isinstance(value, str):
        numbers = [int(number) for number in NUMBER.findall(value[: 8 * MEMBERS_MAX])]
    elif isinstance(value, (list, tuple)):
        numbers = [one for one in value[:MEMBERS_MAX] if isinstance(one, int) and not isinstance(one, bool)]
    else:
        numbers = []
        if value is not None:
            notes.append(f"the members of its group {name[:40]!r} are invalid")
    ranks = {number for number in numbers if 0 <= number < RANK_MAX}
    if len(ranks) < len(numbers):
        notes.append(f"its group {name[:40]!r} has repeated members, or some out of range")
    return tuple(sorted(ranks))


def _common_members(groups: Sequence[Sequence[int]]) -> set[int]:
    return set(groups[0]).intersection(*groups[1:]) if groups else set()


def _is_wrapped(operations: Sequence[Operation], status: Sequence[GroupStatus]) -> bool:
    """Returns whether entries are missing before, between or after the existing ones."""
    if not operations:
        return any(one.enqueued > 0 for one in status)
    first, last = operations[0].record_id, operations[-1].record_id
    return first > 0 or (first == 0 and last - first + 1 > len(operations))


def _local_id(value: Any) -> int:
    number = _whole(value)
    return number if -1 <= number < RANK_MAX else -1


def _whole(value: Any) -> int:
    """Returns an integer, also if it is text; -1 for anything else."""
    if isinstance(value, str) and len(value) < 20 and value.removeprefix("-").isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else -1


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return (
        str(value)[:NAME_MAX] if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
    )


def _few(notes: Sequence[str]) -> tuple[str, ...]:
    """Returns the notes, each once with its number of occurrences, at most NOTES_MAX."""
    often: dict[str, int] = {}
    for note in notes:
        often[note] = often.get(note, 0) + 1
    said = [note if count == 1 else f"{note} ({count} times)" for note, count in often.items()]
    more = len(said) - NOTES_MAX
    return tuple(said[:NOTES_MAX] + ([f"and {more} more such notes"] if more > 0 else []))
