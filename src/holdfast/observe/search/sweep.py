"""Searches one log for signatures: confirms the engine's candidates, extracts captures and the rank, counts
repeats.

The effort for each line is limited. A signature that repeats endlessly is first kept text by text, then only
counted, then only its last line is updated: its first lines and its last line are always among the matches.
"""

import re
from collections.abc import Sequence
from time import thread_time
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from holdfast.model.matches import Likeness, Match, Source, Writer
from holdfast.model.signatures import EXCEPTION, FIELD, SPOKEN, TRACEBACK_START, Signature
from holdfast.observe.logs.blocks import Block
from holdfast.observe.logs.excerpts import Exceptional, counts_on, exceptions, following, progress, tail
from holdfast.observe.logs.untyped import Untyped
from holdfast.observe.search.automaton import Candidate, Engine
from holdfast.observe.search.shown_code import is_shown_code
from holdfast.parsers.log_lines.line_heads import labels_are_nodes, writer_of, writer_of_name

LINE_BYTES_MAX = 4 << 10  # on either side of where a match ends: patterns may take the square of a line
START_BYTES_MAX = 64 << 10  # so far back the start of a line is looked for: there stands who wrote it
CUT = "… "  # stands for the start of a line that is too long; no pattern may begin in it
SLOW_BYTES = 512  # from this length on, it is measured what looking at a line takes
SLOW_S = 1.0  # of CPU, for one signature in one log; beyond it only the last line of each block is looked at
TEXT_MAX = 4000
TEXT_SHORT = 400  # where memory is used up
TAIL_SHORT, TAIL_LINES_FEW = 200, 3
ENTRY_BYTES = 1000  # of a match beside its texts
LAST_WORDS_BYTES = 8 << 10  # of a log: a launcher may report the end below them
LAST_WORDS = 8  # lines
COUNTED_BYTES = 64 << 10  # whose lines are counted at once
EXCEPTION_CATEGORY = "python_exception"
EXCEPTION_NUMBER = -1  # where others have the number of their signature
NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+", re.ASCII)
FIGURE = re.compile(r"[0-9a-fA-Fx:.,/\[\] -]{1,40}", re.ASCII)
PASSING = frozenset(
    ("ms", "s", "seconds", "bytes", "pid", "tid", "step", "address", "sector", "count", "time")
)
LABEL = re.compile(r"\s*\d{1,6}: ")  # srun's: a rank, or a worker

Key: TypeAlias = tuple[object, ...]


class Caps(Struct, frozen=True, kw_only=True):
    """Limits for one signature in one log: texts kept, and matching lines examined.

    `tracebacks`: parts of a log parsed for tracebacks; beyond it only the last one of each block.
    """

    texts: int = 200
    lines: int = 5_000
    tracebacks: int = 50


class Allowance:
    """The memory that matches may still use, in bytes (approximate), shared by all logs of a search.

    When it is used up, only the first and the last line of each signature in each log are kept, shortened.
    """

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = size_bytes

    @property
    def is_used_up(self) -> bool:
        return self._left_bytes <= 0

    def take(self, *texts: str) -> None:
        self._left_bytes -= ENTRY_BYTES + sum(map(len, texts))


class Entry(Struct):
    """A match that is being built. `line`: line number; 0 if the lines before it were not counted."""

    number: int
    offset: int
    line: int
    text: str
    captures: dict[str, str]
    writer: Writer
    last_offset: int
    count: int = 1
    record: tuple[str, ...] = ()
    frame: str = ""
    error_type: str = ""
    outermost: str = ""
    innermost: str = ""
    known_as: Likeness | None = None


class Place(NamedTuple):
    """A line in the text of a block. `seen_from`: offset from which it is examined, for very long lines."""

    start: int
    seen_from: int
    stop: int


class Seen(Struct):
    """Matches of one signature found so far in one log.

    `line_end`: end of the last examined line. `more`: first of the lines whose texts are not kept, with their
    count; `last`: the last of them. `waiting`: end of the last unexamined match in this block.
    """

    by_key: dict[Key, Entry] = {}
    line_end: int = -1
    looked_at: int = 0
    slow_s: float = 0.0
    more: Entry | None = None
    last: Entry | None = None
    waiting: int | None = None
    last_stop: int = -1  # in this block: where the line of `last` ends


class Knowledge:
    """The signatures prepared for search, shared by the sweeps of all logs."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.signatures = signatures
        self.traceback_start = next(
            (at for at, one in enumerate(signatures) if one.id == TRACEBACK_START), None
        )
        self.spoken = next((at for at, one in enumerate(signatures) if one.id == SPOKEN), None)
        self._patterns: dict[int, re.Pattern[str]] = {}

    def is_cause(self, number: int) -> bool:
        return number != EXCEPTION_NUMBER and self.signatures[number].role == "cause"

    def goes_on_below(self, number: int) -> bool:
        """Returns whether lines below a match may belong to it: the rest of a message, or how a process ended."""
        return self.is_cause(number) or number != EXCEPTION_NUMBER and self.signatures[number].rank_end

    def pattern(self, number: int) -> re.Pattern[str]:
        """Returns the compiled pattern of a signature.

        Letters, digits and words are ASCII only, as in the engines.
        """
        pattern = self._patterns.get(number)
        if pattern is None:
            pattern = self._patterns[number] = re.compile(self.signatures[number].pattern, re.ASCII)
        return pattern


class Sweep:
    """A search over the blocks of one log, in order.

    `lines_before`: number of lines before the first block; None if unknown, so lines are not counted.
    `counts_lines`: the log cannot be read again, so all its lines are counted on the way; otherwise only the
    first few, because it takes time.
    """

    def __init__(
        self,
        name: str,
        knowledge: Knowledge,
        engine: Engine,
        caps: Caps,
        allowance: Allowance,
        *,
        lines_before: int | None = 0,
        counts_lines: bool = False,
    ) -> None:
        self._name = name
        self._writer = writer_of_name(name)
        self._knowledge = knowledge
        self._engine = engine
        self._caps = caps
        self._allowance = allowance
        self._counts_lines = counts_lines
        self._seen: dict[int, Seen] = {}
        self._block = Block(bytearray(), 0, 0, 0, is_last=True)
        self._text_at = 0  # of the block, in the text of all blocks
        self._lines_before = lines_before
        self._counted_to = (0, 0)  # an offset, and how many lines end in the block before it
        self._entries_on: dict[int, list[Entry]] = {}  # those of this block, by the offsets of their lines
        self._traceback_starts: list[int] = []
        self._traceback_end = -1
        self._windows = 0
        self._exceptions_ahead: dict[int, Exceptional] = {}
        self._last_step: int | None = None

    def take(self, block: Block) -> list[Entry]:
        """Searches a block, and returns its matches including repeated texts; counts are those of the log
        so far.
        """
        self._block = block
        self._entries_on = {}
        self._counted_to = (block.offset, 0)
        hits = self._engine.candidates(block.text, block.size)
        if hits or self._exceptions_ahead:
            self._look(hits)
        if self._counts_lines and self._lines_before is not None:
            self._lines_before += block.raw.count(b"\n", 0, block.raw_size)
        elif block.raw_size:
            self._lines_before = None
        self._text_at += block.size
        return [entry for entries in self._entries_on.values() for entry in entries]

    def look_anew(self) -> None:
        """Resets the number of examined lines, so that the limit applies anew."""
        for seen in self._seen.values():
            seen.looked_at = 0

    def finish(self) -> tuple[Source, list[Entry]]:
        """Returns the log and its matches, ordered by offset. The sweep must not be used afterwards."""
        block = self._block
        reached = progress(block, block.size)
        entries = [
            entry
            for seen in self._seen.values()
            for entry in (*seen.by_key.values(), seen.more, seen.last)
            if entry is not None
        ]
        lines = tail(block)
        if self._allowance.is_used_up:
            lines = tuple(line[:TAIL_SHORT] for line in lines[-TAIL_LINES_FEW:])
        self._allowance.take(*lines)
        self._heed_labels(entries, lines)
        self._liken(entries, block.offset + block.raw_size - LAST_WORDS_BYTES)
        source = Source(
            name=self._name,
            size_bytes=block.offset + block.raw_size,
            writer=self._writer,
            last_step_offset=self._last_step if reached.offset is None else reached.offset,
            last_steps_offset=reached.few_from,
            last_three_steps_offset=reached.fewest_from,
            counts_on_offset=counts_on(block) if entries else None,
            is_finished=reached.is_finished,
            tail=lines,
        )
        return source, sorted(entries, key=lambda entry: (entry.offset, entry.number))

    def _look(self, hits: Sequence[Candidate]) -> None:
        self._traceback_starts = []
        last_kept = -1
        for number, end in hits:
            if self._take_hit(number, end):
                last_kept = end
        for number, seen in self._seen.items():
            if seen.waiting is not None:
                self._confirm(number, seen, self._line_around(seen.waiting))
                seen.waiting = None
        self._read_tracebacks()
        for seen in self._seen.values():
            if seen.last is not None and seen.last_stop >= 0:
                self._complete(seen.last, seen.last_stop)
                seen.last_stop = -1
        if last_kept >= 0 and not self._block.is_last:
            step = progress(self._block, last_kept).offset
            self._last_step = self._last_step if step is None else step

    def _take_hit(self, number: int, end: int) -> bool:
        """Examines a candidate. Returns True if its text is new."""
        seen = self._seen.get(number)
        if seen is None:
            seen = self._seen[number] = Seen()
        if self._text_at + end <= seen.line_end:
            return False  # one more match in the same line
        if seen.looked_at >= self._caps.lines or seen.slow_s > SLOW_S:
            seen.waiting = end
            return False
        place = self._line_around(end)
        seen.line_end = self._text_at + place.stop
        return self._confirm(number, seen, place)

    def _line_around(self, end: int) -> Place:
        text = self._block.text
        nearby = max(0, end - START_BYTES_MAX)
        start = text.rfind(b"\n", nearby, end) + 1 or nearby
        if text[start] == 0:  # a log that was emptied while its writer went on: what was there reads as zeros
            start = end - len(bytes(text[start:end]).lstrip(b"\0"))
        limit = min(end + LINE_BYTES_MAX, self._block.end)
        stop = text.find(b"\n", end, limit)
        return Place(start, max(start, end - LINE_BYTES_MAX), limit if stop < 0 else stop)

    def _confirm(self, number: int, seen: Seen, place: Place) -> bool:
        """Tries the signature's own pattern on the line. Returns True if it matches with a new text."""
        raw = bytes(self._block.text[place.start : place.stop])
        match = self._match(number, seen, raw, place.seen_from - place.start)
        if match is None or is_shown_code(self._block.text, place.start, raw):
            return False  # not counted: however often this happens, the next one may be the fault
        seen.looked_at += 1
        if number == self._knowledge.traceback_start:
            self._traceback_starts.append(place.start)
        line = match.string.removeprefix(CUT)
        offset = self._block.offset_of(place.start)
        captures = {name: value for name, value in match.groupdict().items() if value is not None}
        writer = writer_of(raw, self._writer)
        figures = (
            value for name, value in captures.items() if name not in PASSING and FIGURE.fullmatch(value)
        )
        hosts = (captures.get("host"), captures.get("peer"))  # numbers distinguish nodes
        key = (*_who(writer), *hosts, *figures, NUMBERS.sub("#", line))
        entry = self._kept(seen, key, Entry(number, offset, 0, line, captures, writer, offset), place.stop)
        self._entries_on.setdefault(offset, []).append(entry)
        return entry.count == 1 and entry is not seen.last

    def _match(self, number: int, seen: Seen, raw: bytes, seen_from: int) -> re.Match[str] | None:
        pattern = self._knowledge.pattern(number)
        if len(raw) < SLOW_BYTES:
            return pattern.search(raw.decode("utf-8", "replace"))
        line = raw[seen_from:].decode("utf-8", "replace")
        begun_s = thread_time()
        match = pattern.search(CUT + line, len(CUT)) if seen_from else pattern.search(line)
        seen.slow_s += thread_time() - begun_s
        return match

    def _kept(self, seen: Seen, key: Key, entry: Entry, stop: int) -> Entry:
        """Returns the entry under which a match is counted: a new one if its text is new."""
        known = seen.by_key.get(key)
        is_room = not seen.by_key or (len(seen.by_key) < self._caps.texts and not self._allowance.is_used_up)
        if known is None and is_room:
            seen.by_key[key] = entry
        elif known is None and seen.more is None:
            seen.more = entry
        else:
            if known is None:
                known, seen.last, seen.last_stop = seen.more, entry, stop
            assert known is not None
            known.count += 1
            known.last_offset = entry.offset
            return seen.last if known is seen.more and seen.last else known
        self._complete(entry, stop)
        return entry

    def _complete(self, entry: Entry, stop: int) -> None:
        """Adds line number and following lines to an entry, which only kept matches need."""
        is_used_up = self._allowance.is_used_up
        entry.text = entry.text[: TEXT_SHORT if is_used_up else TEXT_MAX]
        entry.line = self._line_of(entry.offset)
        if self._knowledge.goes_on_below(entry.number) and not is_used_up:
            entry.record = following(self._block, stop)
        self._allowance.take(entry.text, *entry.record)

    def _line_of(self, offset: int) -> int:
        if self._lines_before is None:
            return 0
        base = self._block.offset
        if not self._counts_lines and offset - base > COUNTED_BYTES:
            return 0
        at, lines = self._counted_to if self._counted_to[0] <= offset else (base, 0)
        lines += self._block.raw.count(b"\n", at - base, offset - base)
        self._counted_to = (offset, lines)
        return self._lines_before + lines + 1

    def _read_tracebacks(self) -> None:
        """Parses the tracebacks of a block, and adds exception and frames to the matches on their last lines.

        A traceback whose last line has no match becomes a match of its own.
        """
        ahead, self._exceptions_ahead = self._exceptions_ahead, {}
        for one in ahead.values():
            self._place(one)
        starts = [at for at in self._traceback_starts if self._text_at + at >= self._traceback_end]
        if self._windows >= self._caps.tracebacks:
            starts = starts[-1:]
        for start in starts:
            if self._text_at + start < self._traceback_end:
                continue  # read along with one before it
            self._windows += 1
            found, end = exceptions(self._block, start)
            self._traceback_end = self._text_at + end
            for one in found:
                self._place(one)

    def _place(self, one: Exceptional) -> None:
        if one.offset >= self._block.offset + self._block.raw_size:
            self._exceptions_ahead[one.offset] = one  # its line is of the next block
            return
        entries = self._entries_on.get(one.offset)
        if not entries:
            entries = self._entries_on[one.offset] = [self._exception(one)]
        for entry in entries:
            if not entry.frame:
                entry.frame, entry.error_type = one.frame, one.type
                entry.outermost, entry.innermost = one.outermost, one.innermost

    def _exception(self, one: Exceptional) -> Entry:
        seen = self._seen.setdefault(EXCEPTION_NUMBER, Seen())
        line = one.line.decode("utf-8", "replace")
        writer = writer_of(one.line, self._writer)
        key = (*_who(writer), one.frame, NUMBERS.sub("#", line))
        captures = {"type": one.type, "message": one.message}
        entry = Entry(EXCEPTION_NUMBER, one.offset, 0, line, captures, writer, one.offset)
        return self._kept(seen, key, entry, 0)

    def _liken(self, entries: Sequence[Entry], begin: int) -> None:
        """Tries exception signatures on the last lines, from this offset on, in which a program reports an
        error itself.
        """
        last = [one for one in entries if one.number == self._knowledge.spoken and one.last_offset >= begin]
        if last:
            untyped = Untyped(self._engine, self._knowledge.signatures, self._knowledge.pattern)
            for entry in last[-LAST_WORDS:]:
                entry.known_as = untyped.known_as(entry.text)

    def _heed_labels(self, entries: Sequence[Entry], lines: Sequence[str]) -> None:
        """Marks lines whose srun label is the number of a worker and not of a rank."""
        labelled = [entry for entry in entries if LABEL.match(entry.text)]
        texts = [*(entry.text for entry in labelled), *(line for line in lines if LABEL.match(line))]
        if any(labels_are_nodes(text.encode()) for text in texts):
            for entry in labelled:
                entry.writer = writer_of(entry.text.encode(), self._writer, labels_are_nodes=True)


def made(entry: Entry, source: int, knowledge: Knowledge) -> Match:
    """Returns the finished match of an entry, in the log with number `source`."""
    if entry.number == EXCEPTION_NUMBER:
        signature, category = EXCEPTION, EXCEPTION_CATEGORY
    else:
        known = knowledge.signatures[entry.number]
        signature = known.id
        category = known.category
        if "{" in category:
            category = FIELD.sub(lambda match: entry.captures.get(match[1], ""), category)
    return Match(
        signature=signature,
        category=category,
        source=source,
        offset=entry.offset,
        line=entry.line,
        text=entry.text,
        captures=entry.captures,
        writer=entry.writer,
        count=entry.count,
        last_offset=entry.last_offset,
        frame=entry.frame,
        error_type=entry.error_type,
        outermost=entry.outermost,
        innermost=entry.innermost,
        known_as=entry.known_as,
        record=entry.record,
    )


def _who(writer: Writer) -> Key:
    return (writer.rank, writer.local_rank, writer.worker, writer.host, writer.device)
