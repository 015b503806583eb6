"""Implements `holdfast logs`: prints the training's output of all workers and attempts, in order of time.

Only reads. A `~` marks a line without a recorded time; the time shown is then an upper bound.
"""

import os
import re
import time
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import Annotated

from holdfast.cli.job.named import FAILED, Job, StateFolder
from holdfast.cli.line.flags import App, BadParameter, Exit, Option
from holdfast.cli.line.number_lists import numbers
from holdfast.cli.line.output import put, put_json_line, say
from holdfast.core.hang.stack_groups import ranges
from holdfast.jobs.record import LOOK_S, RecordUnreadable, named_job, open_record, supervisor
from holdfast.journal.jobdir import JobDir
from holdfast.observe.logs.index import LogLine, read_lines
from holdfast.settings.times import MOMENTS, NotATime, moment, stamp

LATE_S = 10.0  # a file may be noted this much later than another; looked back for while following
_WORKER_DIR = re.compile(r"attempt-(\d+)/worker-(\d+)")

app = App()


@app.command()
def logs(
    job: Job = None,
    worker: Annotated[
        str | None,
        Option("--worker", metavar="N[,N-M]", help="Only these workers.", show_default=False),
    ] = None,
    rank: Annotated[int | None, Option("--rank", help="Only lines of this rank.", min=0)] = None,
    attempt: Annotated[int | None, Option("--attempt", help="Only this attempt.", min=1)] = None,
    since: Annotated[
        str | None, Option("--since", metavar="TIME", help=f"Only lines from this time on: {MOMENTS}.")
    ] = None,
    until: Annotated[
        str | None, Option("--until", metavar="TIME", help="Only lines up to this time.")
    ] = None,
    grep: Annotated[
        str | None, Option("--grep", metavar="RE", help="Only lines that match this regular expression.")
    ] = None,
    prefix: Annotated[
        bool, Option("--prefix/--no-prefix", help="Print time, attempt, worker and rank before each line.")
    ] = True,
    follow: Annotated[bool, Option("--follow", "-f", help="Follow the job as it runs.")] = False,
    json: Annotated[bool, Option("--json", help="One JSON document a line instead.")] = False,
    state_dir: StateFolder = None,
) -> None:
    """Prints the training's output as `time a1 w0 r2 | text`, across attempts, workers and ranks."""
    show = _as_json if json else _with_prefix if prefix else _text
    workers = numbers(worker, "--worker", "workers")
    wanted = Wanted(attempt, workers, rank, *_times(since, until), _pattern(grep))
    try:
        folder = named_job(job, state_dir)
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    lines = _followed(folder, wanted) if follow else wanted.lines(folder)
    line = None
    for line in lines:
        show(line, follow)
    if line is None:
        say(wanted.why_none(folder))


class Wanted:
    """The filters that select which lines to print."""

    def __init__(
        self,
        attempt: int | None = None,
        workers: Container[int] | None = None,
        rank: int | None = None,
        since_s: float | None = None,
        until_s: float | None = None,
        grep: re.Pattern[bytes] | None = None,
    ) -> None:
        self._attempt, self._workers, self._rank = attempt, workers, rank
        self.since_s, self._until_s, self._grep = since_s, until_s, grep

    def lines(self, job: JobDir, since_s: float | None = None) -> Iterator[LogLine]:
        """Yields the lines of the job's output that the filters select. `since_s`: earlier lines may be skipped."""
        return read_lines(
            list(self.folders(job)),
            since_s=since_s if since_s is not None else self.since_s,
            until_s=self._until_s,
            grep=self._grep,
            rank=self._rank,
        )

    @property
    def _is_everything(self) -> bool:
        chosen = (self._attempt, self._workers, self._rank, self.since_s, self._until_s, self._grep)
        return all(one is None for one in chosen)

    def why_none(self, job: JobDir) -> str:
        """Returns a sentence that says why no line was selected: for instance which workers and attempts exist, if
        others were requested.
        """
        there = [(attempt, worker) for attempt, worker, _ in Wanted().folders(job)]
        attempts, workers = {one for one, _ in there}, {one for _, one in there}
        if there and self._workers is not None and not any(one in self._workers for one in workers):
            return f"job {job.name} has output of workers {ranges(workers)} only"
        if there and self._attempt is not None and self._attempt not in attempts:
            return f"job {job.name} has output of attempts {ranges(attempts)} only"
        if self._is_everything:
            return f"job {job.name} has printed nothing"
        return f"job {job.name} has no output line that matches these filters"

    def folders(self, job: JobDir) -> Iterator[tuple[int, int, Path]]:
        for path in job.path.glob("attempt-*/worker-*"):
            match = _WORKER_DIR.fullmatch(str(path.relative_to(job.path)))
            if match is None:
                continue
            attempt, worker = int(match[1]), int(match[2])
            if self._attempt in (None, attempt) and (self._workers is None or worker in self._workers):
                yield attempt, worker, path


class Seen:
    """How far one output file has been printed: the time of the last printed line, and the number of lines with that
    time.
    """

    def __init__(self) -> None:
        self.newest_s = float("-inf")
        self._shown: dict[tuple[int, int, str], tuple[float, int]] = {}
        self._passed: dict[tuple[int, int, str], tuple[float, int]] = {}

    def begin(self) -> None:
        """Prepares for reading the file again from its start, without printing lines twice."""
        self._passed.clear()

    def is_new(self, line: LogLine) -> bool:
        file = (line.attempt, line.worker, line.source)
        at_s, count = self._passed.get(file, (line.at_s, 0))
        here = (line.at_s, count + 1 if at_s == line.at_s else 1)
        self._passed[file] = here
        if here <= self._shown.get(file, (float("-inf"), 0)):
            return False
        self._shown[file] = here
        self.newest_s = max(self.newest_s, line.at_s)
        return True


def _followed(folder: JobDir, wanted: Wanted) -> Iterator[LogLine]:
    """Yields all lines, and new ones as long as the job has a supervisor.

    A line waits until the supervisor has recorded its time; lines without a recorded time come at the end.
    """
    seen = Seen()
    facts = _facts(folder)
    goes_on = True
    while goes_on:
        goes_on = bool(supervisor(folder, facts))
        since_s = seen.newest_s - LATE_S if seen.newest_s > 0 else None
        seen.begin()
        for line in wanted.lines(folder, since_s):
            if (line.exact or not goes_on) and seen.is_new(line):
                yield line
        if goes_on:
            time.sleep(LOOK_S)


def _facts(folder: JobDir) -> dict[str, object]:
    try:
        record = open_record(folder)
    except RecordUnreadable:
        return {}
    try:
        return record.facts
    finally:
        record.close()


# Printing ------------------------------------------------------------------------------------------------

Show = Callable[[LogLine, bool], None]


def _text(line: LogLine, now: bool) -> None:
    put(_shown(line.text), now=now)


def _with_prefix(line: LogLine, now: bool) -> None:
    rank = f" r{line.rank}" if line.rank is not None else ""
    about = "" if line.exact else "~"
    put(f"{about}{stamp(line.at_s)} a{line.attempt} w{line.worker}{rank} | {_shown(line.text)}", now=now)


def _as_json(line: LogLine, now: bool) -> None:
    document = {
        "at_s": line.at_s,
        "exact": line.exact,
        "attempt": line.attempt,
        "worker": line.worker,
        "rank": line.rank,
        "source": line.source,
        "text": line.text.decode(errors="backslashreplace"),
    }
    put_json_line(document, now=now)


def _shown(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


# Reading -------------------------------------------------------------------------------------------------


def _times(since: str | None, until: str | None) -> tuple[float | None, float | None]:
    return _time(since, "--since"), _time(until, "--until")


def _time(text: str | None, flag: str) -> float | None:
    if text is None:
        return None
    try:
        return moment(text, time.time())
    except NotATime as error:
        raise BadParameter(str(error), param_hint=flag) from error


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    if text is None:
        return None
    try:
        return re.compile(os.fsencode(text))
    except re.error as error:
        raise BadParameter(f"{text!r} is not a regular expression: {error}", param_hint="--grep") from error
