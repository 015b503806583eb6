"""`holdfast compare`: compares runs of the same training step by step, and reports where they diverge.

Read-only.
"""

import os
from pathlib import Path
from typing import Annotated

from holdfast.archive.compared_runs import NoSuchRun, read_compared
from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.cli.line.plots import check_plot
from holdfast.cli.line.step_pattern import StepPattern, forms_of
from holdfast.core.compare.compare import compare as compared
from holdfast.core.compare.series import RunValues
from holdfast.jobs.record import RecordUnreadable
from holdfast.model.runs.comparison import Comparison
from holdfast.model.step_forms import StepForm
from holdfast.views.comparison.curves import curves
from holdfast.views.comparison.report import document, report
from holdfast.views.fleet.png import NotDrawn, draw
from holdfast.views.lines import for_terminal

FAILED = 1
RUNS_MAX = 64

app = App()


@app.command()
def compare(
    runs: Annotated[
        list[str] | None,
        Argument(
            "RUN RUN...", help="Logs, folders of logs, or names of jobs; others are compared with the first."
        ),
    ] = None,
    repeat: Annotated[
        list[str] | None,
        Option(
            "--repeat",
            metavar="RUN",
            help="Another run like the first one: differences between repeats are noise.",
        ),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print one JSON document instead of text.")] = False,
    plot: Annotated[
        str | None, Option("--plot", metavar="FILE", help="Also draw the runs, into FILE.html or FILE.png.")
    ] = None,
    step_pattern: StepPattern = None,
    lang: Lang = None,
    state_dir: Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")] = None,
) -> None:
    """Reports at which step runs of the same training diverge, which ranks diverge first, and how the runs
    differ.
    """
    language = chosen_language(lang, os.environ, json=json)
    words = runs or []
    if len(words) < 2:
        raise BadParameter("name at least two runs", param_hint="RUN")
    if len(words) + len(repeat or []) > RUNS_MAX:
        raise BadParameter(f"at most {RUNS_MAX} runs are compared", param_hint="RUN")
    check_plot(plot)
    forms = forms_of(step_pattern)
    read = [_read(word, state_dir, forms) for word in words]
    again = [_read(word, state_dir, forms) for word in repeat or []]
    found = compared(read, again)
    if plot is not None:
        _draw(Path(plot), read, found)
    if json:
        put_json(document(found))
    else:
        for text in for_terminal(report(found, language)):
            put_plain(text)
    if not any(one.common for one in found.others):
        raise Exit(FAILED)


def _read(word: str, state_dir: str | None, forms: tuple[StepForm, ...]) -> RunValues:
    """Returns the values of a run. Raises BadParameter, Exit."""
    try:
        return read_compared(word, state_dir, forms)
    except NoSuchRun as error:
        raise BadParameter(str(error), param_hint="RUN") from error
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error


def _draw(path: Path, runs: list[RunValues], found: Comparison) -> None:
    """Writes the chart of the comparison. Raises Exit."""
    try:
        draw(path, curves(runs, found))
    except NotDrawn as error:
        say(str(error))
        raise Exit(FAILED) from error
