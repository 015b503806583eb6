"""`holdfast stacks`: where the ranks of a running job are in their code, equal stacks together. Only reads.

Works on a healthy job and on a hung one, from any terminal of the same user, beside the Holdfast that runs it. Only
native frames need a rank to be paused, for a second or two; that is done where they are asked for, one rank at a time.
"""

import os
import re
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli.languages import Lang, chosen_language, put_plain
from holdfast.cli.output import put_json, say
from holdfast.cli.record import RecordUnreadable, named_job, open_record
from holdfast.cli.record_commands import FAILED, Job, Json, StateFolder
from holdfast.cli.running_ranks import NotRunning, RunningJob, RunningRank, running_job
from holdfast.cli.stacks_report import Missing, Seen, document, report
from holdfast.core.stack_groups import StackGroup, grouped
from holdfast.model.thread_stacks import RankStacks
from holdfast.observe.pyspy import NATIVE_S, Ask, collect

DEADLINE_S = 20.0
NATIVE_RANKS_MAX = 3  # of those that were not named
RANKS_MAX = 1 << 20
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def stacks(
    job: Job = None,
    rank: Annotated[
        str | None, typer.Option("--rank", metavar="N[,N-M]", help="Only these ranks.", show_default=False)
    ] = None,
    native: Annotated[
        bool,
        typer.Option(
            "--native", help="Frames of C code too: of the ranks named, or of the first three groups' first."
        ),
    ] = False,
    all_threads: Annotated[
        bool, typer.Option("--all-threads", help="Every thread, not only the main one.")
    ] = False,
    ignore_lines: Annotated[
        bool, typer.Option("--ignore-lines", help="Stacks that differ only in line numbers are one.")
    ] = False,
    lang: Lang = None,
    json: Json = False,
    state_dir: StateFolder = None,
) -> None:
    """Where each rank of a running job is in its code now: one stack, its ranks; the odd ones first."""
    wanted = _ranks(rank)
    language = chosen_language(lang, os.environ, json=json)
    try:
        running = _running(job, state_dir)
    except (RecordUnreadable, NotRunning) as error:
        say(str(error))
        raise typer.Exit(FAILED) from error
    chosen = [one for one in running.ranks if wanted is None or one.rank in wanted]
    at_s = time.time()
    collected = _collected(chosen, native=native and wanted is not None)
    groups = grouped(collected, by_line=not ignore_lines, all_threads=all_threads)
    if native and wanted is None:
        collected = _with_native(groups, chosen, collected)
        groups = grouped(collected, by_line=not ignore_lines, all_threads=all_threads)
    seen = Seen(running.job, running.attempt, at_s, groups, _missing(running, wanted, collected))
    if json:
        put_json(document(seen, all_threads=all_threads))
    else:
        for line in report(seen, language, all_threads=all_threads):
            put_plain(line)
    if not groups:
        raise typer.Exit(FAILED)


def _running(job: str | None, state_dir: str | None) -> RunningJob:
    """raises: RecordUnreadable, NotRunning"""
    record = open_record(named_job(job, state_dir))
    try:
        return running_job(record)
    finally:
        record.close()


def _collected(ranks: Sequence[RunningRank], *, native: bool) -> list[RankStacks]:
    asks = [Ask(one.rank, one.pid, one.folder) for one in ranks]
    within_s = DEADLINE_S + NATIVE_S * len(asks) * native
    return list(collect(asks, within_s, native=native, signal_first=False))


def _with_native(
    groups: Sequence[StackGroup], ranks: Sequence[RunningRank], collected: Sequence[RankStacks]
) -> list[RankStacks]:
    """One rank of each of the first groups again, with native frames: a whole job is not paused for a look."""
    odd = {group.ranks[0] for group in groups[:NATIVE_RANKS_MAX]}
    again = {one.rank: one for one in _collected([one for one in ranks if one.rank in odd], native=True)}
    return [again.get(one.rank, one) for one in collected]


def _missing(
    running: RunningJob, wanted: set[int] | None, collected: Sequence[RankStacks]
) -> tuple[Missing, ...]:
    """Ranks of which there is nothing to show, and of those shown what could not be had."""
    asked = {one.rank: one.pid for one in running.ranks}
    whys = {one.rank: one.why_not for one in collected if one.why_not}
    for rank, how in running.ended.items():
        if wanted is None or rank in wanted:
            whys[rank] = how
    for rank in wanted or ():
        if rank not in asked and rank not in running.ended:
            whys[rank] = f"job {running.job} has no such rank"
    return tuple(Missing(rank, why) for rank, why in sorted(whys.items()))


def _ranks(text: str | None) -> set[int] | None:
    """`0,4-6` -> {0, 4, 5, 6}. raises: typer.BadParameter"""
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < RANKS_MAX:
            raise typer.BadParameter(f"{text!r} is not a list of ranks such as 0,4-6", param_hint="--rank")
        found.update(range(first, last + 1))
    return found
