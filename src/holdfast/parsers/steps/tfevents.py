r"""Parses steps from TensorBoard event files: the step, its time and writer, and scalars. Pure.

A file is a sequence of records: size (u64), a checksum of the size (u32), the data, a checksum of the data
(u32), all little-endian; a checksum is CRC-32C, rotated right by 15 and 0xa282ead8 added. The data is a
protobuf:

    Event   { double wall_time = 1; int64 step = 2; Summary summary = 5; }
    Summary { repeated Value value = 1; }
    Value   { string tag = 1; float simple_value = 2; TensorProto tensor = 8; }
    Tensor  { DataType dtype = 1; bytes tensor_content = 4; repeated float float_val = 5; repeated double double_val = 6; }

A size is used only if its own checksum is correct. Images, graphs and histograms are skipped.

source: tensorflow, core/lib/io/record_writer.h, core/util/event.proto, core/framework/{summary,tensor}.proto
"""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.late_pattern import late
from holdfast.model.steps import StepRecord

HEADER = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
DOUBLE, FLOAT = struct.Struct("<d"), struct.Struct("<f")
RECORD_BYTES_MAX = 256 << 10  # a longer one holds a picture or a graph
RECORD_BYTES_REAL = 1 << 40  # no writer makes a longer one
VALUES_MAX = 1000  # of one event
TAG_BYTES_MAX = 300
STEP_MAX = 1 << 53  # a negative one has the highest bit set
AT_MAX_S = 1e11
CHOOSE_VALUES = 400  # values that are read before the tag that counts the steps is chosen
TAGS_MAX = 10_000
_MASK = 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DT_FLOAT, _DT_DOUBLE = 1, 2

NOT_TRAINING = late(
    r"(?i)(?<![a-z])(?:e?val|valid|validation|evaluation|test|dev|hp_metric|hparams?)(?![a-z])"
)
OTHER_AXIS = late(r"(?i) vs\.? |by[_-]samples")  # Megatron writes such tags with samples for steps
GRAD_NORM = late(r"(?i)(?:^|[/_. -])(?:grad(?:ient)?[_ -]?norm|gnorm)$")
LEARNING_RATE = late(r"(?i)(?:^|[/_. -])(?:learning[_ -]?rate|lr)$")
LOSS = late(r"(?i)(?<![a-z])(?:lm[ _-])?loss(?:[_/-]?(?:step|train|training|total|iter))?$")
STEP_TIME = late(
    r"(?i)(?:^|/)(?:iteration[-_ ]time|step[-_ ]time|train[-_ ]step[-_ ]timing|timing_s/step|time[-_/ ](?:per[-_ ])?(?:step|iter(?:ation)?))(?:[-_ ]?(?P<ms>ms)|[-_ ]in[-_ ]s| in s|[-_ ]?s)?$"
)
THROUGHPUT = late(
    r"(?i)throughput|(?:samples|tokens|examples|images)[-_ /]?(?:per|/)[-_ ]?s(?:ec(?:ond)?)?|(?:^|/)tps$"
)


class Event(Struct, frozen=True, gc=False):
    """One event with at least one scalar. `at_s`: on the writer's clock, in seconds since the epoch."""

    at_s: float
    step: int
    values: tuple[tuple[str, float], ...]


class Damaged(ValueError):
    """Raised if the file cannot be read from here on; the message says why, for people."""


class EventCutter:
    """Splits a file's bytes into events, in bounded memory; events without a scalar are left out."""

    def __init__(self) -> None:
        self._held = b""
        self._skip_bytes = 0
        self._at = 0  # offset of the first byte of `held` in the file

    @property
    def is_cut(self) -> bool:
        """Returns whether the bytes so far end within a record: the file is truncated, or still being written."""
        return bool(self._held) or self._skip_bytes > 0

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yields the complete TensorBoard events in the data. raises: Damaged, after the last complete one"""
        if self._skip_bytes:
            passed = min(self._skip_bytes, len(data))
            self._skip_bytes -= passed
            self._at += passed
            data = data[passed:]
        data = self._held + data
        place = 0
        try:
            while place + HEADER.size <= len(data):
                size = _size_at(data, place, self._at)
                end = place + HEADER.size + size + CHECKSUM.size
                if size <= RECORD_BYTES_MAX and end > len(data):
                    break
                if size > RECORD_BYTES_MAX:
                    self._skip_bytes = max(0, end - len(data))
                elif event := _event_in(data, place + HEADER.size, size, self._at):
                    yield event
                place = min(end, len(data))
        finally:
            self._held = data[place:]
            self._at += place


def _size_at(data: bytes, place: int, at: int) -> int:
    size: int
    size, checksum = HEADER.unpack_from(data, place)
    if checksum != masked_crc(data[place : place + 8]) or size > RECORD_BYTES_REAL:
        raise Damaged(f"the record at byte {at + place} is damaged: the rest was not read")
    return size


def _event_in(data: bytes, start: int, size: int, at: int) -> Event | None:
    body = data[start : start + size]
    at_s, step = 0.0, 0
    values: list[tuple[str, float]] = []
    for number, value in _fields(body, at + start):
        if number == 1 and isinstance(value, float):
            at_s = value
        elif number == 2 and isinstance(value, int):
            step = value
        elif number == 5 and isinstance(value, bytes):
            values += _scalars(value, at + start)
    if not values:
        return None
    if masked_crc(body) != CHECKSUM.unpack_from(data, start + size)[0]:  # slow: only of what is used
        raise Damaged(f"the record at byte {at + start - HEADER.size} is damaged: the rest was not read")
    return Event(at_s, step, tuple(values)) if step <= STEP_MAX and 0 < at_s < AT_MAX_S else None


def _scalars(summary: bytes, at: int) -> Iterator[tuple[str, float]]:
    for count, (number, value) in enumerate(_fields(summary, at)):
        if count >= VALUES_MAX:
            return
        if number != 1 or not isinstance(value, bytes):
            continue
        tag, scalar = "", None
        for kind, part in _fields(value, at):
            if kind == 1 and isinstance(part, bytes):
                tag = part[:TAG_BYTES_MAX].decode("utf-8", "replace")
            elif kind == 2 and isinstance(part, _Fixed32):
                scalar = part.as_float()
            elif kind == 8 and isinstance(part, bytes):
                scalar = _of_tensor(part, at)
        if tag and scalar is not None:
            yield tag, scalar


def _of_tensor(tensor: bytes, at: int) -> float | None:
    """Returns the tensor's number; None if it has none, or several, or is of another type."""
    dtype, content, found = 0, b"", None
    for number, value in _fields(tensor, at):
        if number == 1 and isinstance(value, int):
            dtype = value
        elif number == 4 and isinstance(value, bytes):
            content = value
        elif number == 5 and isinstance(value, _Fixed32):
            found = value.as_float()
        elif number == 6 and isinstance(value, float):
            found = value
        elif number in (5, 6) and isinstance(value, bytes):  # packed
            content = value
    form = {_DT_FLOAT: FLOAT, _DT_DOUBLE: DOUBLE}.get(dtype)
    if form is None:
        return None
    return float(form.unpack(content)[0]) if len(content) == form.size else found


class _Fixed32(bytes):
    """Four bytes of a field whose type only its number shows."""

    def as_float(self) -> float:
        return float(FLOAT.unpack(self)[0])


def _fields(data: bytes, at: int) -> Iterator[tuple[int, int | float | bytes]]:
    """Yields the field numbers and values of a message: varints, doubles, bytes, and _Fixed32.

    raises: Damaged
    """
    place, end = 0, len(data)
    while place < end:
        key, place = _varint(data, place, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, place = _varint(data, place, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, place = _varint(data, place, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise Damaged(f"the record at byte {at} is not an event: the rest was not read")
        if place + size > end:
            raise Damaged(f"the record at byte {at} is not an event: the rest was not read")
        part = data[place : place + size]
        place += size
        yield (
            number,
            part if kind == _BYTES else DOUBLE.unpack(part)[0] if kind == _FIXED64 else _Fixed32(part),
        )


def _varint(data: bytes, place: int, at: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, place
        shift += 7
    raise Damaged(f"the record at byte {at} is not an event: the rest was not read")


def _crc_table() -> tuple[int, ...]:
    """Returns the table of CRC-32C (Castagnoli), reflected. source: RFC 3720, B.4"""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC_TABLE = _crc_table()


def masked_crc(data: bytes) -> int:
    """Returns the masked CRC-32C of the data, as records store it."""
    crc, table = 0xFFFFFFFF, _CRC_TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


# Steps ---------------------------------------------------------------------------------------------------


class EventSteps:
    """Converts events to step records.

    One tag counts the steps: a loss, else the most frequent scalar of training.

    Time per step is the logged one, if any; else the difference of the writer's clock divided by that of the
    steps. A decreasing step, or another file, begins a new run.
    """

    def __init__(self) -> None:
        self._waiting: list[Event] | None = []
        self._lead = ""
        self._kinds: dict[str, str] = {}
        self._open: StepRecord | None = None
        self._beside: dict[str, float] = {}  # what was written at the step of the open record, by kind
        self._ahead: tuple[int, dict[str, float]] = (-1, {})  # and at the step to come
        self._run = 0
        self._is_new_run = False

    def feed(self, events: Sequence[Event]) -> Iterator[StepRecord]:
        """Yields the step records that are complete."""
        if self._waiting is not None:
            self._waiting += events
            if sum(len(event.values) for event in self._waiting) < CHOOSE_VALUES:
                return
            events = self._choose(self._waiting)
        for event in events:
            yield from self._take(event)

    def begin_file(self) -> Iterator[StepRecord]:
        """Starts another file of the same training, whose writer was restarted; yields the held record."""
        yield from self.finish()
        self._is_new_run = True

    def finish(self) -> Iterator[StepRecord]:
        """Yields the last step record, which waited for further scalars of its step."""
        for event in self._choose(self._waiting) if self._waiting else ():
            yield from self._take(event)
        if self._open:
            yield self._closed(self._open)
        self._open = None

    def _choose(self, events: list[Event]) -> list[Event]:
        self._waiting = None
        count = Counter(tag for event in events for tag, _ in event.values if _is_training(tag))
        losses = [tag for tag in count if LOSS.search(tag)]
        self._lead = max(losses or count, key=lambda tag: (count[tag], -len(tag)), default="")
        if not self._lead:  # an evaluation's file, so far
            self._waiting = []
        return events

    def _take(self, event: Event) -> Iterator[StepRecord]:
        for tag, value in event.values:
            kind = self._kind(tag)
            if tag == self._lead and (self._open is None or event.step != self._open.step):
                before = self._open
                if before:
                    yield self._closed(before)
                self._open = self._opened(event, value, before)
                step, beside = self._ahead
                self._beside = beside if step == event.step else {}
                self._ahead = (-1, {})
            elif kind and self._open and event.step == self._open.step:
                self._beside[kind] = value
            elif kind:
                step, beside = self._ahead
                self._ahead = (event.step, {**(beside if step == event.step else {}), kind: value})

    def _opened(self, event: Event, value: float, before: StepRecord | None) -> StepRecord:
        steps, time_s = 1, None
        if self._is_new_run or (before and before.step is not None and event.step < before.step):
            self._run += 1
            self._is_new_run = False
        elif before and before.step is not None:
            steps = event.step - before.step
            passed_s = event.at_s - (before.at_s or event.at_s)
            time_s = passed_s / steps if passed_s > 0 else None
        return StepRecord(
            step=event.step,
            number=event.step,
            time_s=time_s,
            printed_s=time_s,
            steps=steps,
            at_s=event.at_s,
            run=self._run,
            loss=value if LOSS.search(self._lead) else None,
        )

    def _closed(self, record: StepRecord) -> StepRecord:
        """Returns the record with the other scalars of its step."""
        time_s = self._beside.get("s", self._beside.get("ms", 0.0) / 1000)
        if 0 < time_s < 1e9:
            record = replace(record, time_s=time_s, printed_s=time_s)
        return replace(
            record,
            throughput=self._beside.get("throughput"),
            loss=self._beside.get("loss") if record.loss is None else record.loss,
            grad_norm=self._beside.get("grad_norm"),
            learning_rate=self._beside.get("learning_rate"),
        )

    def _kind(self, tag: str) -> str:
        if tag not in self._kinds and len(self._kinds) < TAGS_MAX:
            self._kinds[tag] = _kind(tag)
        return self._kinds.get(tag, "")


def _kind(tag: str) -> str:
    """Returns what a TensorBoard tag contains: a time (s or ms), throughput, loss, gradient norm, learning
    rate; else "".
    """
    if not _is_training(tag):
        return ""
    if time := STEP_TIME.search(tag):
        return "ms" if time["ms"] else "s"
    kinds = (
        ("throughput", THROUGHPUT),
        ("loss", LOSS),
        ("grad_norm", GRAD_NORM),
        ("learning_rate", LEARNING_RATE),
    )
    return next((kind for kind, pattern in kinds if pattern.search(tag)), "")


def _is_training(tag: str) -> bool:
    return not NOT_TRAINING.search(tag) and not OTHER_AXIS.search(tag)
