"""Parses the steps of a training from its log, in any known form. Pure.

Detects the form: all forms are tried on every line until one is certain. Framework-specific forms are
accepted at their first line; a bar or a line of common words waits until its number has grown a few times,
with its lines held back, and is replaced by a more informative form. That one form then parses everything.
"""

import re
from collections.abc import Sequence

from holdfast.late_pattern import late
from holdfast.model.step_forms import SPECIFIC, WORDS, MarkForm, StepForm
from holdfast.model.steps import FirstLast, PhaseMark, StepRecord
from holdfast.parsers.steps import columns as step_columns
from holdfast.parsers.steps.blocks import LINE_BYTES_MAX, MARK_BYTES, TextCutter, lines_with_marks
from holdfast.parsers.steps.details import Details
from holdfast.parsers.steps.heads import HEAD_BYTES_MAX, Heads
from holdfast.parsers.steps.progress import COLOUR, EVALUATION
from holdfast.parsers.steps.reading import STEM_WORDS, FormReader, Found
from holdfast.parsers.steps.rivals import Rival
from holdfast.parsers.steps.times import Timeline
from holdfast.parsers.steps.values import count, number

SURE_AFTER = 3  # lines of growing steps, for forms that others may print too
EPOCH = b"poch"
SURE_BESIDE = 6  # the same, after another form of the same trust was accepted
WATCHED_RECORDS = 2000  # after this number of records, no other form replaces a framework-specific one
UNEVEN = (b"\r", b"\x1b", b"\x08")
ALIKE_MIN = 8
UNSETTLED_LINES = 64
REWRITTEN = late(rb"[\r\x08]+")  # a bar is redrawn after either
JOINED_LINES_MAX = 4  # lines of one wrapped record
HEADING_BYTES = 80  # of a line that announces what follows, from its end
STEM_BYTES = tuple(stem.encode() for stem in STEM_WORDS)
STEMS = late(rb"(?i)step|iter|epoch|it/s|s/it|loss|mllog|batch|\btime|sec")
Item = StepRecord | PhaseMark


class StepLines:
    """Parses one log, or one stream in which several ranks print. `rank`: the writer, if the log does not name it.

    `details`: records also have gradient norm, learning rate and data, which takes longer.
    """

    def __init__(self, forms: Sequence[StepForm], *, rank: int | None = None, details: bool = False) -> None:
        self._rank = rank
        self._details = Details() if details else None
        readers = sorted(
            (FormReader(form) for form in forms),
            key=lambda reader: (-reader.form.trust, -len(reader.form.literal), -len(reader.form.pattern)),
        )
        self._readers = readers
        self._carriers = [reader for reader in readers if reader.form.before]
        self._beside_bars = [reader for reader in readers if reader.form.is_beside_bar]
        self._beside = ""  # whose lines stand beside the bar
        self._reads_all = any(not reader.literal and reader.form.trust >= SPECIFIC for reader in readers)
        self._odd_literals = [reader.literal for reader in readers if reader.literal and not reader.is_usual]
        # For each trust, the forms that may replace one with that trust; all of them at WORDS - 1.
        self._above = {
            trust: [(reader.literal, reader) for reader in readers if reader.form.trust > trust]
            for trust in {WORDS - 1, *(reader.form.trust for reader in readers)}
        }
        self._wrapping = [reader for reader in readers if reader.begins is not None]
        self._cut_marks = [reader.form.separator.encode() or reader.begins_with for reader in self._wrapping]
        self._marks = [
            (one.literal.encode(), re.compile(one.pattern.encode()), one)
            for form in forms
            for one in form.marks
        ]
        self._setting_forms = [
            (one.literal.encode(), re.compile(one.pattern.encode()), one)
            for form in forms
            for one in form.settings
        ]
        self._settings: dict[str, float] = {}
        self._whole_settings: set[str] = set()
        self._heads = Heads()
        self._cutter = TextCutter()
        self._is_mixed = False  # the last text had other lines, too
        self._layout: step_columns.Layout | None = None
        self._is_wrapped = False
        self._reader: FormReader | None = None
        self._line: Timeline | None = None
        self._bar: tuple[bytes, int | None] = (b"", None)  # of the bar that is followed
        self._bar_now: Found | None = None
        self._heading = b""  # the last line that is no step
        self._headed: tuple[bytes, int | None] | None = None  # the first bar below it
        self._rivals: dict[tuple[str, bytes, int | None], Rival] = {}
        self._joined: list[bytes] = []  # the beginning of a record that was wrapped

    @property
    def framework(self) -> str | None:
        """Returns the name of the framework that prints the step lines; None until it is known."""
        if self._reader is not None and self._reader.form.is_bar and self._beside:
            return self._beside
        return self._reader.form.framework if self._reader else None

    @property
    def iteration_lines(self) -> int:
        """Returns the number of distinct iteration records. A step printed by several ranks counts once."""
        return self._line.iteration_lines if self._line else 0

    @property
    def first(self) -> FirstLast:
        return self._line.first if self._line else FirstLast()

    @property
    def last(self) -> FirstLast:
        return self._line.last if self._line else FirstLast()

    @property
    def notes(self) -> tuple[str, ...]:
        return self._line.notes if self._line else ()

    def feed(self, lines: Sequence[bytes], at_s: float | None = None) -> list[Item]:
        """Returns the step records in whole lines. `at_s`: when the lines were read, for lines without a time
        stamp.
        """
        items: list[Item] = []
        for line in lines:
            if b"\r" in line or b"\x08" in line:
                for part in REWRITTEN.split(line):
                    if part:
                        self._feed_line(part, at_s, items)
            elif line:
                self._feed_line(line, at_s, items)
        return items

    def feed_block(self, block: bytes, at_s: float | None = None) -> list[Item]:
        """Returns the step records in a block of bytes; an incomplete line at its end waits for the next block."""
        text = self._cutter.feed(block)
        items: list[Item] = []
        if text and not self._is_settled():
            lines, read = text.split(b"\n"), 0
            while read < len(lines) and not self._is_settled():
                items += self.feed(lines[read : read + UNSETTLED_LINES], at_s)
                read += UNSETTLED_LINES
            text = b"\n".join(lines[read:])
        if text:
            self._feed_text(text, at_s, items)
        return items

    def _is_settled(self) -> bool:
        """Returns whether lines may be parsed many at once: none is held back, and no other form is tried."""
        reader = self._reader
        if reader is None or not reader.form.separator or self._joined or self._is_wrapped or self._details:
            return False
        return not self._is_watching(reader)

    def _feed_text(self, text: bytes, at_s: float | None, items: list[Item]) -> None:
        """Parses the iteration lines of a text, at once if they are similar, and its marks."""
        if any(byte in text for byte in UNEVEN):
            items += self.feed(text.split(b"\n"), at_s)
            return
        if not self._is_mixed and self._read_alike(text, at_s, items):
            return
        self._feed_mixed(text.split(b"\n"), at_s, items)

    def _feed_mixed(self, lines: list[bytes], at_s: float | None, items: list[Item]) -> None:
        """Parses iteration lines among other lines, and the marks, in order."""
        assert self._reader is not None
        literal = self._reader.literal
        others = [line for line in lines if literal not in line]
        self._is_mixed = len(others) > 2  # an empty one at either end is none
        marks = lines_with_marks(b"\n".join(others))
        places = [index for index, line in enumerate(lines) if line in marks] if marks else []
        start = 0
        for place in (*places, len(lines)):
            alike = [line for line in lines[start:place] if literal in line]
            if alike:
                self._feed_halves(b"\n".join(alike), at_s, items)
            if place < len(lines):
                self._feed_line(lines[place], at_s, items)
            start = place + 1

    def _feed_halves(self, text: bytes, at_s: float | None, items: list[Item]) -> None:
        """Parses iteration lines at once, else by halves, a few of them one by one."""
        count = text.count(b"\n") + 1
        if count >= ALIKE_MIN and self._read_alike(text, at_s, items):
            return
        middle = text.find(b"\n", len(text) // 2)
        if count < ALIKE_MIN or middle < 0:
            items += self.feed(text.split(b"\n"), at_s)
            return
        self._feed_halves(text[:middle], at_s, items)
        self._feed_halves(text[middle + 1 :], at_s, items)

    def _read_alike(self, text: bytes, at_s: float | None, items: list[Item]) -> bool:
        """Parses all lines at once; returns whether that was possible."""
        reader, timeline = self._reader, self._line
        assert reader is not None and timeline is not None
        found = step_columns.read(self._layout, text, self._heads) if self._layout else None
        if found is None:
            end = text.find(b"\n")
            self._layout = step_columns.learn(reader, text[:end] if end >= 0 else text)
            found = step_columns.read(self._layout, text, self._heads) if self._layout else None
        if found is None or self._layout is None:
            return False
        rank = self._heads.rank(self._layout.first_head)
        records = timeline.extend(found, at_s, self._rank if rank is None else rank)
        items += records or []
        return records is not None

    def finish(self) -> list[Item]:
        """Returns the step records that were held back until the log's end."""
        items: list[Item] = []
        rest = self._cutter.flush()
        if rest:
            items += self.feed([rest])
        self._unjoin(None, items)
        if self._reader is None and self._rivals:
            best = max(
                self._rivals.values(),
                key=lambda rival: (rival.growths >= 2, rival.reader.form.trust, rival.growths),
            )
            self._take(best, items)
        return items

    def _feed_line(self, line: bytes, at_s: float | None, items: list[Item]) -> None:
        if len(line) > LINE_BYTES_MAX:
            line = line[:LINE_BYTES_MAX]
        if b"\x1b" in line:
            line = COLOUR.sub(b"", line)
        if self._joined and self._joins(line, at_s, items):
            return
        if any(mark in line for mark in self._cut_marks) and self._is_cut(line):
            self._joined = [line]
            return
        self._feed_whole(line, at_s, items)

    def _feed_whole(self, line: bytes, at_s: float | None, items: list[Item]) -> None:
        reader = self._reader
        is_specific = reader is not None and reader.form.trust >= SPECIFIC
        if reader is None or (self._is_watching(reader) and not (is_specific and reader.literal in line)):
            for carrier in self._carriers:  # a candidate's first step may be in the line before its time
                if carrier is not reader:
                    carrier.carry(line)
            if self._may_be_step(line) and self._race(line, at_s, items):
                return
        reader = self._reader
        if reader is not None and reader.literal in line and self._read(line, at_s, items):
            return
        if reader is not None and reader.form.is_bar and self._is_beside_bar(line):
            return
        if reader is not None and reader.form.before and reader.carry(line):
            return
        self._aside(line, at_s, items)

    # Reading by the form that was taken

    def _read(self, line: bytes, at_s: float | None, items: list[Item]) -> bool:
        """Parses all records of a line; returns whether there was one."""
        reader, place, seen = self._reader, 0, False
        assert reader is not None
        while (found := reader.read(line, place)) is not None:
            seen = True
            self._take_found(reader, found, line, at_s, items)
            place = found.end  # another may be glued to it
            if place <= found.at or line.find(reader.literal, place) < 0:
                break
        return seen

    def _take_found(
        self, reader: FormReader, found: Found, line: bytes, at_s: float | None, items: list[Item]
    ) -> None:
        if reader.form.is_bar and not self._is_followed(reader, found, line, at_s, items):
            return
        self._add(found, line, at_s, items)

    def _add(self, found: Found, line: bytes, at_s: float | None, items: list[Item]) -> None:
        assert self._line is not None
        self._heading = b""
        head = line[: found.at]
        rank = found.rank
        if rank is None:
            rank = self._heads.rank(head)
        stamp = (found.stamp_s, found.stamp_is_fine) if found.stamp_s is not None else self._stamp(head, line)
        record = self._line.add(found, at_s, self._rank if rank is None else rank, stamp)
        if record is not None:
            items.append(record if self._details is None else self._details.added(record, line))

    def _stamp(self, head: bytes, line: bytes) -> tuple[float, bool] | None:
        return self._heads.stamp_s(head) if head and not head.isspace() else None

    def _is_beside_bar(self, line: bytes) -> bool:
        """Returns whether this line has the loss of the bar's current step."""
        for reader in self._beside_bars:
            if reader.literal in line and (found := reader.read(line)) is not None:
                self._beside = reader.form.framework
                if found.loss is not None and self._line is not None:
                    self._line.carry_loss(found.loss)
                if self._details is not None:
                    self._details.carry(line)
                return True
        return False

    # Choosing the form

    def _may_be_step(self, line: bytes) -> bool:
        low = line.lower()
        for stem in STEM_BYTES:
            if stem in low:
                return True
        for literal in self._odd_literals:
            if literal in line:
                return True
        return self._reads_all

    def _is_watching(self, reader: FormReader) -> bool:
        limit = WATCHED_RECORDS if reader.form.trust < SPECIFIC else SURE_AFTER
        return self.iteration_lines < limit

    def _race(self, line: bytes, at_s: float | None, items: list[Item]) -> bool:
        """Tries the forms that are more informative than the accepted one; returns whether one matched."""
        now = self._reader
        for literal, reader in self._above[now.form.trust if now is not None else WORDS - 1]:
            if literal in line and (found := reader.read(line)) is not None:
                self._compete(reader, found, line, at_s, items)
                return True
        if now is not None and now.form.trust >= SPECIFIC:
            return self._race_equals(now, line, at_s, items)
        return False

    def _race_equals(self, now: FormReader, line: bytes, at_s: float | None, items: list[Item]) -> bool:
        """Tries forms of equal trust, while the accepted form has matched only once or twice."""
        for literal, reader in self._above[SPECIFIC - 1]:
            if reader is not now and literal in line and (found := reader.read(line)) is not None:
                self._compete(reader, found, line, at_s, items)
                return True
        return False

    def _compete(
        self, reader: FormReader, found: Found, line: bytes, at_s: float | None, items: list[Item]
    ) -> None:
        if reader.form.is_bar and self._is_of_evaluation(found):
            return
        key = (reader.form.id, found.label, found.total if reader.form.is_bar else None)
        rival = self._rivals.get(key)
        if rival is None:
            rival = self._rivals[key] = Rival(reader)
        rival.saw(found, line, at_s)
        now = self._reader
        if now is None:
            is_sure = reader.form.trust >= SPECIFIC or rival.growths >= SURE_AFTER
        else:
            is_sure = rival.growths >= (2 if reader.form.trust > now.form.trust else SURE_BESIDE)
        if is_sure and rival.is_long() and not self._is_within_another(rival):
            self._take(rival, items)

    def _is_of_evaluation(self, found: Found) -> bool:
        """Returns whether this is a bar without a label, the first one below a line that announces an evaluation."""
        if found.label or EVALUATION.search(self._heading) is None:
            return False
        key = (found.label, found.total)
        if self._headed is None:
            self._headed = key
        return key == self._headed

    def _is_within_another(self, rival: Rival) -> bool:
        """Returns whether this bar runs within a step of another bar that waits and is no bar of epochs."""
        return rival.reader.form.is_bar and any(
            other is not rival and other.stands() and EPOCH not in other.held[-1][0].label.lower()
            for other in self._rivals.values()
        )

    def _take(self, rival: Rival, items: list[Item]) -> None:
        """Accepts a candidate, and parses all lines that were held back for it."""
        run = self._line.run + 1 if self._line and self.iteration_lines else 0
        self._reader = rival.reader
        self._line = Timeline(rival.reader.form, self._settings, run)
        beside = [other for other in self._rivals.values() if other.reader.form.is_beside_bar]
        self._rivals.clear()
        self._bar = (rival.held[0][0].label, rival.held[0][0].total)
        for found, line, at_s in rival.held:
            self._bar_now = found
            self._add(found, line, at_s, items)
        for other in beside:
            self._beside = other.reader.form.framework
            if (loss := other.held[-1][0].loss) is not None and rival.reader.form.is_bar:
                self._line.carry_loss(loss)

    def _is_followed(
        self, reader: FormReader, found: Found, line: bytes, at_s: float | None, items: list[Item]
    ) -> bool:
        """Returns whether this is the training's bar; a longer-running one replaces it after its end."""
        key = (found.label, found.total)
        now = self._bar_now
        if key == self._bar or now is None:
            self._bar_now = found
            self._rivals.clear()
            return True
        is_over = now.total is not None and now.number is not None and now.number >= now.total
        same_key = (reader.form.id, *key)
        rival = self._rivals.get(same_key)
        if rival is None:
            rival = self._rivals[same_key] = Rival(reader)
        rival.saw(found, line, at_s)
        if is_over and rival.growths >= SURE_AFTER and rival.outlasts(now.elapsed_s or 0.0):
            self._take(rival, items)
        return False

    # Records over several lines

    def _is_cut(self, line: bytes) -> bool:
        """Returns whether a record begins in this line that continues in the next one."""
        readers = [self._reader] if self._reader else self._wrapping
        for reader in readers:
            if (
                reader.begins is not None
                and reader.begins.search(line)
                and not line.rstrip().endswith(reader.ends)
            ):
                return True
        return False

    def _joins(self, line: bytes, at_s: float | None, items: list[Item]) -> bool:
        """Joins a line to the record held back; returns False if it does not continue it."""
        readers = [self._reader] if self._reader else self._wrapping
        is_new = any(reader.begins is not None and reader.begins.search(line) for reader in readers)
        if not is_new:
            self._joined.append(line)
            is_whole = any(line.rstrip().endswith(reader.ends) for reader in readers)
            if not is_whole and len(self._joined) < JOINED_LINES_MAX:
                return True
            if is_whole:
                whole, self._joined = b"".join(self._joined), []
                self._is_wrapped = True
                self._feed_whole(whole, at_s, items)
                return True
        self._unjoin(at_s, items)
        return not is_new

    def _unjoin(self, at_s: float | None, items: list[Item]) -> None:
        """Parses joined lines one by one, because they did not belong together."""
        lines, self._joined = self._joined, []
        for line in lines:
            self._feed_whole(line, at_s, items)

    # Lines beside the steps

    def _aside(self, line: bytes, at_s: float | None, items: list[Item]) -> None:
        if line[:1].strip():  # what is indented belongs to the line above it
            self._heading, self._headed = line[-HEADING_BYTES:], None
        if b"atch" in line or b"seq" in line:
            self._read_settings(line)
        for word in MARK_BYTES:
            if word in line:
                self._find_mark(line, at_s, items)
                return

    def _read_settings(self, line: bytes) -> None:
        for literal, pattern, form in self._setting_forms:
            if literal not in line:
                continue
            match = pattern.search(line)
            if match is None:
                continue
            for name in match.groupdict():
                value = number(match[name], is_count=True) if name == "batch" else count(match[name])
                if value and (form.is_whole or name not in self._whole_settings):
                    self._settings[name] = value
                    if form.is_whole:
                        self._whole_settings.add(name)

    def _find_mark(self, line: bytes, at_s: float | None, items: list[Item]) -> None:
        for literal, pattern, mark in self._marks:
            if literal in line and pattern.search(line):
                self._mark(mark, line, at_s, items)
                return

    def _mark(self, mark: MarkForm, line: bytes, at_s: float | None, items: list[Item]) -> None:
        head = line[:HEAD_BYTES_MAX]
        stamp = self._heads.stamp_s(head)
        rank = self._heads.rank(head)
        run = self._line.run if self._line else 0
        items.append(
            PhaseMark(mark.kind, stamp[0] if stamp else at_s, run, self._rank if rank is None else rank)
        )
