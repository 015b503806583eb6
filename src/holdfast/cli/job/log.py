"""Implements `holdfast log`: prints what happened to a job, from its journal.

Only reads; works while the job runs and after a crash.
"""

from typing import Annotated

from holdfast.cli.job.named import FAILED, Job, Json, StateFolder, looked_at, opened, say_notes, unsupervised
from holdfast.cli.line.flags import App, Exit, Option
from holdfast.cli.line.output import put, put_json, put_json_line, say
from holdfast.core.job.repeated_warnings import Repeats
from holdfast.core.job.story import Summary
from holdfast.jobs.record import Record, RecordUnreadable, supervisor
from holdfast.model.policy import Policy
from holdfast.views.log import printed, restarts_allowed, without_repeats

Follow = Annotated[bool, Option("--follow", "-f", help="Follow the job as it runs.")]

app = App()


@app.command()
def log(job: Job = None, state_dir: StateFolder = None, follow: Follow = False, json: Json = False) -> None:
    """Prints the fault-tolerance log of a job: restarts, findings, verdicts and actions, with times."""
    record = opened(job, state_dir)
    try:
        if follow:
            _follow(record, json=json)
            return
        lines = record.all_lines()
        say_notes(record)
        summary, truth = looked_at(record)
        if json:
            put_json({"summary": summary, "lines": lines, "state": truth.state})
            return
        shown = without_repeats(lines, Repeats())
        for text in (*header(summary, record.policy), *map(printed, shown)):
            put(text)
        if warning := unsupervised(record):
            put(warning)
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    finally:
        record.close()


def header(summary: Summary, policy: Policy) -> list[str]:
    return [
        f"job {summary.job or 'without a name'}: {summary.phase_words}",
        f"maximum restarts: {restarts_allowed(policy)}",
        f"restarts so far: {summary.restarts}",
        f"reschedules caused by hardware: {summary.hardware_reschedules}",
        "",
    ]


def _follow(record: Record, *, json: bool) -> None:
    """Prints the log's lines as they come, without the header, which would soon be outdated."""
    say_notes(record)

    def goes_on() -> bool:
        return not record.story.ended and bool(supervisor(record.job, record.facts))

    repeats = Repeats()
    for line in record.lines(record.followed(goes_on)):
        if json:
            put_json_line(line, now=True)
        for one in () if json else without_repeats([line], repeats):
            put(printed(one), now=True)
    if warning := unsupervised(record):
        say(warning)
