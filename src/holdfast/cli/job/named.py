"""Opens the journal of the job that a command names, and prints its problems.

Shared by the commands about one job.
"""

import time
from typing import Annotated

from holdfast.archive.state import Truth, true_state
from holdfast.cli.line.flags import Argument, Exit, Option
from holdfast.cli.line.output import say
from holdfast.core.job.story import Summary
from holdfast.jobs.record import Record, RecordUnreadable, named_job, open_record, supervisor
from holdfast.views.jobs.phase import with_true_words

FAILED, REFUSED = 1, 2

Job = Annotated[str | None, Argument("[JOB]", help="Name of the job; default: the newest.")]
StateFolder = Annotated[str | None, Option("--state-dir", help="Folder of all jobs.")]
Json = Annotated[bool, Option("--json", help="One JSON document instead.")]


def opened(job: str | None, state_dir: str | None) -> Record:
    try:
        return open_record(named_job(job, state_dir))
    except RecordUnreadable as error:
        say(str(error))
        raise Exit(FAILED) from error


def say_notes(record: Record) -> None:
    for note in (*record.notes, record.reader.damage):
        if note:
            say(note)


def unsupervised(record: Record) -> str:
    """Returns a warning if an unfinished job has no supervisor process; empty otherwise."""
    if record.story.ended or supervisor(record.job, record.facts):
        return ""
    return f"this job has no supervisor now; reattach with: holdfast attach {record.job.name}"


def looked_at(record: Record) -> tuple[Summary, Truth]:
    """Returns the job's summary from its journal, and its actual state, read from its processes."""
    summary = record.story.summary()
    truth = true_state(record.job, record.facts, summary, time.time)
    return with_true_words(summary, truth.state, is_being_ended=truth.is_being_ended), truth
