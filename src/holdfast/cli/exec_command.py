"""`holdfast exec`: runs a command beside the training, on some or all of its workers, and puts equal answers together."""

import signal
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli.exec_report import Asked, document, ending, plan, plan_document, report
from holdfast.cli.job_call import CANCEL_S, CallNotMade, Gathering, output_bytes_max, places
from holdfast.cli.job_line import JobLine, NoLine, open_line, who
from holdfast.cli.languages import put_plain
from holdfast.cli.number_lists import numbers
from holdfast.cli.output import put_json, say
from holdfast.cli.record import RecordUnreadable, named_job
from holdfast.cli.record_commands import FAILED, REFUSED, Json, StateFolder
from holdfast.cli.times import NotATime, length, seconds
from holdfast.cli.wrapping import shown
from holdfast.core.answer_groups import Answer, answer_groups, exit_code
from holdfast.model.calls import LIMIT_S_DEFAULT, LIMIT_S_MAX, CallPlaces, Program

INTERRUPTED = 130
ANSWER_S = 25.0  # beyond the time limit; the controller answers for silent nodes before that

app = typer.Typer(add_completion=False, rich_markup_mode=None)

RunningJob = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.", show_default=False)]


@app.command(name="exec")
def exec_(
    job: RunningJob,
    command: Annotated[list[str] | None, typer.Argument(metavar="-- COMMAND...", show_default=False)] = None,
    workers: Annotated[
        str | None,
        typer.Option("--workers", metavar="N[,N-M]", help="Only on these workers.", show_default=False),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option("--nodes", metavar="A,B", help="On these nodes, spares too.", show_default=False),
    ] = None,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="End it where it takes longer.")
    ] = length(LIMIT_S_DEFAULT),
    loose: Annotated[
        bool,
        typer.Option("--loose", help="Answers that differ only in numbers and names of nodes are one."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would run where.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before several workers.")] = False,
    json: Json = False,
    state_dir: StateFolder = None,
) -> None:
    """Runs a command on all workers of a running job, or some: one answer, its workers; the rarest first."""
    chosen = numbers(workers, "--workers", "workers")
    named = _names(nodes)
    limit_s = _limit(timeout)
    if not command:
        raise typer.BadParameter(f"there is no command: holdfast exec {job} -- COMMAND", param_hint="COMMAND")
    try:
        line = open_line(named_job(job, state_dir))
    except (RecordUnreadable, NoLine) as error:
        say(str(error))
        raise typer.Exit(FAILED) from error
    try:
        asked = Asked(places(line, chosen, named), tuple(command), limit_s, loose)
        if dry_run:
            _say_plan(asked, json=json)
            return
        _confirm(asked, yes=yes)
        raise typer.Exit(_run(line, asked, json=json))
    except (CallNotMade, NoLine) as error:
        say(str(error))
        raise typer.Exit(FAILED) from error
    finally:
        line.close()


def _run(line: JobLine, asked: Asked, *, json: bool) -> int:
    """Carries it out and shows the answers. raises: CallNotMade, NoLine"""
    chosen = asked.places.places
    what = Program(
        command=asked.command, limit_s=asked.limit_s, output_bytes_max=output_bytes_max(len(chosen))
    )
    gathering = Gathering(line, chosen, what, who())
    interrupts: list[int] = []
    why_not = "it did not answer"
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        gathering.gather(time.monotonic() + asked.limit_s + ANSWER_S, go_on=lambda: not interrupts)
        if interrupts:
            why_not = "it had not answered yet"
            gathering.cancel()
            gathering.gather(time.monotonic() + CANCEL_S, go_on=lambda: len(interrupts) == 1)
    except NoLine as error:
        say(str(error))
        why_not = "the connection to the controller was lost"
    finally:
        signal.signal(signal.SIGINT, before)
    code = _show(asked, gathering.answers(why_not), json=json)
    return INTERRUPTED if interrupts else code


def _show(asked: Asked, answers: Sequence[Answer], *, json: bool) -> int:
    groups = answer_groups(answers, loose=asked.loose)
    if json:
        put_json(document(asked, groups))
    elif len(answers) == 1:
        _show_alone(answers[0])
        if not (groups[0].is_whole and not answers[0].why and not answers[0].cut_bytes):
            say(ending(groups[0]))
    else:
        for text in report(asked, groups):
            put_plain(text)
    return exit_code(groups)


def _show_alone(answer: Answer) -> None:
    """As if it had been run here: for pipes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(answer.output)
    sys.stdout.buffer.flush()


def _say_plan(asked: Asked, *, json: bool) -> None:
    if json:
        put_json(plan_document(asked))
        return
    for text in plan(asked):
        put_plain(text)


def _confirm(asked: Asked, *, yes: bool) -> None:
    """Before several nodes are touched, somebody has to mean it. raises: typer.Exit, typer.Abort"""
    if yes or len(asked.places.places) == 1:
        return
    if not sys.stdin.isatty():
        say(
            f"this would run on {_many(asked.places)}: where nobody can be asked, say so with --yes, "
            "or look first with --dry-run"
        )
        raise typer.Exit(REFUSED)
    for text in plan(asked):
        sys.stderr.write(f"{text}\n")
    sys.stderr.write("run it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("nothing was run")
        raise typer.Exit(FAILED)


def _many(found: CallPlaces) -> str:
    return f"{len(found.places)} nodes of job {shown(found.job)}"


def _names(text: str | None) -> tuple[str, ...] | None:
    """raises: typer.BadParameter"""
    if text is None:
        return None
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(names):
        raise typer.BadParameter(f"{text!r} is not a list of nodes such as A,B", param_hint="--nodes")
    return names


def _limit(text: str) -> float:
    """raises: typer.BadParameter"""
    try:
        limit_s = seconds(text)
    except NotATime as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from error
    if not 0 < limit_s <= LIMIT_S_MAX:
        raise typer.BadParameter(
            f"{text!r} is not within 1ms and {length(LIMIT_S_MAX)}", param_hint="--timeout"
        )
    return limit_s
