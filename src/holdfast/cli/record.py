"""`holdfast log` and `holdfast status`: what happened to a job and what is true of it, from its journal.

Both work while the job runs and after a crash of Holdfast. They only read.
"""

import time
from collections.abc import Sequence
from typing import Annotated

from holdfast import __version__
from holdfast.cli.line.flags import App, Argument, Exit, Option
from holdfast.cli.line.output import put, put_json, put_json_line, say
from holdfast.core.job.repeated_warnings import Repeats
from holdfast.core.job.story import IncidentStory, Line, Summary
from holdfast.core.job.wording import verdict_words
from holdfast.core.plurals import counted
from holdfast.jobs.record import Record, RecordUnreadable, named_job, open_record, supervisor
from holdfast.settings.times import length, stamp
from holdfast.views.log import printed, without_repeats
from holdfast.views.status import NoTerminal, Seen, refuse_without_terminal, watch
from holdfast.views.steps.rows import step_rows, steps_of

RANKS_SHOWN_MAX = 16
FAILED, REFUSED = 1, 2

log_app = App()
status_app = App()

Job = Annotated[str | None, Argument("[JOB]", help="Name of the job; default: the newest.")]
StateFolder = Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")]
Json = Annotated[bool, Option("--json", help="One JSON document instead.")]
Watch = Annotated[bool, Option("--watch", "-w", help="Live view in the terminal; q quits.")]
Follow = Annotated[bool, Option("--follow", "-f", help="Follow the job as it runs.")]


@log_app.command()
def log(job: Job = None, state_dir: StateFolder = None, follow: Follow = False, json: Json = False) -> None:
    """The fault-tolerance log of a job: restarts, findings, verdicts, what was done, to the second."""
    record = _opened(job, state_dir)
    try:
        if follow:
            _follow(record, json=json)
            return
        lines = record.all_lines()
        _say_notes(record)
        if json:
            put_json({"summary": record.story.summary(), "lines": lines})
            return
        shown = without_repeats(lines, Repeats())
        for text in (*header(record.story.summary()), *map(printed, shown)):
            put(text)
        if warning := unsupervised(record):
            put(warning)
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    finally:
        record.close()


@status_app.command()
def status(job: Job = None, state_dir: StateFolder = None, json: Json = False, live: Watch = False) -> None:
    """Shows the state of a job on one screen."""
    if live:
        _refuse_watch(json)
    record = _opened(job, state_dir)
    try:
        if live and not watch(record, _seen):
            return  # left by its reader, with the job going on
        if not live:
            record.all_lines()
        _say_notes(record)
        if json:
            summary = record.story.summary()
            put_json(
                {
                    "summary": summary,
                    "steps": steps_of(record.job, summary),
                    "command": record.facts.get("command"),
                    "folder": str(record.job.path),
                    "supervisor": supervisor(record.job, record.facts) or None,
                    "version": __version__,
                }
            )
            return
        for name, text in rows(record):
            put(f"{name:<10} {text}".rstrip())
        if warning := unsupervised(record):
            put(warning)
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    finally:
        record.close()


# The log -------------------------------------------------------------------------------------------------


def header(summary: Summary) -> list[str]:
    allowed = "none" if summary.max_restarts is None else str(summary.max_restarts)
    return [
        f"job {summary.job or 'without a name'}: {summary.phase_words}",
        f"maximum restarts: {allowed}",
        f"restarts so far: {summary.restarts}",
        f"reschedules caused by hardware: {summary.hardware_reschedules}",
        "",
    ]


def unsupervised(record: Record) -> str:
    """What to say when the job goes on, or lies there, without a Holdfast; empty when all is well."""
    if record.story.ended or supervisor(record.job, record.facts):
        return ""
    return f"nobody supervises this job now; holdfast attach {record.job.name}"


def _follow(record: Record, *, json: bool) -> None:
    """The header as it is when the command starts would be old at once: only lines, as they come."""
    _say_notes(record)

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


# The status ----------------------------------------------------------------------------------------------


def rows(record: Record) -> list[tuple[str, str]]:
    summary = record.story.summary()
    found = [
        ("job", f"{record.job.name}: {record.command}" if record.command else record.job.name),
        ("phase", summary.phase_words),
        ("attempt", _attempt(summary)),
        *step_rows(summary, steps_of(record.job, summary)),
        ("restarts", _counters(summary)),
        ("incident", _open_incident(summary)),
        ("verdict", _last_verdict(summary)),
        ("ranks", _ranks(summary)),
        ("folder", str(record.job.path)),
    ]
    if summary.isolated or summary.lost:
        found.insert(-1, ("nodes", _nodes(summary)))
    holder = supervisor(record.job, record.facts)
    if holder:
        found.append(("holdfast", holder))
    return found


def _refuse_watch(json: bool) -> None:
    try:
        if json:
            raise NoTerminal("--watch draws on a terminal, --json is one document: give one of them")
        refuse_without_terminal()
    except NoTerminal as error:
        say(str(error))
        raise Exit(REFUSED) from error


def _seen(record: Record, lines: Sequence[Line]) -> Seen:
    found = rows(record)
    summary = record.story.summary()
    warnings = (*record.notes, record.reader.damage, unsupervised(record))
    return Seen(
        title=f"job {dict(found)['job']}",
        rows=tuple(found),
        ranks=summary.ranks,
        steps=steps_of(record.job, summary),
        lines=tuple(lines),
        notes=tuple(filter(None, warnings)),
        at_s=time.time(),
    )


def _attempt(summary: Summary) -> str:
    started = [attempt for attempt in summary.attempts if attempt.number == summary.attempt]
    return f"{summary.attempt}, since {stamp(started[0].started_at_s)}" if started else str(summary.attempt)


def _counters(summary: Summary) -> str:
    allowed = ", none allowed" if summary.max_restarts is None else f" of {summary.max_restarts}"
    return (
        f"{summary.restarts}{allowed}; reschedules caused by hardware: {summary.hardware_reschedules}; "
        f"workers replaced: {summary.replacements}"
    )


def _open_incident(summary: Summary) -> str:
    last = summary.incidents[-1] if summary.incidents else None
    if last is None:
        return "none so far"
    if last.over:
        return f"none open; {len(summary.incidents)} so far, {_took(last)}"
    return f"{last.number}, since {stamp(last.found_at_s)}: {last.found}"


def _took(last: IncidentStory) -> str:
    lost = "" if last.steps_lost is None else f", {counted(last.steps_lost, 'step')} lost"
    return f"the last over after {length(round(last.took_s or 0.0, 1))}{lost}"


def _last_verdict(summary: Summary) -> str:
    for incident in reversed(summary.incidents):
        if incident.verdict is not None:
            return f"incident {incident.number}: {verdict_words(incident.verdict)}"
    return "none so far"


def _ranks(summary: Summary) -> str:
    shown = [
        f"{rank.rank} ({f'ended with {rank.code}' if rank.ended else f'pid {rank.pid}'})"
        for rank in summary.ranks[:RANKS_SHOWN_MAX]
    ]
    more = len(summary.ranks) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") or "none known"


def _nodes(summary: Summary) -> str:
    parts = [f"isolated: {', '.join(summary.isolated)}"] if summary.isolated else []
    if summary.lost:
        parts.append(f"lost: {', '.join(summary.lost)}")
    return "; ".join(parts)


def _opened(job: str | None, state_dir: str | None) -> Record:
    try:
        return open_record(named_job(job, state_dir))
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error


def _say_notes(record: Record) -> None:
    for note in (*record.notes, record.reader.damage):
        if note:
            say(note)
