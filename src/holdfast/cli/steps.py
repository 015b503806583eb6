"""Implements `holdfast steps`: reports step times of a training and whether it became slower. Only reads."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put, put_json, say
from holdfast.cli.line.plots import check_plot
from holdfast.cli.line.step_pattern import forms_of
from holdfast.core.steps.report import LogSteps, Training, training_of, trainings
from holdfast.core.steps.watch_settings import StepSettings
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.journal.jobdir import JobDir
from holdfast.model.matches import Skipped
from holdfast.model.steps import StepNow, StepReport
from holdfast.observe.logs.step_logs import ReadSettings, read_job, read_logs
from holdfast.observe.processes.flight_files import SceneReader
from holdfast.parsers.log_lines.secrets import masked
from holdfast.views.lines import for_terminal
from holdfast.views.steps.plot import PlotUnavailable, html_page, write_png
from holdfast.views.steps.report import WIDTH_MAX, Scanned, report
from holdfast.views.steps.rule import rule_lines

FAILED, REFUSED = 1, 2
JOURNAL = "journal.db"
WIPE = "\r\x1b[K"
STDIN = "-"
RULES = ("aistudio",)
PLOTS = (".html", ".htm", ".png")
RANKS_MAX = 1 << 24
PROGRESS_AFTER_S, PROGRESS_EVERY_S = 1.0, 0.2

app = App()


@app.command()
def steps(
    logs: Annotated[
        list[str] | None,
        Argument(
            "LOG...",
            help="Logs, folders, archives, TensorBoard event files, names of jobs; - for stdin.",
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="One JSON document instead.")] = False,
    plot: Annotated[
        str | None, Option("--plot", metavar="FILE", help="Also draw a chart, into FILE.html or FILE.png.")
    ] = None,
    step_pattern: Annotated[
        str | None,
        Option(
            "--step-pattern",
            metavar="REGEX|FILE.toml",
            help="Regular expression for your step lines, with groups step, time, total, loss, ...",
        ),
    ] = None,
    rule: Annotated[
        str | None,
        Option("--rule", metavar="aistudio", help="Print only the log lines of this platform's rule."),
    ] = None,
    ranks: Annotated[
        int | None,
        Option("--ranks", help="Number of GPUs of the training, to compute costs.", min=1, max=RANKS_MAX),
    ] = None,
    lang: Lang = None,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Reports step times, slowdowns, when they began, and what they cost."""
    language = chosen_language(lang, os.environ, json=json)
    _check(rule, plot)
    started_s = time.monotonic()
    places, job, stdin = _places(logs or [], state_dir)
    settings = ReadSettings(
        forms=forms_of(step_pattern), steps=StepSettings(ranks=ranks), rule=rule is not None
    )
    progress = Progress(started_s)
    flights = SceneReader()
    if job is not None:
        found = read_job(job.path, settings, progress=progress.show)
    else:
        found = read_logs(places, settings, stdin=stdin, beside=flights.take, progress=progress.show)
    progress.end()
    groups = trainings(found.logs, is_one=job is not None)
    if rule is not None:
        _print_rule(groups, found.skipped, is_local=job is not None)
        return
    records = flights.whole_records() if len(groups) == 1 else ()  # of several, nothing says whose they are
    all_of = [training_of(group, is_local=job is not None, records=records) for group in groups]
    read = Scanned(
        files=found.files,
        size_bytes=found.size_bytes,
        seconds=time.monotonic() - started_s,
        skipped=tuple(found.skipped),
    )
    if plot is not None:
        _draw(Path(plot), all_of)
    if json:
        put_json(document(all_of, read))
        return
    width = shutil.get_terminal_size((WIDTH_MAX, 24)).columns
    chart = "utf" in (sys.stdout.encoding or "").lower()
    for text in for_terminal(report(all_of, read, language, width, chart=chart)):
        put_plain(text)


def document(all_of: Sequence[Training], read: Scanned) -> dict[str, Any]:
    """Returns the JSON document of `holdfast steps` (docs/steps.md) for the training with the most steps.

    `logs` in the document: all trainings, if there are several.
    """
    first = _document(all_of[0]) if all_of else msgspec.to_builtins(StepReport(), str_keys=True)
    if len(all_of) > 1:
        first["logs"] = [_document(one) for one in all_of]
    first["scanned"] = {
        "files": read.files,
        "bytes": read.size_bytes,
        "seconds": round(read.seconds, 3),
        "skipped": [{"name": masked(one.name), "why": masked(one.why)} for one in read.skipped],
    }
    return first


def _document(one: Training) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(one.report, str_keys=True)
    built["notes"] = [masked(note) for note in one.report.notes]
    built["now"] = msgspec.to_builtins(one.now)
    built["log"] = masked(one.name)
    built["read"] = [masked(name) for name in one.logs]
    return built


def _check(rule: str | None, plot: str | None) -> None:
    """Raises BadParameter if a flag has an invalid value."""
    if rule is not None and rule not in RULES:
        raise BadParameter(f"{rule!r} is not one of {', '.join(RULES)}", param_hint="--rule")
    check_plot(plot, PLOTS)


def _places(logs: Sequence[str], state_dir: str | None) -> tuple[list[Path], JobDir | None, BinaryIO | None]:
    """Returns what to read: paths, a job, and stdin if it is named or nothing is. Raises BadParameter."""
    if not logs and sys.stdin.isatty():
        raise BadParameter("give a log, a folder or a job, or - for stdin", param_hint="LOG")
    places: list[Path] = []
    jobs: list[JobDir] = []
    for word in logs:
        path = Path(word)
        if word == STDIN:
            continue
        if (path / JOURNAL).is_file():
            jobs.append(JobDir(path))
        elif os.path.lexists(path):
            places.append(path)
        else:
            jobs.append(_job(word, state_dir))
    if jobs and len(logs) > 1:
        raise BadParameter(f"{jobs[0].name} is a job: give either one job, or logs", param_hint="LOG")
    return places, jobs[0] if jobs else None, sys.stdin.buffer if not logs or STDIN in logs else None


def _job(name: str, state_dir: str | None) -> JobDir:
    """Returns the job of this name. Raises BadParameter."""
    try:
        return named_job(name, state_dir)
    except RecordUnreadable as error:
        raise BadParameter(f"there is no file {name!r}, and {error}", param_hint="LOG") from error


def _print_rule(groups: Sequence[Sequence[LogSteps]], skipped: Sequence[Skipped], *, is_local: bool) -> None:
    """Prints only the lines of the rule to stdout; of several trainings, those of the one with the most
    steps.
    """
    for one in skipped:
        say(f"{one.name} was not read: {one.why}")
    if not groups:
        say("no steps were found")
        return
    if len(groups) > 1:
        say(f"{len(groups)} trainings were found; this is {groups[0][0].name}, the one with most steps")
    for line in rule_lines(groups[0][0], is_local=is_local):
        put(line)


def _draw(path: Path, all_of: Sequence[Training]) -> None:
    """Writes the chart of the first training. Raises Exit."""
    first = (
        all_of[0] if all_of else Training(name="holdfast steps", logs=(), report=StepReport(), now=StepNow())
    )
    drawn = (first.report, first.curve, first.heat, masked(first.name))
    try:
        if path.suffix.lower() == ".png":
            write_png(path, *drawn)
        else:
            path.write_text(html_page(*drawn), encoding="utf-8")
    except PlotUnavailable as error:
        say(str(error))
        raise Exit(FAILED) from error
    except OSError as error:
        say(f"{path} cannot be written: {error.strerror or error}")
        raise Exit(FAILED) from error


class Progress:
    """A progress line on the terminal, erased at the end. Silent without a terminal."""

    def __init__(self, started_s: float) -> None:
        self._next_s = started_s + PROGRESS_AFTER_S
        self._is_shown = False
        self._is_wanted = sys.stderr.isatty()

    def show(self, done_bytes: int, total_bytes: int) -> None:
        if not self._is_wanted or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + PROGRESS_EVERY_S
        part = f" of {total_bytes / 1e6:.0f}" if total_bytes >= done_bytes else ""
        self._write(f"{WIPE}read {done_bytes / 1e6:.0f}{part} MB")
        self._is_shown = True

    def end(self) -> None:
        if self._is_shown:
            self._write(WIPE)

    def _write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()
