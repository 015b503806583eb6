"""Watches the steps of one attempt during training: reads them from its output and finds slowdowns, pauses
and bad losses.

It only reports findings, and delays nothing. A training may print the same steps into several logs (each
rank's, or stdout beside a progress bar on stderr): the log with the most information counts.
"""

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.watch.step_logs import StepForms, StepLog
from holdfast.agent.watch.stragglers import StragglerWatching
from holdfast.core.compare.resume import LossMemory
from holdfast.core.steps.aistudio import AistudioRule
from holdfast.core.steps.watch import StepWatch
from holdfast.core.steps.watch_settings import Baseline, StepSettings
from holdfast.model.events import Numbers
from holdfast.model.samples import RankSample
from holdfast.model.steps import PhaseMark, StepFinding, StepRecord
from holdfast.observe.logs.follow import Chunk
from holdfast.observe.logs.step_file import RECENT_MAX, StepFile, StepFileWriter

OFF, ALWAYS = "off", "aistudio"  # else it depends on the log's framework
COMMAND_RUNS = "Command running..."
# Frameworks that the platforms' rule was made for; for others it is reported on request.
PLATFORMS_FRAMEWORKS = ("Megatron", "LLaMA-Factory")
RULE_LINE = re.compile(
    r"iters (?P<first>\d+)-(?P<last>\d+): (?P<mean_ms>\d+\.\d+) ms, baseline: (?P<baseline_ms>\d+\.\d+) ms\), "
    r"threshold ratio:(?P<ratio>\d+\.\d+)"
)
RANK_LOG = re.compile(r"rank-(\d+)\.log")
SETTING_WORDS = ("atch", "seq")  # in lines that name the size of a batch or of a sequence
TICK_S = 1.0
LINES_COUNTED_MAX = 1000  # in one poll, where no step comes
SOURCES_MAX = 512
WAITING_BYTES_MAX = 4 << 20  # of output that comes before the forms are there
SILENT_S = 30.0  # a log that is silent for so long while another goes on is not the one that counts
SILENT_RECORDS = 20  # and for so many records of others
SURE_RECORDS = 3  # before a log is taken to have more information than another, or less
SKIPPED_MAX = 1000  # records of a log that has come to count, of steps that were already reported
FINDINGS_KEPT = 100  # of one attempt, for its evidence
NEWS_MAX = 200  # lines of one kind in one attempt: a training that limps to its end is not recited
# Which finding ends which. Others are momentary.
ENDS = {"slowdown-over": "slowdown", "straggler-over": "straggler"}
OPEN_MAX = 20
OPEN = ("slowdown", "straggler", "step-stands", "loss-nan", "loss-diverged")


class StepSource(Struct):
    """A source of steps: a log, or a rank that prints into it. `times`, `losses`: number of its step records
    with a time or a loss.
    """

    source: str
    rank: int | None
    records: int = 0
    times: int = 0
    losses: int = 0
    last_s: float = 0.0

    def saw(self, record: StepRecord, at_s: float) -> None:
        self.records += 1
        self.times += record.time_s is not None
        self.losses += record.loss is not None
        self.last_s = at_s

    @property
    def worth(self) -> tuple[bool, bool]:
        return self.times > 0, self.losses > 0


class StepWatching:
    """Detector of slowdowns, pauses and bad losses in the steps of one attempt. `before`: speed of the
    attempt before. `rule`: auto, aistudio or off.

    `is_new`: False if another process has watched this attempt before. `shares`: the controller compares the
    ranks.
    """

    def __init__(
        self,
        folder: Path,
        attempt: int,
        forms: StepForms,
        rule: str,
        before: Baseline | None = None,
        *,
        is_new: bool = True,
        shares: bool = False,
    ) -> None:
        self.says_that_the_command_runs = is_new and rule != OFF
        self.records: deque[StepRecord] = deque(maxlen=RECENT_MAX)
        self.findings: deque[StepFinding] = deque(maxlen=FINDINGS_KEPT)
        self.notes: deque[str] = deque()  # for people; the reader empties it
        self.framework: str | None = None
        self._attempt = attempt
        self._forms = forms
        self._rule_asked = rule
        self.baseline = before  # for the attempt after this one; a second old at most
        self._file = StepFileWriter(folder)
        self._watch: StepWatch | None = None
        self._rule = AistudioRule()
        self._logs: dict[str, StepLog] = {}
        self._sources: dict[tuple[str, int | None], StepSource] = {}
        self._lead: StepSource | None = None
        self._behind = 0  # records of others since the last of the one that counts
        self._skip = 0
        self._run_shift: int | None = None
        self._loss_elsewhere: float | None = None
        self._waiting: list[Chunk] = []
        self._waiting_bytes = 0
        self._ticked_s = float("-inf")
        self._news: dict[str, int] = {}
        self._losses = LossMemory()
        self._open: deque[StepFinding] = deque(maxlen=OPEN_MAX)
        self._broken: set[str] = set()
        self.stragglers = StragglerWatching(folder, shares=shares)
        self._slow_ranks = ""

    def remember(self, losses: LossMemory) -> None:
        """Compares the first losses of this attempt with those of earlier attempts, which `losses`
        contains.
        """
        self._losses = losses
        losses.begin()

    # What comes in ----------------------------------------------------------------------------------------

    def read(
        self, chunks: Sequence[Chunk], at_s: float, ranks: int | None, *, finish: bool = False
    ) -> list[StepFinding]:
        """Processes new output and returns findings. `ranks`: number of ranks of the whole training, if
        known.

        Call it once a second even without new output, because pauses are found by the time that passes. An
        internal error here ends only the watching of steps.
        """
        found = self._fenced("steps", lambda: self._read(chunks, at_s, ranks, finish=finish))
        return found + self._fenced("stragglers", self.stragglers.poll)

    def look(
        self, samples: Sequence[RankSample], pids: Mapping[int, int], step: int | None
    ) -> list[StepFinding]:
        """Returns findings about ranks that are slower than the others. Call it once a second while all ranks
        train. `pids`: process id by rank.
        """
        return self._fenced("stragglers", lambda: self._look(samples, pids, step))

    def _fenced(self, what: str, part: Callable[[], list[StepFinding]]) -> list[StepFinding]:
        if what in self._broken:
            return []
        try:
            return self._kept(part())
        except Exception as error:  # noqa: BLE001 - what a log may hold must not end the watch over the ranks
            self._broken.add(what)
            why = f"{type(error).__name__}: {error}"
            self.notes.append(f"{what} are no longer watched in this attempt: {why}")
            return []

    def _read(
        self, chunks: Sequence[Chunk], at_s: float, ranks: int | None, *, finish: bool
    ) -> list[StepFinding]:
        lines = 0
        for chunk in self._waited(chunks):
            self._add(chunk)
            lines += len(chunk.lines)
        found: list[StepFinding] = []
        last = self.records[-1] if self.records else None
        for log in self._logs.values():
            if finish or log.is_due(at_s):
                for came_s, item in log.finish() if finish else log.take():
                    found += self._item(log, item, came_s, ranks)
        if self._watch is not None and lines:
            stands = self.records[-1] is last
            for _ in range(min(lines, LINES_COUNTED_MAX) if stands else 1):
                self._watch.line_seen(at_s)
        if finish:
            found += self._losses.finish(at_s)
        if at_s - self._ticked_s >= TICK_S or finish:
            found += self._tick(at_s)
        return found

    def _look(
        self, samples: Sequence[RankSample], pids: Mapping[int, int], step: int | None
    ) -> list[StepFinding]:
        self.stragglers.look(samples, pids)
        found = self.stragglers.findings(step, samples[0].at_s) if samples else []
        self._slow_ranks = self.stragglers.now()
        return found

    def _waited(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Returns the output that can be read now.

        It is held back, up to a limit, until the step forms are loaded.
        """
        if self._forms.is_over:
            if self._forms.why_not:
                self._broken.add("steps")
                self.notes.append(f"steps are not watched in this run: {self._forms.why_not}")
            held, self._waiting = self._waiting, []
            return [*held, *chunks] if held else chunks
        for chunk in chunks:
            self._waiting_bytes += sum(map(len, chunk.lines))
            if self._waiting_bytes <= WAITING_BYTES_MAX:
                self._waiting.append(chunk)
        return ()

    def _add(self, chunk: Chunk) -> None:
        log = self._logs.get(chunk.source)
        if log is None:
            if len(self._logs) >= SOURCES_MAX:
                return
            log = self._logs[chunk.source] = StepLog(chunk.source, self._forms)
        log.add(chunk)

    def _tick(self, at_s: float) -> list[StepFinding]:
        self._ticked_s = at_s
        if self._watch is None:
            return []
        found = self._watch.tick(at_s)
        self.baseline = self._watch.baseline() or self.baseline
        content = StepFile(
            at_s=at_s,
            attempt=self._attempt,
            now=replace(self._watch.now(), straggler=self._slow_ranks),
            framework=self.framework,
            recent=tuple(record.time_s for record in self.records if record.time_s is not None),
            findings=tuple(self._open),
            batch=self.records[-1].batch if self.records else None,
            batch_counts=self._forms.batch_counts(self.framework),
            sequence=self.records[-1].sequence if self.records else None,
        )
        self._file.write(content)
        return found

    # Sources --------------------------------------------------------------------------------------------

    def _item(
        self, log: StepLog, item: StepRecord | PhaseMark, at_s: float, ranks: int | None
    ) -> Iterable[StepFinding]:
        if isinstance(item, PhaseMark):
            has_steps_too = any(name == log.source for name, _ in self._sources)
            is_main = self._lead is None or self._lead.source == log.source or not has_steps_too
            return self._watch.feed(replace(item, at_s=at_s)) if self._watch is not None and is_main else ()
        source = self._sources.get((log.source, item.rank))
        if source is None:
            if len(self._sources) >= SOURCES_MAX:
                return ()
            source = self._sources[log.source, item.rank] = StepSource(source=log.source, rank=item.rank)
        source.saw(item, at_s)
        self.stragglers.add_step(item, ranks)
        if not self._leads(source, at_s):
            if item.loss is not None:
                self._loss_elsewhere = item.loss
            return ()
        self.framework = log.framework
        return self._step(source, item, at_s, ranks)

    def _leads(self, source: StepSource, at_s: float) -> bool:
        """Returns whether this log counts, or replaces the previous one because it has more information or
        that is silent.
        """
        lead = self._lead
        if source is lead:
            self._behind = 0
            return True
        if lead is not None:
            self._behind += 1
            has_more = source.worth > lead.worth and min(source.records, lead.records) >= SURE_RECORDS
            is_silent = self._behind >= SILENT_RECORDS and at_s - lead.last_s > SILENT_S
            if not has_more and not is_silent:
                return False
        self._lead, self._behind = source, 0
        self._skip = SKIPPED_MAX if lead is not None else 0
        self._run_shift = None
        return True

    def _step(
        self, source: StepSource, record: StepRecord, at_s: float, ranks: int | None
    ) -> list[StepFinding]:
        """Processes a step of the log that counts. Steps that a previous log reported are skipped."""
        last = self.records[-1] if self.records else None
        if self._run_shift is None:
            self._run_shift = last.run - record.run if last is not None else 0
        if self._skip and last is not None and last.step is not None and record.step is not None:
            if record.step <= last.step:
                self._skip -= 1
                return []
            self._skip = 0
        loss = record.loss
        if loss is None and not source.losses:
            loss, self._loss_elsewhere = self._loss_elsewhere, None
        # The time of arrival, because time stamps of lines have many forms and clocks.
        record = replace(record, at_s=at_s, loss=loss, run=record.run + self._run_shift)
        self.records.append(record)
        if self._watch is None:
            self._watch = StepWatch(StepSettings(ranks=ranks), before=self.baseline)
        resumed = self._losses.feed(record.step, record.loss, record.run, at_s)
        return [*self._watch.feed(record), *resumed, *self._rule_says(record, at_s)]

    def _rule_says(self, record: StepRecord, at_s: float) -> Iterator[StepFinding]:
        """Yields findings by the rule of training platforms, in their wording."""
        if self._rule_asked == OFF:
            return
        text = self._rule.feed(record)
        if text is None:
            return
        of_platform = (self.framework or "").startswith(PLATFORMS_FRAMEWORKS)
        if of_platform or self._rule_asked == ALWAYS:
            said = RULE_LINE.search(text)
            numbers: Numbers = (
                {name: float(value) for name, value in said.groupdict().items()} if said else {}
            )
            yield StepFinding(
                kind="platform-slowdown", text=text, step=record.step, at_s=at_s, numbers=numbers
            )

    # Findings -----------------------------------------------------------------------------------------

    def _kept(self, found: Iterable[StepFinding]) -> list[StepFinding]:
        """Returns the findings to report: without NaN and infinite numbers, and limited in number."""
        kept = []
        for one in found:
            one = replace(one, numbers=_plain(one))
            self.findings.append(one)
            if one.kind in ENDS:
                self._close(one)
            elif one.kind in OPEN:
                self._open.append(one)
            count = self._news[one.kind] = self._news.get(one.kind, 0) + 1
            if count == NEWS_MAX:
                self.notes.append(
                    f"there are too many findings of the kind {one.kind}: no more are reported in this attempt"
                )
            if count <= NEWS_MAX:
                kept.append(one)
        return kept

    def _close(self, end: StepFinding) -> None:
        """Ends a finding: of several successive slowdowns the newest, of stragglers the one about these
        ranks.
        """
        for number in range(len(self._open) - 1, -1, -1):
            begin = self._open[number]
            if begin.kind == ENDS[end.kind] and begin.numbers.get("ranks") == end.numbers.get("ranks"):
                del self._open[number]
                return


def _plain(finding: StepFinding) -> Numbers:
    numbers: Numbers = {}
    for name, value in finding.numbers.items():
        if isinstance(value, list):
            numbers[name] = [one for one in value if math.isfinite(one)]
        else:
            numbers[name] = str(value) if isinstance(value, float) and not math.isfinite(value) else value
    if finding.step is not None:
        numbers.setdefault("step", finding.step)
    return numbers
