"""Implements `holdfast status`: prints the state of a job, from its journal.

Only reads; works while the job runs and after a crash.
"""

import os
import time
from collections.abc import Sequence
from typing import Annotated

from msgspec.structs import replace
from rich.cells import set_cell_size

from holdfast import __version__
from holdfast.archive.state import Truth, steps_now
from holdfast.cli.job.named import (
    FAILED,
    REFUSED,
    Job,
    Json,
    StateFolder,
    looked_at,
    opened,
    say_notes,
    unsupervised,
)
from holdfast.cli.line.flags import App, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.output import put_json, say
from holdfast.core.job.story import IncidentStory, Line, Summary
from holdfast.core.job.story_parts import RankKnown
from holdfast.core.job.wording import verdict_words
from holdfast.core.plurals import counted
from holdfast.jobs.record import Record, RecordUnreadable, supervisor
from holdfast.settings.times import length, stamp
from holdfast.views.jobs.incident import title_words
from holdfast.views.jobs.phase import at_step, true_words
from holdfast.views.jobs.status_zh import rows_zh
from holdfast.views.languages import Language
from holdfast.views.status import NoTerminal, Seen, refuse_without_terminal, watch
from holdfast.views.steps.rows import step_rows, steps_of

RANKS_SHOWN_MAX = 16
NAME_COLUMNS = 10

Watch = Annotated[bool, Option("--watch", "-w", help="Live view in the terminal; q quits.")]

app = App()


@app.command()
def status(
    job: Job = None,
    state_dir: StateFolder = None,
    json: Json = False,
    live: Watch = False,
    lang: Lang = None,
) -> None:
    """Shows the state of a job on one screen. The live view is in English."""
    language = chosen_language(lang, os.environ, json=json)
    if live:
        _refuse_watch(json)
    record = opened(job, state_dir)
    try:
        if live and not watch(record, _seen):
            return  # left by its reader, with the job going on
        if not live:
            record.all_lines()
        say_notes(record)
        if json:
            summary, truth = looked_at(record)
            put_json(
                {
                    "state": truth.state,
                    "state_since_s": truth.since_s,
                    "summary": summary,
                    "steps": steps_now(steps_of(record.job, summary), truth),
                    "command": record.facts.get("command"),
                    "folder": str(record.job.path),
                    "supervisor": supervisor(record.job, record.facts) or None,
                    "version": __version__,
                }
            )
            return
        _print(record, language)
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error
    finally:
        record.close()


def _print(record: Record, language: Language) -> None:
    summary, truth = looked_at(record)
    found, warning = rows(record, summary, truth), unsupervised(record)
    if language == "zh":
        verdicts = [one for one in summary.incidents if one.verdict is not None]
        title = title_words(verdicts[-1].verdict, verdicts[-1]) if verdicts else None
        found = rows_zh(found, title)
        warning = f"此作业现在没有监督进程；重新接管：holdfast attach {record.job.name}" if warning else ""
    for name, text in found:
        put_plain(f"{set_cell_size(name, NAME_COLUMNS)} {text}".rstrip())
    if warning:
        put_plain(warning)


def rows(record: Record, summary: Summary, truth: Truth) -> list[tuple[str, str]]:
    since = stamp(truth.since_s) if truth.since_s is not None else ""
    steps = steps_now(steps_of(record.job, summary), truth)
    # The file of the steps is newer than the journal: one screen names one step.
    step = steps.now.step if steps is not None and steps.now.step is not None else summary.step
    known = true_words(summary, truth.state, is_being_ended=truth.is_being_ended, since=since)
    phase = at_step(known, step)
    found = [
        ("job", f"{record.job.name}: {record.command}" if record.command else record.job.name),
        ("phase", phase),
        ("attempt", _attempt(summary)),
        *step_rows(summary, steps),
        ("restarts", _counters(summary)),
        ("incident", _open_incident(summary)),
        ("verdict", _last_verdict(summary)),
        ("ranks", _ranks(summary, truth)),
        ("folder", str(record.job.path)),
    ]
    if summary.isolated or summary.lost:
        found.insert(-1, ("nodes", _nodes(summary)))
    if truth.supervisor:
        found.append(("holdfast", truth.supervisor))
    return found


def _refuse_watch(json: bool) -> None:
    try:
        if json:
            raise NoTerminal("--watch and --json cannot be used together")
        refuse_without_terminal()
    except NoTerminal as error:
        say(str(error))
        raise Exit(REFUSED) from error


def _seen(record: Record, lines: Sequence[Line]) -> Seen:
    summary, truth = looked_at(record)
    found = rows(record, summary, truth)
    warnings = (*record.notes, *truth.notes, record.reader.damage, unsupervised(record))
    return Seen(
        title=f"job {dict(found)['job']}",
        rows=tuple(found),
        ranks=tuple(replace(rank, ended=True) if _is_gone(rank, truth) else rank for rank in summary.ranks),
        steps=steps_now(steps_of(record.job, summary), truth),
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
    return f"the last one ended after {length(round(last.took_s or 0.0, 1))}{lost}"


def _last_verdict(summary: Summary) -> str:
    for incident in reversed(summary.incidents):
        if incident.verdict is not None:
            return f"incident {incident.number}: {verdict_words(incident.verdict)}"
    return "none so far"


def _ranks(summary: Summary, truth: Truth) -> str:
    shown = [
        f"{rank.rank} ({_rank(rank, is_gone=_is_gone(rank, truth))})"
        for rank in summary.ranks[:RANKS_SHOWN_MAX]
    ]
    more = len(summary.ranks) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") or "none known"


def _rank(rank: RankKnown, *, is_gone: bool) -> str:
    if rank.ended:
        return f"ended with {rank.code}"
    return "gone" if is_gone else f"pid {rank.pid}"


def _is_gone(rank: RankKnown, truth: Truth) -> bool:
    """Returns True if a rank's process does not exist any more, although no end was recorded."""
    return not rank.ended and truth.living is not None and rank.rank not in truth.living


def _nodes(summary: Summary) -> str:
    parts = [f"isolated: {', '.join(summary.isolated)}"] if summary.isolated else []
    if summary.lost:
        parts.append(f"lost: {', '.join(summary.lost)}")
    return "; ".join(parts)
