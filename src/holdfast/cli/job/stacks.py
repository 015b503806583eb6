"""Implements `holdfast stacks`: prints the stacks of a running job's ranks, equal stacks together.

Only reads.

Works on healthy and hung jobs, from any terminal of the same user: ranks of this node are read directly,
those of other nodes by their agents. Only native frames pause a rank, for a second or two; they are read on
request only, one rank of a node at a time.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Annotated

from holdfast.cli.job.named import FAILED, Job, Json, StateFolder
from holdfast.cli.line.flags import App, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.number_lists import numbers
from holdfast.cli.line.output import put_json, say
from holdfast.core.hang.stack_groups import StackGroup, grouped
from holdfast.jobs.call import CallNotMade
from holdfast.jobs.line import NoLine, open_line
from holdfast.jobs.rank_stacks import Collect, FromAgents, collected_here
from holdfast.jobs.record import RecordUnreadable, named_job, open_record
from holdfast.jobs.running_ranks import (
    NotRunning,
    RunningJob,
    RunningRank,
    running_job,
)
from holdfast.journal.jobdir import JobDir
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.views.stacks import Missing, Seen, document, report

NATIVE_RANKS_MAX = 3  # of those that were not named

app = App()


@app.command()
def stacks(
    job: Job = None,
    rank: Annotated[
        str | None, Option("--rank", metavar="N[,N-M]", help="Only these ranks.", show_default=False)
    ] = None,
    worker: Annotated[
        str | None,
        Option("--worker", metavar="N[,N-M]", help="Only ranks of these workers.", show_default=False),
    ] = None,
    native: Annotated[
        bool,
        Option(
            "--native",
            help=(
                "Include frames of C code: for the selected ranks, or the first rank of the first three "
                "groups."
            ),
        ),
    ] = False,
    all_threads: Annotated[
        bool, Option("--all-threads", help="Show every thread, not only the main one.")
    ] = False,
    ignore_lines: Annotated[
        bool, Option("--ignore-lines", help="Group stacks that differ only in line numbers.")
    ] = False,
    lang: Lang = None,
    json: Json = False,
    state_dir: StateFolder = None,
) -> None:
    """Prints the current stacks of all ranks, grouped; the rarest first."""
    wanted = numbers(rank, "--rank", "ranks")
    wanted_workers = numbers(worker, "--worker", "workers")
    language = chosen_language(lang, os.environ, json=json)

    def looked(running: RunningJob, collect: Collect) -> Seen:
        chosen = [
            one
            for one in running.ranks
            if (wanted is None or one.rank in wanted)
            and (wanted_workers is None or one.worker in wanted_workers)
        ]
        at_s = time.time()
        collected = collect(chosen, native and wanted is not None)
        groups = grouped(collected, by_line=not ignore_lines, all_threads=all_threads)
        if native and wanted is None:
            collected = _with_native(groups, chosen, collected, collect)
            groups = grouped(collected, by_line=not ignore_lines, all_threads=all_threads)
        missing = _missing(running, wanted, wanted_workers, collected)
        return Seen(running.job, running.attempt, at_s, groups, missing)

    try:
        seen = _seen(named_job(job, state_dir), looked, all_threads=all_threads)
    except (RecordUnreadable, NotRunning, NoLine, CallNotMade) as error:
        say(str(error))
        raise Exit(FAILED) from error
    if json:
        put_json(document(seen, all_threads=all_threads))
    else:
        for line in report(seen, language, all_threads=all_threads):
            put_plain(line)
    if not seen.groups:
        raise Exit(FAILED)


def _seen(folder: JobDir, looked: Callable[[RunningJob, Collect], Seen], *, all_threads: bool) -> Seen:
    """Collects the stacks and returns the result.

    Raises RecordUnreadable, NotRunning, NoLine and CallNotMade.
    """
    record = open_record(folder)
    try:
        running = running_job(record)
        is_here = record.is_one_machine
    finally:
        record.close()
    if is_here:
        return looked(running, collected_here)
    line = open_line(folder)
    try:
        return looked(running, FromAgents(line, all_threads=all_threads))
    finally:
        line.close()


def _with_native(
    groups: Sequence[StackGroup],
    ranks: Sequence[RunningRank],
    collected: Sequence[RankStacks],
    collect: Collect,
) -> list[RankStacks]:
    """Collects native frames of one rank of each of the first groups, so that the job as a whole is not
    paused.
    """
    odd = {group.ranks[0] for group in groups[:NATIVE_RANKS_MAX]}
    again = {one.rank: one for one in collect([one for one in ranks if one.rank in odd], True)}
    return [again.get(one.rank, one) for one in collected]


def _missing(
    running: RunningJob,
    wanted: set[int] | None,
    wanted_workers: set[int] | None,
    collected: Sequence[RankStacks],
) -> tuple[Missing, ...]:
    """Returns the ranks whose stacks are missing or incomplete, with the reasons."""
    asked = {one.rank: one.pid for one in running.ranks}
    whys = {one.rank: one.why_not for one in collected if one.why_not}
    for rank, how in running.ended.items():
        if (wanted is None or rank in wanted) and wanted_workers is None:
            whys[rank] = how
    for rank in wanted or ():
        if rank not in asked and rank not in running.ended:
            whys[rank] = f"job {running.job} has no such rank"
    return tuple(Missing(rank, why) for rank, why in sorted(whys.items()))
