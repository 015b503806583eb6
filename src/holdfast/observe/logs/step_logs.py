"""Reads training steps from all sources: logs plain and compressed, event files, stdin, pipes, the output of
a job.

Blocks of bytes go to the readers of `parsers`, their results to `core.steps`. Memory does not grow with a
log. It writes nothing, and reports everything that it skips.
"""

import os
import re
import select
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.steps.report import LogSteps, kin
from holdfast.core.steps.watch_settings import StepSettings
from holdfast.model.matches import NO_WRITER, Skipped, Writer
from holdfast.model.step_forms import StepForm
from holdfast.model.steps import FirstLast, StepRecord
from holdfast.observe.logs.index import SOURCE, rank_of_source, read_lines
from holdfast.observe.logs.streams import Reader, Unreadable
from holdfast.observe.logs.tree import Log, LogFile, find, natural, of_stdin, opened, readable_name
from holdfast.parsers.log_lines.log_names import writer_of_name
from holdfast.parsers.steps.heads import Heads
from holdfast.parsers.steps.lines import StepLines
from holdfast.parsers.steps.tfevents import Damaged, Event, EventCutter, EventSteps

BLOCK_BYTES = 1 << 20
KEPT_STEPS, KEPT_STEPS_MIN = 4096, 64  # of each rank's own times
KEPT_IN_ALL = 8 << 20
WATCHED_MAX = 16  # of the ranks' logs of one training: they contain the same steps
BEGIN_BYTES = 64 << 10  # in which the first stamp is looked for
PIPE_WAIT_S = 10.0  # for data in a named pipe
SKIPPED_MAX = 200

EVENTS = re.compile(r"\.tfevents\.")
JSONL = re.compile(r"\.jsonl(?:\.|$)")
ROTATED = re.compile(r"(?P<base>.+)\.(?P<number>\d{1,4})(?P<packed>\.(?:gz|zst|bz2|xz))?$")
ATTEMPT = re.compile(r"(?P<before>(?:^|/)attempt[-_]?)(?P<number>\d{1,5})(?=/)")
WORKER_FOLDER = re.compile(r"attempt-(\d{1,9})/worker-(\d{1,9})")


class ReadSettings(Struct, frozen=True, kw_only=True):
    """Settings for reading steps.

    `rule`: also evaluate the rule by which a platform recognises slow training. `details`: keep every record,
    with gradient norm, learning rate and data position.
    """

    forms: tuple[StepForm, ...]
    steps: StepSettings
    rule: bool = False
    details: bool = False


class FoundLogs(Struct, kw_only=True):
    """The steps found in all logs. `files`: number of files read, with steps or without.

    `skipped`: files not read.
    """

    logs: list[LogSteps] = []
    skipped: list[Skipped] = []
    files: int = 0
    size_bytes: int = 0

    def say(self, skipped: Skipped) -> None:
        if len(self.skipped) < SKIPPED_MAX:
            self.skipped.append(skipped)


class Part(Struct, frozen=True):
    """How a log file relates to others: the log that it is a part of (`key`), its attempt, and how often the file has
    been rotated.
    """

    key: str
    attempt: int = 0
    rotation: int = 0


def read_logs(
    places: Sequence[Path],
    settings: ReadSettings,
    *,
    stdin: BinaryIO | None = None,
    beside: Callable[[Log], object] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> FoundLogs:
    """Returns the steps of all logs under the paths and on stdin.

    `beside`: receives files that are no logs but belong to the job, such as flight records. `progress`:
    called now and then with the bytes read and the total.
    """
    return _Reading(settings, beside, progress).all(places, stdin)


def read_job(
    folder: Path, settings: ReadSettings, *, progress: Callable[[int, int], object] | None = None
) -> FoundLogs:
    """Returns the steps in the output of a job's workers, attempt by attempt.

    Lines without a timestamp get the index's.
    """
    reading = _Reading(settings, None, progress)
    reading.job(folder)
    return reading.found


def part_of(name: str, names: frozenset[str]) -> Part:
    """Returns the log that a file is a rotated part of, or the file itself. `names`: the names of all files.

    `train.log.2.gz` belongs to `train.log` if that exists.
    """
    rotation = 0
    match = ROTATED.fullmatch(name)
    if match and match["base"] in names:
        name, rotation = match["base"], int(match["number"])
    attempt = ATTEMPT.search(name)
    if attempt is None:
        return Part(name, 0, rotation)
    key = f"{name[: attempt.start()]}{attempt['before']}#{name[attempt.end() :]}"
    return Part(key, int(attempt["number"]), rotation)


class _Reading:
    """One run of reading steps from all given paths."""

    def __init__(
        self,
        settings: ReadSettings,
        beside: Callable[[Log], object] | None,
        progress: Callable[[int, int], object] | None,
    ) -> None:
        self.found = FoundLogs()
        self._settings = settings
        self._beside = beside
        self._progress = progress or (lambda done, total: None)
        self._done_bytes = self._total_bytes = 0
        self._kept = KEPT_STEPS
        self._open: dict[str, _OpenLog] = {}
        self._kin: Counter[str] = Counter()  # logs with steps, by training as far as names show it

    def all(self, places: Sequence[Path], stdin: BinaryIO | None) -> FoundLogs:
        pipes = [place for place in places if _is_pipe(place)]
        files = find([place for place in places if place not in pipes], self.found.say)
        self._total_bytes = sum(file.size_bytes for file in files)
        self._kept = max(KEPT_STEPS_MIN, min(KEPT_STEPS, KEPT_IN_ALL // max(1, len(files))))
        names = frozenset(file.name for file in files)
        events = [file for file in files if EVENTS.search(file.name)]
        logs = _in_order([file for file in files if not EVENTS.search(file.name)], names)
        for at, (file, part) in enumerate(logs):
            self._file(file, part)
            if at + 1 == len(logs) or logs[at + 1][1].key != part.key:
                self._finish(part.key)
        for folder, some in groupby(events, key=lambda file: file.name.rpartition("/")[0]):
            self._events(folder, sorted(some, key=lambda file: natural(file.name)))
        for pipe in pipes:
            self._pipe(pipe)
        if stdin is not None:
            for log in of_stdin(stdin, self.found.say):
                self._log(log, Part(log.name))
        for key in list(self._open):
            self._finish(key)
        return self.found

    def job(self, folder: Path) -> None:
        sources: dict[tuple[int, str], list[tuple[int, Path]]] = {}
        for path in folder.glob("attempt-*/worker-*"):
            match = WORKER_FOLDER.fullmatch(str(path.relative_to(folder)))
            for name in _listed(path) if match else ():
                if match and SOURCE.fullmatch(name):
                    sources.setdefault((int(match[2]), name), []).append((int(match[1]), path))
                    self._total_bytes += _size(path / name)
        self._kept = max(KEPT_STEPS_MIN, min(KEPT_STEPS, KEPT_IN_ALL // max(1, len(sources))))
        for (worker, source), attempts in sorted(sources.items()):
            name = f"worker-{worker}/{source}"
            writer = Writer(rank=rank_of_source(source), worker=worker)
            log = self._opened(name, Part(name), writer)
            for attempt, path in sorted(attempts):
                log.begin(attempt)
                self._indexed(log, attempt, worker, path, source)
                log.steps.written_s = _written_s(path / source)
            self._finish(name)

    def _indexed(self, log: "_OpenLog", attempt: int, worker: int, folder: Path, source: str) -> None:
        """Reads a worker's log with the times of its index.

        A log without an index has no step times, because a guess is none.
        """
        lines = read_lines([(attempt, worker, folder)], sources=(source,))
        for (at_s, exact), some in groupby(lines, key=lambda line: (line.at_s, line.exact)):
            texts = [line.text for line in some]
            log.feed_lines(texts, at_s if exact else None)
            self._count(sum(map(len, texts)) + len(texts))

    def _file(self, file: LogFile, part: Part) -> None:
        before = self._done_bytes
        for log in opened(file, self.found.say):
            to = self._log(log, part if log.name == file.name else part_of(log.name, frozenset()))
            if to is not None:
                to.steps.written_s = _written_s(file.path)
        self._done_bytes = before + file.size_bytes  # packed ones were counted unpacked

    def _log(self, log: Log, part: Part) -> "_OpenLog | None":
        if log.kind is not None:
            if self._beside is not None:
                self._beside(log)
            return None
        to = self._opened(log.name, part, writer_of_name(log.name))
        to.begin(part.attempt)
        try:
            for block in _blocks(log.stream):
                to.feed(block)
                self._count(len(block))
        except Unreadable as error:
            self.found.say(Skipped(name=log.name, why=str(error)))
        return to

    def _pipe(self, path: Path) -> None:
        """Reads a named pipe to its end, such as the shell's <(zcat ...)."""
        name = readable_name(str(path))
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self.found.say(Skipped(name=name, why=f"it cannot be opened: {error.strerror}"))
            return
        with os.fdopen(fd, "rb", buffering=0) as file:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(PIPE_WAIT_S * 1000):
                self.found.say(Skipped(name=name, why=f"no process wrote to it for {PIPE_WAIT_S:.0f} s"))
                return
            os.set_blocking(fd, True)
            for log in of_stdin(file, self.found.say):
                self._log(replace(log, name=log.name.replace("stdin", name, 1)), Part(name))

    def _events(self, folder: str, files: Sequence[LogFile]) -> None:
        """Reads the event files of one folder as one training, started once for each file."""
        name = files[0].name if len(files) == 1 else f"{folder or '.'}/events.out.tfevents.*"
        log = _OpenEvents(
            LogSteps(
                name,
                self._settings.steps,
                view="events",
                rule=self._settings.rule,
                kept_steps=self._kept,
                keeps_records=self._settings.details,
            )
        )
        for file in files:
            self.found.files += 1
            log.begin()
            try:
                with open(file.path, "rb", buffering=0) as content:
                    while block := content.read(BLOCK_BYTES):
                        self._count(len(block))
                        log.feed(block)
            except Damaged as error:
                self.found.say(Skipped(name=file.name, why=str(error)))
            except OSError as error:
                self.found.say(Skipped(name=file.name, why=f"it cannot be read: {error.strerror}"))
        log.finish()
        log.steps.written_s = _written_s(files[-1].path)
        self.found.logs.append(log.steps)

    def _opened(self, name: str, part: Part, writer: Writer) -> "_OpenLog":
        """Returns the log that a file is a part of; a new one for its first part."""
        self.found.files += 1
        known = self._open.get(part.key)
        if known is None:
            is_watched = self._kin[kin(name, writer)] < WATCHED_MAX
            known = self._open[part.key] = _OpenLog(
                name, writer, self._settings, self._kept, is_watched=is_watched
            )
            self.found.logs.append(known.steps)
        return known

    def _finish(self, key: str) -> None:
        """Completes a log of which all parts have been read."""
        log = self._open.pop(key, None)
        if log is None:
            return
        log.finish()
        if log.steps.iteration_lines:
            self._kin[kin(log.steps.name, log.steps.writer)] += 1

    def _count(self, size_bytes: int) -> None:
        self.found.size_bytes += size_bytes
        self._done_bytes += size_bytes
        self._progress(self._done_bytes, self._total_bytes)


class _OpenLog:
    """One log while it is read: its parts one after another, each attempt with a parser of its own."""

    def __init__(
        self, name: str, writer: Writer, settings: ReadSettings, kept_steps: int, *, is_watched: bool
    ) -> None:
        self.steps = LogSteps(
            name,
            settings.steps,
            writer=writer,
            view="jsonl" if JSONL.search(name) else "log",
            rule=settings.rule,
            kept_steps=kept_steps,
            is_watched=is_watched or writer == NO_WRITER,
            keeps_records=settings.details,
        )
        self.steps.written_s = time.time()  # of what has no such time: it is being written
        self._forms = settings.forms
        self._details = settings.details
        self._rank = writer.rank
        self._attempt: int | None = None
        self._lines: StepLines | None = None
        self._looks_for_begin = settings.rule

    def begin(self, attempt: int) -> None:
        """Begins a part of this attempt."""
        if self._lines is not None and attempt != self._attempt:
            self.finish()
            self.steps.begin_attempt()
        if self._lines is None:
            self._lines = StepLines(self._forms, rank=self._rank, details=self._details)
        self._attempt = attempt

    def feed(self, block: bytes) -> None:
        assert self._lines is not None
        if self._looks_for_begin:
            self._looks_for_begin = False
            self.steps.begin_s = _first_stamp_s(block)
        self.steps.take(self._lines.feed_block(block))

    def feed_lines(self, lines: Sequence[bytes], at_s: float | None) -> None:
        assert self._lines is not None
        self.steps.take(self._lines.feed(lines, at_s))

    def finish(self) -> None:
        """Completes the current attempt."""
        lines, self._lines = self._lines, None
        if lines is None:
            return
        self.steps.take(lines.finish())
        self.steps.add_part(lines.framework, lines.iteration_lines, lines.first, lines.last)
        self.steps.notes += lines.notes


class _OpenEvents:
    """The event files of one training while they are read."""

    def __init__(self, steps: LogSteps) -> None:
        self.steps = steps
        self._events: EventSteps | None = None
        self._cutter = EventCutter()

    def begin(self) -> None:
        """Begins the next event file."""
        self._cutter = EventCutter()
        if self._events is None:
            self._events = EventSteps()
        else:
            self._take(self._events.begin_file())

    def feed(self, block: bytes) -> None:
        """Parses a block of the event file. Raises Damaged after the intact events."""
        assert self._events is not None
        events: list[Event] = []
        try:
            events.extend(self._cutter.feed(block))
        finally:
            self._take(self._events.feed(events))

    def finish(self) -> None:
        if self._events is not None:
            self._take(self._events.finish())

    def _take(self, records: Iterable[StepRecord]) -> None:
        for record in records:
            self.steps.take((record,))
            here = FirstLast(step=record.number, step_time_s=record.printed_s)
            self.steps.add_part("TensorBoard", 1, here, here)


def _in_order(files: Sequence[LogFile], names: frozenset[str]) -> list[tuple[LogFile, Part]]:
    """Returns the files so that the parts of each log follow one another, oldest first; logs stay in the
    order found.
    """
    parts = [(file, part_of(file.name, names)) for file in files]
    place: Mapping[str, int] = {part.key: at for at, (_, part) in reversed(list(enumerate(parts)))}
    return sorted(parts, key=lambda one: (place[one[1].key], one[1].attempt, -one[1].rotation))


def _blocks(stream: Reader) -> Iterator[bytes]:
    """Yields a stream as blocks of bytes. Raises Unreadable."""
    while block := stream.read(BLOCK_BYTES):
        yield block


def _first_stamp_s(block: bytes) -> float | None:
    """Returns the first timestamp in a block in seconds, because a training begins before its first step;
    None without one.
    """
    heads = Heads()
    for line in block[:BEGIN_BYTES].splitlines():
        stamp = heads.stamp_s(line)
        if stamp is not None:
            return stamp[0]
    return None


def _is_pipe(place: Path) -> bool:
    try:
        return stat.S_ISFIFO(place.stat().st_mode)
    except OSError:
        return False


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _written_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
