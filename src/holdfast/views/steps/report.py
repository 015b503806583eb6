"""Formats step times as a text report: steady or slower, since when, by how much, and the cost.

Prints nothing. Control characters in quotations are escaped.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from statistics import median

from msgspec import Struct
from rich.cells import cell_len

from holdfast.core.hang.stack_groups import ranges
from holdfast.core.plurals import counted
from holdfast.core.steps.report import Training
from holdfast.model.matches import ASSUMED_DATES_S, DAY_UNKNOWN_S, Skipped
from holdfast.model.signatures import Words
from holdfast.model.steps import CurvePoint, PhaseKind, RankTimes, Slowdown, Spike, StepReport
from holdfast.parsers.log_lines.secrets import masked
from holdfast.settings.times import duration, length, three_figures
from holdfast.views.diagnosis.skip_reasons import why_in
from holdfast.views.languages import Language, said
from holdfast.views.lines import Line
from holdfast.views.wrapping import cut, shown, wrapped

DASH = "–"  # what is not known
WIDTH_MIN, WIDTH_MAX = 40, 120
SLOWDOWNS_MAX, SPIKES_MAX, RANKS_MAX, TRAININGS_MAX, NOTES_MAX, NAMES_MAX = 5, 4, 4, 20, 5, 3
CHART_COLUMNS = 60
CHART_REACH = (
    1.1  # the chart's top is at least so many times its bottom: noise is not to look like a mountain
)
BARS = "▁▂▃▄▅▆▇█"
INDENT = "  "
_BETWEEN = " · "

_NOTHING = Words(en="No steps found", zh="未找到训练步")
_HINT = Words(
    en="No line has a known step format. Other formats can be read with --step-pattern: see docs/steps.md.",
    zh="其中没有任何已知格式的训练步日志行。可用 --step-pattern 读取其他格式，见 docs/steps.md。",
)
_EMPTY = Words(en="The input is empty.", zh="输入为空。")
_STEADY = Words(en="Steady: {time} a step", zh="平稳：每步 {time}")
_FEW = Words(en="{n} steps found, too few to judge", zh="仅找到 {n} 步，不足以判断")
_ONE = Words(en="1 step found, too few to judge", zh="仅找到 1 步，不足以判断")
_SLOWER = Words(
    en="Slower since step {step}: {after} a step instead of {before} ({ratio} times)",
    zh="变慢：自第 {step} 步起每步 {after}，是此前 {before} 的 {ratio} 倍",
)
_WAS_SLOWER = Words(
    en="Steps {steps} were slower: {after} a step instead of {before} ({ratio} times)",
    zh="曾一度变慢：第 {steps} 步每步 {after}，是此前 {before} 的 {ratio} 倍",
)
_WAITED_FOR = Words(en="Slowed down by {who}", zh="被{who}拖慢")
_LOSS_GONE = Words(en="The loss is NaN or infinite since step {step}", zh="自第 {step} 步起损失不是有限数值")
_NO_TIMES = Words(en="{steps} found, without times", zh="找到 {n} 步，但日志中没有用时")
_STEPS = Words(en="steps {first} to {last}", zh="第 {first} 至 {last} 步")
_STEP = Words(en="step {first}", zh="第 {first} 步")
_OF = Words(en="of {total}", zh="共 {total} 步")
_RECORDS = Words(en="{n} step lines", zh="{n} 条训练步记录")
_RUNS = Words(en="{n} runs", zh="{n} 次运行")
_UNKNOWN = Words(en="unknown form", zh="未知格式")
_NOW = Words(en="now {time}", zh="当前 {time}")
_MEDIAN = Words(en="median {time}", zh="中位数 {time}")
_BEST = Words(en="best {time}", zh="最快 {time}")
_LEFT = Words(en="{time} left at this pace", zh="按当前速度还需 {time}")
_SLOWDOWNS = Words(en="Slowdowns", zh="变慢")
_PHASES = Words(en="Phases", zh="阶段")
_SPIKES = Words(en="Long steps", zh="单次长步")
_LOSS = Words(en="Loss", zh="损失")
_RANKS = Words(en="Ranks", zh="Rank")
_STRAGGLERS = Words(en="Stragglers", zh="慢节点与慢 rank")
_NOTES = Words(en="Caveats", zh="注意")
_OTHERS = Words(en="Other trainings found", zh="找到的其他训练")
_EVERY = Words(en="every {n} steps", zh="每 {n} 步一次")
_TIMES, _ONCE = Words(en="{n} times", zh="共 {n} 次"), Words(en="once", zh="1 次")
_USUAL = Words(en="{ratio} times the usual step", zh="是平常的 {ratio} 倍")
_MEDIANS = Words(
    en="{n} ranks: {low} (rank {fast}) to {high} (rank {slow}) a step",
    zh="{n} 个 rank：每步 {low}（rank {fast}）至 {high}（rank {slow}）",
)
_LAST_LOSS = Words(en="last {loss}", zh="最新 {loss}")
_NAN = Words(en="no finite number at step {step}", zh="第 {step} 步起不是有限数值")
_JUMP = Words(en="from {before} to {loss} at step {step}", zh="第 {step} 步由 {before} 升至 {loss}")
_DIVERGED = Words(en="grows since step {step}", zh="自第 {step} 步起持续上升")
_RANK, _RANKS_OF = Words(en="rank {ranks}", zh=" rank {ranks}"), Words(en="ranks {ranks}", zh=" rank {ranks}")
_NODE = Words(en="node {node} ({ranks})", zh="节点 {node}（{ranks}）")
_MORE = Words(en="and {n} more: --json lists all", zh="另有 {n} 条，--json 列出全部")
_READ = Words(en="Read {files}, {size}, in {seconds} s", zh="读取 {files}，{size}，用时 {seconds} 秒")
_FILES, _FILE = Words(en="{n} files", zh="{n} 个文件"), Words(en="1 file", zh="1 个文件")
_COLON = Words(en=": ", zh="：")
_SKIPPED = Words(en="not read, ", zh="未读取，")
_FROM = Words(en="from {name} and {n} more", zh="来自 {name} 等 {n} 份日志")

_PHASE_KINDS: dict[PhaseKind, Words] = {
    "step": Words(en="training", zh="训练"),
    "checkpoint": Words(en="checkpoint", zh="检查点"),
    "evaluation": Words(en="evaluation", zh="评估"),
    "compile": Words(en="compilation", zh="编译"),
    "warmup": Words(en="warm-up", zh="预热"),
    "data": Words(en="waiting for data", zh="等待数据"),
}


class Scanned(Struct, frozen=True, kw_only=True):
    """Statistics of reading logs: number of files, bytes, seconds, and skipped files."""

    files: int
    size_bytes: int
    seconds: float
    skipped: tuple[Skipped, ...] = ()


def report(
    trainings: Sequence[Training], read: Scanned, language: Language, width: int, *, chart: bool = True
) -> list[Line]:
    """Returns the lines of the report; the first training is described in full.

    `width`: columns of the terminal. `chart`: whether the terminal can show block characters.
    """
    page = _Page(language, max(WIDTH_MIN, min(width, WIDTH_MAX)))
    lines = list(page.training(trainings[0], chart=chart)) if trainings else list(page.nothing(read))
    return [
        *lines,
        *page.others(trainings[1:]),
        *page.notes(trainings[0].report.notes if trainings else (), read.skipped),
        Line(),
        Line(page.read(read), "quiet"),
    ]


def sparkline(points: Sequence[CurvePoint], columns: int = CHART_COLUMNS) -> str:
    """Returns a sparkline of typical step times over the run, at most `columns` characters wide; empty if there are
    fewer than two.
    """
    times = [
        point.median_s for point in points if point.kind in ("step", "warmup", "data") and point.rank is None
    ]
    if len(times) < 2:
        return ""
    columns = min(columns, len(times))
    cells = [
        median(times[len(times) * at // columns : len(times) * (at + 1) // columns]) for at in range(columns)
    ]
    low = min(cells)
    reach = max(max(cells), low * CHART_REACH) - low
    if reach <= 0:
        return ""
    return "".join(BARS[min(len(BARS) - 1, int((cell - low) / reach * len(BARS)))] for cell in cells)


class _Page:
    """Settings of a report: language and width."""

    def __init__(self, language: Language, width: int) -> None:
        self._language, self._width = language, width

    def nothing(self, read: Scanned) -> Iterator[Line]:
        yield Line(self._say(_NOTHING), "strong")
        yield from self._text(self._say(_HINT if read.size_bytes else _EMPTY))

    def training(self, one: Training, *, chart: bool) -> Iterator[Line]:
        yield from self._head(one)
        if chart and (bars := sparkline(one.curve, min(CHART_COLUMNS, self._width - 2))):
            yield Line(INDENT + bars)
        yield from self._slowdowns(one)
        yield from self._stragglers(one.report)
        yield from self._phases(one.report)
        yield from self._spikes(one.report.spikes)
        yield from self._loss(one.report)
        yield from self._ranks(one.report.ranks)

    def others(self, trainings: Sequence[Training]) -> Iterator[Line]:
        if not trainings:
            return
        yield from self._section(_OTHERS)
        for one in trainings[:TRAININGS_MAX]:
            text, _ = self._verdict(one)
            yield from self._bullet(f"{_clean(one.name)}: {text}")
        yield from self._left_out(len(trainings) - TRAININGS_MAX)

    def notes(self, notes: Sequence[str], skipped: Sequence[Skipped]) -> Iterator[Line]:
        """Yields what limits the accuracy of the report, and which files were not read and why."""
        if not notes and not skipped:
            return
        yield from self._section(_NOTES)
        for note in notes[:NOTES_MAX]:
            yield from self._bullet(_clean(note))
        reasons: dict[str, list[str]] = {}
        for one in skipped:
            reasons.setdefault(_clean(one.why), []).append(_clean(one.name))
        for why, names in list(reasons.items())[:NOTES_MAX]:
            more = f" … ({len(names)})" if len(names) > NAMES_MAX else ""
            said_why = f"{self._say(_SKIPPED)}{why_in(why, self._language)}"
            yield from self._bullet(f"{said_why}{self._say(_COLON)}{', '.join(names[:NAMES_MAX])}{more}")
        yield from self._left_out(len(notes) - NOTES_MAX)
        yield from self._left_out(len(reasons) - NOTES_MAX)

    def read(self, read: Scanned) -> str:
        files = self._say(_FILE) if read.files == 1 else self._say(_FILES).format(n=read.files)
        seconds = f"{read.seconds:.{1 if read.seconds >= 1 else 2}f}"
        return self._say(_READ).format(files=files, size=_size(read.size_bytes), seconds=seconds)

    # The head ---------------------------------------------------------------------------------------------

    def _head(self, one: Training) -> Iterator[Line]:
        """Yields the verdict, the source of the steps, and the step times."""
        text, style = self._verdict(one)
        for line in wrapped(text, self._width):
            yield Line(line, style)
        yield from self._text(_BETWEEN.join(self._about(one)), "quiet")
        if one.now.median_s is not None or one.report.median_step_time_s is not None:
            yield from self._text(_BETWEEN.join(self._times(one)))

    def _verdict(self, one: Training) -> tuple[str, str]:
        """Returns the headline of the report, steady or slower, and its style."""
        report = one.report
        open_ones = [slow for slow in report.slowdowns if slow.last_step is None]
        if report.loss.nan_at is not None and report.loss.last is None:
            return self._say(_LOSS_GONE).format(step=report.loss.nan_at), "error"
        if open_ones:
            return self._slower(_SLOWER, max(open_ones, key=lambda slow: slow.ratio)), "error"
        if report.stragglers:
            who = max(report.stragglers, key=lambda straggler: straggler.ratio or 0.0)
            return self._say(_WAITED_FOR).format(who=self._who(who.ranks, who.node)), "error"
        if report.slowdowns:
            return self._slower(_WAS_SLOWER, max(report.slowdowns, key=lambda slow: slow.ratio)), "strong"
        if report.median_step_time_s is None:
            return self._say(_NO_TIMES).format(
                n=report.iteration_lines, steps=counted(report.iteration_lines, "step")
            ), "strong"
        if report.iteration_lines < 3:
            few = _ONE if report.iteration_lines == 1 else _FEW
            return self._say(few).format(n=report.iteration_lines), "strong"
        return self._say(_STEADY).format(time=duration(report.median_step_time_s, DASH)), "strong"

    def _slower(self, words: Words, slow: Slowdown) -> str:
        return self._say(words).format(
            after=duration(slow.after_s, DASH),
            before=duration(slow.before_s, DASH),
            ratio=three_figures(slow.ratio),
            step=_number(slow.first_step),
            steps=_span(slow.first_step, slow.last_step),
        )

    def _about(self, one: Training) -> Iterator[str]:
        report, now = one.report, one.now
        yield _clean(report.framework) if report.framework else self._say(_UNKNOWN)
        first, last = report.first.step, report.last.step
        if first is not None and last is not None:
            words = _STEPS if first != last else _STEP
            yield self._say(words).format(first=first, last=last)
        if now.total is not None and now.total != last:
            yield self._say(_OF).format(total=now.total)
        yield self._say(_RECORDS).format(n=report.iteration_lines)
        if report.runs > 1:
            yield self._say(_RUNS).format(n=report.runs)
        if len(one.logs) > 1:
            more = len(one.logs) if self._language == "zh" else len(one.logs) - 1
            yield self._say(_FROM).format(name=_clean(one.name), n=more)

    def _times(self, one: Training) -> Iterator[str]:
        now, middle_s = one.now, one.report.median_step_time_s
        if now.now_s is not None:
            yield self._say(_NOW).format(time=duration(now.now_s, DASH))
        yield self._say(_MEDIAN).format(time=duration(middle_s, DASH))
        if now.best_s is not None and (middle_s is None or now.best_s < middle_s):
            yield self._say(_BEST).format(time=duration(now.best_s, DASH))
        if now.eta_s:
            yield self._say(_LEFT).format(time=length(_rounded(now.eta_s)))

    # The sections -----------------------------------------------------------------------------------------

    def _slowdowns(self, one: Training) -> Iterator[Line]:
        slowdowns = one.report.slowdowns
        if not slowdowns:
            return
        yield from self._section(_SLOWDOWNS)
        for slow in slowdowns[:SLOWDOWNS_MAX]:
            words = (
                slow.explanation_zh if self._language == "zh" and slow.explanation_zh else slow.explanation
            )
            when = moment(slow.since_s, is_local=one.is_local)
            yield from self._bullet(f"{_clean(words)}{f' ({when})' if when else ''}")
        yield from self._left_out(len(slowdowns) - SLOWDOWNS_MAX)

    def _stragglers(self, report: StepReport) -> Iterator[Line]:
        if not report.stragglers:
            return
        yield from self._section(_STRAGGLERS)
        for one in report.stragglers[:RANKS_MAX]:
            words = one.explanation_zh if self._language == "zh" and one.explanation_zh else one.explanation
            yield from self._bullet(_clean(words) or self._who(one.ranks, one.node).strip())
        yield from self._left_out(len(report.stragglers) - RANKS_MAX)

    def _phases(self, report: StepReport) -> Iterator[Line]:
        """Yields the shares of step time by kind of step, if there is more than one kind."""
        kinds = {phase.kind for phase in report.phases}
        if kinds <= {"step"}:
            return
        yield from self._section(_PHASES)
        for kind, words in _PHASE_KINDS.items():
            phases = [phase for phase in report.phases if phase.kind == kind]
            if not phases:
                continue
            count = sum(phase.count for phase in phases)
            of_all = sorted((phase.median_s, phase.count) for phase in phases)
            label = self._say(words)
            parts = [
                duration(_weighted_median(of_all), DASH),
                self._say(_ONCE if count == 1 else _TIMES).format(n=count),
            ]
            if len(phases) == 1:
                parts.append(_span(phases[0].first_step, phases[0].last_step))
            yield Line(
                cut(f"{INDENT}{label}{' ' * max(1, 20 - cell_len(label))}{_BETWEEN.join(parts)}", self._width)
            )

    def _spikes(self, spikes: Sequence[Spike]) -> Iterator[Line]:
        if not spikes:
            return
        yield from self._section(_SPIKES)
        few = sorted(spikes, key=lambda spike: (spike.period is None, -spike.time_s))[:SPIKES_MAX]
        for spike in few:
            where = (
                self._say(_EVERY).format(n=spike.period)
                if spike.period
                else self._say(_STEP).format(first=_number(spike.first_step))
            )
            parts = [
                where,
                duration(spike.time_s, DASH),
                self._say(_USUAL).format(ratio=three_figures(spike.ratio)),
            ]
            if spike.count > 1:
                parts.append(self._say(_TIMES).format(n=spike.count))
            if spike.kind:
                known = next((words for kind, words in _PHASE_KINDS.items() if kind == spike.kind), None)
                parts.append(self._say(known) if known else _clean(spike.kind))
            yield from self._bullet(_BETWEEN.join(parts))
        yield from self._left_out(len(spikes) - len(few))

    def _loss(self, report: StepReport) -> Iterator[Line]:
        loss = report.loss
        parts = []
        if loss.last is not None:
            parts.append(self._say(_LAST_LOSS).format(loss=f"{loss.last:.5g}"))
        if loss.nan_at is not None:
            parts.append(self._say(_NAN).format(step=loss.nan_at))
        if loss.diverged_at is not None:
            parts.append(self._say(_DIVERGED).format(step=loss.diverged_at))
        for spike in loss.spikes[:SPIKES_MAX]:
            words = self._say(_JUMP)
            parts.append(
                words.format(before=f"{spike.before:.4g}", loss=f"{spike.loss:.4g}", step=_number(spike.step))
            )
        if parts:
            yield from self._section(_LOSS)
            yield from self._text(_BETWEEN.join(parts), indent=2)
            yield from self._left_out(len(loss.spikes) - SPIKES_MAX)

    def _ranks(self, ranks: dict[int, RankTimes]) -> Iterator[Line]:
        timed = sorted((one.median_s, rank) for rank, one in ranks.items() if one.median_s is not None)
        if len(timed) < 2:
            return
        yield from self._section(_RANKS)
        (low, fast), (high, slow) = timed[0], timed[-1]
        words = self._say(_MEDIANS)
        text = words.format(
            n=len(timed), low=duration(low, DASH), fast=fast, high=duration(high, DASH), slow=slow
        )
        yield from self._text(text, indent=2)

    # Words ------------------------------------------------------------------------------------------------

    def _who(self, ranks: Sequence[int], node: str) -> str:
        text = self._say(_RANK if len(ranks) == 1 else _RANKS_OF).format(ranks=ranges(ranks))
        return self._say(_NODE).format(node=_clean(node), ranks=text.strip()) if node else text

    def _section(self, label: Words) -> tuple[Line, Line]:
        return Line(), Line(self._say(label), "strong")

    def _text(self, text: str, style: str = "", indent: int = 0) -> Iterator[Line]:
        for line in wrapped(text, self._width - indent):
            yield Line(" " * indent + line, style)

    def _bullet(self, text: str) -> Iterator[Line]:
        for number, line in enumerate(wrapped(text, self._width - 4)):
            yield Line(f"{INDENT}{'  ' if number else '- '}{line}")

    def _left_out(self, count: int) -> Iterator[Line]:
        if count > 0:
            yield from self._bullet(self._say(_MORE).format(n=count))

    def _say(self, words: Words) -> str:
        return said(words, self._language)


def moment(at_s: float | None, *, is_local: bool = False) -> str:
    """Formats the timestamp of a log line in the log's own clock, without a time zone; without a date if
    it has none.
    """
    if at_s is None:
        return ""
    try:
        when = datetime.fromtimestamp(at_s, UTC)
    except (OverflowError, OSError, ValueError):
        return ""
    if is_local:
        when = when.astimezone()
    if DAY_UNKNOWN_S <= at_s < ASSUMED_DATES_S[0][1]:
        return f"{when:%H:%M:%S}"
    if any(first <= at_s < last for first, last in ASSUMED_DATES_S):
        return f"{when:%m-%d %H:%M:%S}"
    return f"{when:%Y-%m-%d %H:%M:%S}" if at_s > DAY_UNKNOWN_S else ""


def _clean(text: str) -> str:
    return shown(masked(text))


def _number(step: int | None) -> str:
    return "?" if step is None else str(step)


def _span(first: int | None, last: int | None) -> str:
    return f"{_number(first)}–{_number(last)}" if first != last else _number(first)


def _rounded(seconds: float) -> int:
    """Rounds an estimated duration: to minutes from an hour on, to hours from a day on."""
    unit_s = 3600 if seconds >= 86400 else 60 if seconds >= 3600 else 1
    return round(seconds / unit_s) * unit_s


def _weighted_median(values: Sequence[tuple[float, int]]) -> float:
    """Returns the median of values with counts. `values`: (value, count), ascending by value."""
    half = sum(count for _, count in values) / 2
    for value, count in values:
        half -= count
        if half <= 0:
            return value
    return values[-1][0]


def _size(size_bytes: int) -> str:
    size, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
