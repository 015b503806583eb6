"""Finds the Python tracebacks in the lines of a log. Pure; never raises on its input.

Ranks share a log: each line may have a prefix that names its writer, and lines of several ranks interleave:

    [rank1]: Traceback (most recent call last):
    [rank0]: Traceback (most recent call last):
    [rank1]:   File "/data/train.py", line 88, in step
    [rank1]:     raise RuntimeError("bad batch")
    [rank1]: RuntimeError: bad batch

`line_heads` parses prefixes; lines of one writer belong together although their times differ. Any other text
before "Traceback" is a prefix as well, if the next line carries it too. Where ranks mix without a prefix, as many
tracebacks are found as there are exceptions, each with the innermost frame reached so far. It does not judge
which one is the cause.

Also read: tracebacks of IPython and rich, Ray's of its workers, exception groups, a syntax error without a title,
those in torchrun's table, those written as one line with \n in it, and one whose beginning is cut off.

source: see `traceback_forms`
"""

import re
from collections.abc import Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from holdfast.late_pattern import late
from holdfast.model.matches import Writer
from holdfast.parsers.log_lines.line_heads import labels_are_nodes, split_head
from holdfast.parsers.tracebacks import forms
from holdfast.parsers.tracebacks.unfinished import (
    Line,
    Open,
    Whose,
    belongs,
    is_frame,
    opened,
    own_text,
    restart,
)

FOUND_MAX = 1000
LINE_MAX_BYTES = 4096
ESCAPED_MAX_BYTES = 256 << 10
WRITERS_MAX = 4096  # writers with an open traceback at the same time
PREFIXES_MAX = 16  # open tracebacks per writer
OPEN_LINES_MAX = 5000  # after this many lines without one of its writer, a traceback is abandoned
MIXED_LINES_MAX = 200  # two titles within this distance, without an exception between them, are of two ranks
ADOPTED_LINES_MAX = 2
GROUP_LINES_MAX = 4  # between an exception group and the first exception in it

TITLE = b"Traceback (most recent call last)"
FRAME = b'File "'
ESCAPED_FRAME = b"\\n  File "
TABLE_ROW = b"(local_rank: "
LABEL = late(rb" {0,3}(?P<label>\d{1,6}): ?")
# Only such lines can show whether srun's labels number ranks or nodes: a rank or a GPU follows the label.
LABEL_PROOF = late(rb" {0,3}\d{1,6}: ?(?:\[(?:rank|default)\d|[\w.-]{1,80}:\d{1,9}:\d{1,9} \[\d)")
HOOK = late(rb"\[rank\d{1,7}\]: ")
# The end of a progress bar, "[00:43<00:59,  1.01it/s, loss=2.1]", after which other text may follow on the line.
BAR_END = late(rb"\[[\d:]{4,9}(?:<[\d:?]{1,9})?, {1,3}[\w?. ]{1,24}/\w{1,12}[^\]\r\n]{0,200}\]")


class Traceback(Struct, frozen=True, kw_only=True):
    """One traceback, or a chain of them. Lines count from 0. `rank` and similar: from the prefix, else None.

    `type`, `message`: the last exception of the chain; `first_type`, `first_message`: the first one. Frames:
    "path/of/train.py:88 step"; `user_frame` is outside installed libraries; empty if there is none.
    `error_line`: the line with the type. `outermost`: the first frame, that of a module if any part has one.
    `host`, `pid`: of the Ray worker in which it happened, if Ray prints it.
    """

    type: str
    message: str
    frame: str
    user_frame: str
    first_type: str
    first_message: str
    rank: int | None = None
    local_rank: int | None = None
    worker: int | None = None
    host: str | None = None
    pid: int | None = None
    first_line: int
    last_line: int
    error_line: int = 0
    outermost: str = ""


def tracebacks(lines: Iterable[bytes]) -> tuple[Traceback, ...]:
    """Returns all tracebacks, in the order of their ends; at most 1000.

    Incomplete ones without a type are left out.
    """
    return _Reader().read(lines)


class _Reader:
    """Reads one log, and assigns each line to one of the open tracebacks."""

    def __init__(self) -> None:
        self._open: dict[Whose, list[Open]] = {}
        self._last_begun: Open | None = None
        self._done: list[tuple[Whose, Traceback]] = []
        self._table_rank: tuple[int, int] | None = None
        self._labels_are_nodes = False

    def read(self, lines: Iterable[bytes]) -> tuple[Traceback, ...]:
        for number, raw in enumerate(lines):
            if number % OPEN_LINES_MAX == 0:
                for one in [one for one in self._all_open() if number - one.last_line > OPEN_LINES_MAX]:
                    self._close(one)
            if not self._labels_are_nodes and LABEL_PROOF.match(raw):
                self._labels_are_nodes = labels_are_nodes(raw)
            if TABLE_ROW in raw and (row := forms.RANK_FIELD.search(raw[:LINE_MAX_BYTES].decode("latin-1"))):
                self._table_rank = (int(row["rank"]), int(row["local"]))
            if self._open or TITLE in raw or FRAME in raw:  # few lines: the others are not worth decoding
                self._take(raw, number)
            if len(self._done) >= FOUND_MAX:
                break
        for one in self._all_open():
            self._close(one)
        begun = {one.first_line for _, one in self._done}
        found = [
            self._with_rank(whose, one)
            for whose, one in self._done[:FOUND_MAX]
            if not _holds_others(one, begun)
        ]
        return tuple(sorted(found, key=lambda one: (one.last_line, one.first_line)))

    def _take(self, raw: bytes, number: int) -> None:
        whose, line = _split(raw[:LINE_MAX_BYTES], number)
        if TITLE in raw and ESCAPED_FRAME in raw[:ESCAPED_MAX_BYTES]:
            self._take_escaped(whose, raw[:ESCAPED_MAX_BYTES], number)
        elif title := forms.TITLE.search(line.text):
            self._begin(whose, line, title)
        elif mine := self._open.get(whose):
            self._go_on(mine, line)
        elif forms.FRAME_START.match(line.text):
            self._adopt(whose, line)

    def _take_escaped(self, whose: Whose, raw: bytes, number: int) -> None:
        inside = raw[raw.find(TITLE) :].replace(b'\\"', b'"').split(b"\\n")
        for one in tracebacks(inside):
            here = replace(
                one,
                rank=whose.rank,
                local_rank=whose.local_rank,
                host=whose.host,
                pid=whose.pid,
                first_line=number,
                last_line=number,
                error_line=number,
            )
            self._done.append((whose, here))

    def _begin(self, whose: Whose, line: Line, title: re.Match[str]) -> None:
        before = line.text[: title.start()]
        new = opened(whose, line, before, has_colon=bool(title["colon"]))
        if forms.FIELD_BEFORE.match(before):
            new.table_rank = self._table_rank
        mine = [one for one in self._open.get(whose, ()) if _has_prefix(one, new, before)]
        prior = mine[-1] if mine else None
        if prior is not None:
            is_original = prior.state == "ended" and before.strip() == "Original"
            if is_original or prior.state in ("linked", "inner"):
                restart(prior, new)
                return
            is_over = prior.is_mixed and line.number - prior.error_line <= 1  # the last of those that mixed
            is_near = line.number - prior.last_line <= MIXED_LINES_MAX
            if prior.state == "frames" and not prior.type and is_near and not is_over:
                _mix(prior, line.number)
                return
            self._close(prior)
        self._add(new)

    def _go_on(self, mine: list[Open], line: Line) -> None:
        for one in tuple(reversed(mine)):
            guessed = one.prefix is not None and not one.prefix_seen
            text = own_text(one, line.text)
            if text is None:
                continue
            if guessed and one.prefix is None:
                one = self._merged(one, mine)
            here = Line(line.number, text, line.has_stamp, line.is_hook)
            if one.state == "ended" and is_frame(text):
                self._close(one)  # another rank's frames, whose title was mixed up with this one
                self._adopt(one.lines_of, here)
            elif not belongs(one, here):
                self._close(one)
            elif one.state == "ended" and one.starts > 1:
                self._emit(one)
                one.starts -= 1
                one.state, one.type, one.message = "frames", "", ""
            return

    def _merged(self, one: Open, mine: list[Open]) -> Open:
        """Joins a traceback with another: the text before its title was no prefix but part of another rank's
        traceback.
        """
        for other in mine:
            if other is not one and other.prefix is None and other.state == "frames" and not other.type:
                self._remove(one)
                _mix(other, one.last_line)
                return other
        return one

    def _adopt(self, whose: Whose, line: Line) -> None:
        """Opens a traceback for a frame without a title, because only the title had a prefix, or the
        beginning is missing.
        """
        one = self._last_begun
        if one and not one.frame and line.number - one.first_line <= ADOPTED_LINES_MAX:
            self._remove(one)
            one.lines_of = whose
            self._open.setdefault(whose, []).append(one)
            belongs(one, line)
            return
        one = Open(
            whose=whose,
            lines_of=whose,
            first_line=line.number,
            last_line=line.number,
            style="cut",
            has_stamp=line.has_stamp,
        )
        belongs(one, line)
        self._add(one)

    def _all_open(self) -> list[Open]:
        return [one for mine in self._open.values() for one in mine]

    def _add(self, one: Open) -> None:
        mine = self._open.setdefault(one.lines_of, [])
        if len(self._open) > WRITERS_MAX or len(mine) >= PREFIXES_MAX:
            self._close(mine[0] if mine else self._all_open()[0])
            mine = self._open.setdefault(one.lines_of, [])
        mine.append(one)
        self._last_begun = one

    def _close(self, one: Open) -> None:
        self._remove(one)
        self._emit(one)

    def _remove(self, one: Open) -> None:
        mine = self._open[one.lines_of]
        mine.remove(one)
        if not mine:
            del self._open[one.lines_of]
        if self._last_begun is one:
            self._last_begun = None

    def _emit(self, one: Open) -> None:
        if not one.type or (one.style == "cut" and not one.has_function and one.type not in forms.BARE):
            return
        first_type, first_message = one.first or (one.type, one.message)
        rank, local_rank = one.table_rank or (one.whose.rank, one.whose.local_rank)
        found = Traceback(
            type=one.type,
            message=one.message.strip(),
            frame=one.frame,
            user_frame=one.user_frame,
            first_type=first_type,
            first_message=first_message.strip(),
            rank=rank,
            local_rank=local_rank,
            worker=one.whose.worker,
            host=one.remote_host or one.whose.host,
            pid=one.remote_pid or one.whose.pid,
            first_line=one.first_line,
            last_line=one.last_line,
            error_line=one.error_line,
            outermost=one.outermost,
        )
        self._done.append((one.whose, found))

    def _with_rank(self, whose: Whose, found: Traceback) -> Traceback:
        if whose.label is None or found.rank != whose.label or not self._labels_are_nodes:
            return found
        return replace(found, rank=None, worker=whose.label)


def _holds_others(one: Traceback, begun: Collection[int]) -> bool:
    """Returns whether this is an exception group whose exceptions follow it directly, so that they are
    reported instead.
    """
    if not one.type.endswith("ExceptionGroup"):
        return False
    return any(one.error_line + ahead in begun for ahead in range(1, GROUP_LINES_MAX + 1))


def _split(raw: bytes, number: int) -> tuple[Whose, Line]:
    writer, rest = split_head(raw)
    if b"/s" in rest or b"s/" in rest:
        writer, rest = _without_bar(writer, rest)
    label = LABEL.match(raw)
    whose = Whose(
        rank=writer.rank,
        local_rank=writer.local_rank,
        worker=writer.worker,
        host=writer.host,
        pid=writer.pid,
        label=int(label["label"]) if label and writer.rank == int(label["label"]) else None,
    )
    has_stamp = writer.stamp_s is not None or writer.uptime_s is not None
    is_hook = HOOK.search(raw[: len(raw) - len(rest)]) is not None
    return whose, Line(number, rest.decode("utf-8", "replace"), has_stamp, is_hook)


def _without_bar(writer: Writer, rest: bytes) -> tuple[Writer, bytes]:
    """Returns the text after the last progress bar of a line, and its writer; the line unchanged if it has no
    bar.
    """
    behind = max((bar.end() for bar in BAR_END.finditer(rest)), default=0)
    return split_head(rest[behind:], writer) if behind else (writer, rest)


def _has_prefix(one: Open, new: Open, before: str) -> bool:
    """Returns whether the title after `before` may belong to the open traceback."""
    if one.prefix is None:
        return new.prefix is None
    return one.prefix_seen and one.prefix.fullmatch(before) is not None


def _mix(one: Open, number: int) -> None:
    one.starts += 1
    one.is_mixed = True
    one.last_line = number
