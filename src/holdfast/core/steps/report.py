"""Combines the logs of a training: groups logs, selects the primary log, and collects the step times of each
rank. Pure.

A step reported by several ranks is one step: the log with most information is the primary one, and the others
contribute their ranks' own times.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite, nan
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.steps.aistudio import AistudioRule
from holdfast.core.steps.rank_columns import Columns
from holdfast.core.steps.watch import StepWatch
from holdfast.core.steps.watch_settings import StepSettings
from holdfast.core.stragglers.matrix import analyse
from holdfast.core.stragglers.panel import LARGE
from holdfast.core.stragglers.records import arrivals, peers
from holdfast.core.stragglers.watch import FLOOR_SHARE, StragglerWatch
from holdfast.late_pattern import late
from holdfast.model.flight.records import FlightRecord
from holdfast.model.matches import NO_WRITER, Writer
from holdfast.model.steps import (
    CurvePoint,
    FirstLast,
    HeatMap,
    LossReport,
    PhaseMark,
    RankTimes,
    StepNow,
    StepRecord,
    StepReport,
    Straggler,
)

RANKS_MAX = 1 << 20
PLATFORM_LINES_MAX = 200_000
NOTES_MAX = 50
RECORDS_MAX = 2_000_000  # kept of one log on request
LOOK_STEPS = 32  # after so many it is asked who is a straggler
OVER_MAX = 50  # of stragglers that are none any more
# Where two sorts of logs of one training lie beside each other, those that come first have more information.
VIEWS = ("log", "jsonl", "events")
OVERLAP = 0.5  # part of the shorter log's steps that two kinds of logs of one training share

NUMBERS = late(r"\d+")
STREAMS = late(r"(?i)(?<![a-z])(?:std)?(?:out|err)(?:put|or)?(?![a-z])")


class PlatformLine(Struct, frozen=True):
    """A warning line that the platform's rule would print.

    `elapsed_s`: duration of the run's steps up to it; `at_s`: time stamp of the log line.
    """

    text: str
    elapsed_s: float
    at_s: float | None


class LogSteps:
    """The steps in one log: a file with its rotated parts, or one rank's output of all attempts."""

    def __init__(
        self,
        name: str,
        settings: StepSettings,
        *,
        writer: Writer = NO_WRITER,
        view: str = "log",
        rule: bool = False,
        kept_steps: int = 4096,
        is_watched: bool = True,
        keeps_records: bool = False,
    ) -> None:
        """`is_watched`: the log may be the primary one; else only times of ranks are kept. `keeps_records`: all."""
        self.name, self.writer, self.view, self.is_watched = name, writer, view, is_watched
        self.framework: str | None = None
        self.iteration_lines = 0
        self.first, self.last = FirstLast(), FirstLast()
        self.notes: list[str] = []
        self._settings = settings
        self._watch = StepWatch(settings) if is_watched else None
        self.columns: dict[int | None, Columns] = {}  # by the rank that a line names; None: by none
        self.platform: list[PlatformLine] = []
        self.begin_s: float | None = None  # the first stamp
        self.last_s: float | None = None  # that of the last record
        self.written_s = 0.0  # when the log was last written, since the epoch
        self.elapsed_s = 0.0  # of all steps
        self.runs = 0
        self._rule = AistudioRule() if rule else None
        self._kept_steps = kept_steps
        self._has_writer = writer != NO_WRITER
        self._run_first = 0
        self._keeps_records = keeps_records
        self.records: list[StepRecord] = []

    def begin_attempt(self) -> None:
        """Marks that a restarted process writes the following records."""
        self._run_first = self.runs
        if self._rule and self.runs:
            self._rule.restart()

    def take(self, items: Iterable[StepRecord | PhaseMark]) -> None:
        for item in items:
            if self._run_first:
                item = replace(item, run=item.run + self._run_first)
            if self._watch is not None:
                self._watch.feed(item)
            if isinstance(item, StepRecord):
                self._take(item)

    @property
    def watch(self) -> StepWatch:
        """Returns the detector with all conclusions from the log; if the log was not watched while it grew, from its
        last records.
        """
        if self._watch is None:
            self._watch = StepWatch(self._settings)
            for columns in self.columns.values():
                for record in columns.records():
                    self._watch.feed(record)
        return self._watch

    def add_part(self, framework: str | None, lines: int, first: FirstLast, last: FirstLast) -> None:
        """Adds what a reader of one part of the log has found: framework, number of step lines, first and last
        step.
        """
        self.framework = self.framework or framework
        if lines and not self.iteration_lines:
            self.first = first
        self.last = last if lines else self.last
        self.iteration_lines += lines

    def _take(self, record: StepRecord) -> None:
        self.runs = max(self.runs, record.run + 1)
        if self._keeps_records and len(self.records) < RECORDS_MAX:
            self.records.append(record)
        if record.at_s is not None:
            self.last_s = record.at_s
            if self.begin_s is None:
                self.begin_s = record.at_s
        if self._has_writer or record.rank is not None:
            columns = self.columns.get(record.rank)
            if columns is None and len(self.columns) < RANKS_MAX:
                columns = self.columns[record.rank] = Columns(self._kept_steps)
            if columns is not None:
                columns.add(record)
        if self._rule is None:
            return
        if record.time_s is not None and isfinite(record.time_s):
            self.elapsed_s += record.time_s * record.steps
        text = self._rule.feed(record)
        if text and len(self.platform) < PLATFORM_LINES_MAX:
            self.platform.append(PlatformLine(text, self.elapsed_s, record.at_s))


class Training(Struct, frozen=True, kw_only=True):
    """One training with its logs, step times and findings.

    `name`: of the primary log; `logs`: names of all. `is_local`: time stamps are times of this machine's
    clock.
    """

    name: str
    logs: tuple[str, ...]
    report: StepReport
    now: StepNow
    curve: tuple[CurvePoint, ...] = ()
    heat: HeatMap | None = None
    is_local: bool = False


def trainings(logs: Sequence[LogSteps], *, is_one: bool = False) -> list[list[LogSteps]]:
    """Returns the logs grouped by training, most steps first, the primary log of each group first; without
    logs without steps.

    `is_one`: all logs belong to one training.
    """
    found = [log for log in logs if log.iteration_lines]
    if is_one:
        return [_by_worth(found)] if found else []
    groups = [_by_worth(group) for group in _groups(found)]
    groups.sort(key=lambda group: (VIEWS.index(group[0].view), -group[0].iteration_lines))
    kept: list[list[LogSteps]] = []
    for group in groups:
        better = next((one for one in kept if _has_the_same(one[0], group[0])), None)
        if better is None:
            kept.append(group)
        else:
            better[0].notes.append(f"{group[0].name} reports the same steps and was not counted again")
            better.extend(group)
    return sorted(kept, key=lambda group: -group[0].iteration_lines)


def training_of(
    group: Sequence[LogSteps], *, is_local: bool = False, records: Sequence[FlightRecord] = ()
) -> Training:
    """Returns the training of a group of logs, the primary one first.

    `records`: flight records of its ranks.
    """
    lead = group[0]
    columns, nodes = _columns(group), _nodes(group)
    found, heat = _stragglers(columns, nodes) if len(columns) > 1 else ((), None)
    found = _with_those_of_records(found, records, nodes)
    return Training(
        name=lead.name,
        logs=tuple(log.name for log in group),
        report=_report(group, columns, found),
        now=lead.watch.now(),
        curve=tuple(lead.watch.curve()),
        heat=heat,
        is_local=is_local,
    )


def _report(
    group: Sequence[LogSteps], columns: Mapping[int, Columns], stragglers: tuple[Straggler, ...]
) -> StepReport:
    lead = group[0]
    watch = lead.watch
    notes = list(dict.fromkeys(note for log in group for note in log.notes))
    return StepReport(
        framework=lead.framework,
        iteration_lines=lead.iteration_lines,
        first=_finite(lead.first),
        last=_finite(lead.last),
        median_step_time_s=watch.median_s(),
        phases=tuple(watch.phases()),
        slowdowns=tuple(watch.slowdowns()),
        spikes=tuple(watch.spikes()),
        loss=_loss(group),
        ranks=_times(columns),
        stragglers=stragglers,
        runs=lead.runs,
        notes=tuple(notes[:NOTES_MAX]),
    )


# Which logs are of one training --------------------------------------------------------------------------


def _groups(logs: Sequence[LogSteps]) -> Iterator[list[LogSteps]]:
    """Groups logs by name: names of one training differ only in rank, worker, host or stream."""
    alike: dict[str, list[LogSteps]] = {}
    for log in logs:
        alike.setdefault(NUMBERS.sub("#", STREAMS.sub("*", log.name)), []).append(log)
    for some in alike.values():
        numbers = [NUMBERS.findall(log.name) for log in some]
        own = [_identity(log.writer) for log in some]
        of_job = [
            place
            for place in range(min(map(len, numbers)))
            if not all(int(found[place]) in mine for found, mine in zip(numbers, own, strict=True))
        ]
        groups: dict[tuple[str, ...], list[LogSteps]] = {}
        for log, found in zip(some, numbers, strict=True):
            groups.setdefault(tuple(found[place] for place in of_job), []).append(log)
        yield from groups.values()


def _identity(writer: Writer) -> set[int]:
    """Returns the numbers that identify the writer of a log: rank, worker, digits of the host name."""
    own = {writer.rank, writer.local_rank, writer.worker} - {None}
    return {int(number) for number in (*own, *NUMBERS.findall(writer.host or "")) if number is not None}


def kin(name: str, writer: Writer) -> str:
    """Returns a key that is equal for the logs of all ranks of one training."""
    own = _identity(writer)
    return NUMBERS.sub(lambda found: "#" if int(found[0]) in own else found[0], STREAMS.sub("*", name))


def _by_worth(logs: Sequence[LogSteps]) -> list[LogSteps]:
    return sorted(
        logs,
        key=lambda log: (
            not log.is_watched,
            log.is_watched and log.watch.median_s() is None,
            VIEWS.index(log.view),
            -log.iteration_lines,
        ),
    )


def _has_the_same(one: LogSteps, other: LogSteps) -> bool:
    """Returns whether two kinds of logs, the folder of one within the other's, contain the same steps."""
    if one.view == other.view:
        return False
    here, there = _folder(one.name), _folder(other.name)
    if not (here.startswith(there) or there.startswith(here)):
        return False
    steps = (one.first.step, one.last.step, other.first.step, other.last.step)
    first, last, other_first, other_last = (step or 0 for step in steps)
    common = min(last, other_last) - max(first, other_first)
    return common >= OVERLAP * max(1, min(last - first, other_last - other_first))


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


# Ranks ---------------------------------------------------------------------------------------------------


def _columns(group: Sequence[LogSteps]) -> dict[int, Columns]:
    """Returns the steps of each rank, from its log with most information."""
    per_worker = 1 + max((log.writer.local_rank or 0 for log in group), default=0)
    found: dict[int, Columns] = {}
    for log in group:
        for named, columns in log.columns.items():
            rank = _rank(log.writer, per_worker) if named is None else named
            if rank is not None and (rank not in found or columns.count > found[rank].count):
                found[rank] = columns
    return found


def _rank(writer: Writer, per_worker: int) -> int | None:
    """Returns the writer's rank; from local rank and worker, if all workers have equally many ranks, as
    torchrun numbers them.
    """
    if writer.rank is not None or writer.local_rank is None:
        return writer.rank
    return (writer.worker or 0) * per_worker + writer.local_rank


def _times(columns: Mapping[int, Columns]) -> dict[int, RankTimes]:
    """Returns the step times of each rank, with the ratio to the median of its peers."""
    times = {rank: columns[rank].times() for rank in sorted(columns)}
    medians = sorted(one.median_s for one in times.values() if one.median_s)
    if len(medians) < 2:
        return times
    middle = median(medians)
    return {
        rank: replace(one, ratio=one.median_s / middle if one.median_s else None)
        for rank, one in times.items()
    }


def _nodes(group: Sequence[LogSteps]) -> dict[int, str]:
    """Returns the node of each rank, if names of logs contain hosts or workers."""
    per_worker = 1 + max((log.writer.local_rank or 0 for log in group), default=0)
    found: dict[int, str] = {}
    for log in group:
        rank, worker = _rank(log.writer, per_worker), log.writer.worker
        node = log.writer.host or (f"worker {worker}" if worker is not None else "")
        if rank is not None and node:
            found[rank] = node
    return found if len(set(found.values())) > 1 else {}


def _stragglers(
    columns: Mapping[int, Columns], nodes: Mapping[int, str]
) -> tuple[tuple[Straggler, ...], HeatMap | None]:
    """Returns the ranks that were slower than their peers over the last steps, current and recovered ones,
    and a heat map.
    """
    watch = StragglerWatch(nodes=nodes)
    now: dict[tuple[int, ...], Straggler] = {}
    is_large = len(columns) >= LARGE
    over = _of_a_large_table(columns, nodes) if is_large else []
    step = None
    for count, (step, times, data) in enumerate(_side_by_side(columns), 1):
        watch.step_times(step, times)
        if len(data) > 1 and not is_large:
            watch.own_work(
                step, data
            )  # of what a rank logs, waiting for data is its own, and no wait for others
        if count % LOOK_STEPS == 0:
            now = _followed(watch, now, over, step)
    if step is not None:
        now = _followed(watch, now, over, step)
    return (*now.values(), *over[:OVER_MAX]), watch.heat()


def _with_those_of_records(
    found: tuple[Straggler, ...], records: Sequence[FlightRecord], nodes: Mapping[int, str]
) -> tuple[Straggler, ...]:
    """Returns the stragglers, with ranks that entered collectives late and that the logs do not show."""
    if len(records) < 2:
        return found
    watch = StragglerWatch(nodes=nodes, peers=peers(records))
    for one in arrivals(records):
        watch.arrivals(one.group, one.sequence, one.at, device=one.device)
    named = {rank for one in found for rank in one.ranks}
    return (*found, *(one for one in watch.stragglers() if not named & set(one.ranks)))


def _of_a_large_table(columns: Mapping[int, Columns], nodes: Mapping[int, str]) -> list[Straggler]:
    """Returns the stragglers among thousands of ranks, in one pass over all steps for speed."""
    rows = {rank: one.last_run() for rank, one in sorted(columns.items())}
    steps = sorted({step for row_steps, _, _ in rows.values() for step in row_steps})
    place = {step: index for index, step in enumerate(steps)}
    table, whole = [], array("d")
    for row_steps, times_s, data_s in rows.values():
        own = array("d", [nan]) * len(steps)
        for step, own_s in zip(row_steps, data_s, strict=True):
            own[place[step]] = own_s
        table.append(own)
        whole.extend(times_s)
    floor_s = FLOOR_SHARE * median(one for one in whole if one == one) if whole else 0.0
    return list(analyse(table, ranks=tuple(rows), nodes=nodes, floor_s=floor_s, steps=steps))


def _followed(
    watch: StragglerWatch, before: Mapping[tuple[int, ...], Straggler], over: list[Straggler], step: int
) -> dict[tuple[int, ...], Straggler]:
    now = {one.ranks: one for one in watch.stragglers()}
    named = {rank for ranks in now for rank in ranks}
    over += [
        replace(
            one,
            explanation=f"{one.explanation}; recovered by step {step}",
            explanation_zh=f"{one.explanation_zh}；第 {step} 步时已恢复",
        )
        for ranks, one in before.items()
        if not named & set(ranks)
    ]
    return now


def _side_by_side(
    columns: Mapping[int, Columns],
) -> Iterator[tuple[int, dict[int, float], dict[int, float]]]:
    """Yields, for each step of each rank's last run, the step times and the waits for data by rank."""
    rows = {rank: one.last_run() for rank, one in sorted(columns.items())}
    at = dict.fromkeys(rows, 0)
    for step in sorted({step for steps, _, _ in rows.values() for step in steps}):
        times: dict[int, float] = {}
        data: dict[int, float] = {}
        for rank, (steps, times_s, data_s) in rows.items():
            place = at[rank]
            if place < len(steps) and steps[place] == step:
                at[rank] = place + 1
                times[rank] = times_s[place]
                if data_s[place] == data_s[place]:
                    data[rank] = data_s[place]
        yield step, times, data


def _loss(group: Sequence[LogSteps]) -> LossReport:
    """Returns the losses of the primary log, or of another one if that has none (a progress bar)."""
    reports = [log.watch.loss() for log in group if log.is_watched] or [group[0].watch.loss()]
    return next((one for one in reports if one.last is not None or one.nan_at is not None), reports[0])


def _finite(one: FirstLast) -> FirstLast:
    return one if one.step_time_s is None or isfinite(one.step_time_s) else replace(one, step_time_s=None)
