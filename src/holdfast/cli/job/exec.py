"""Implements `holdfast exec`: runs a command on some or all workers of a running job, and groups equal
results.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Annotated, NamedTuple

from holdfast.cli.job.named import FAILED, REFUSED, Json, StateFolder
from holdfast.cli.line.flags import App, Argument, BadParameter, Exit, Option
from holdfast.cli.line.languages import Lang, chosen_language, put_plain
from holdfast.cli.line.number_lists import numbers
from holdfast.cli.line.output import put_json, say
from holdfast.core.answer_groups import Answer, answer_groups, exit_code
from holdfast.core.hang.stack_groups import ranges
from holdfast.core.plurals import counted
from holdfast.jobs.call import CANCEL_S, CallNotMade, Gathering, output_bytes_max, places
from holdfast.jobs.line import JobLine, NoLine, open_line, who
from holdfast.jobs.record import RecordUnreadable, named_job
from holdfast.model.calls import LIMIT_S_DEFAULT, LIMIT_S_MAX, CallPlaces, Program
from holdfast.settings.times import NotATime, length, seconds
from holdfast.views.exec import Asked, document, ending, plan, plan_document, report
from holdfast.views.languages import Language
from holdfast.views.wrapping import cut, shown

INTERRUPTED = 130
PROGRESS_S = 1.0
ANSWER_S = 25.0  # beyond the time limit; the controller answers for silent nodes before that

app = App()

RunningJob = Annotated[str, Argument("JOB", help="Name of the job.")]


@app.command(name="exec")
def exec_(
    job: RunningJob,
    command: Annotated[list[str] | None, Argument("-- COMMAND...")] = None,
    workers: Annotated[
        str | None,
        Option("--workers", metavar="N[,N-M]", help="Run only on these workers.", show_default=False),
    ] = None,
    nodes: Annotated[
        str | None,
        Option("--nodes", metavar="A,B", help="Run on these nodes, which may be spares.", show_default=False),
    ] = None,
    timeout: Annotated[str, Option("--timeout", metavar="TIME", help="Time limit of the command.")] = length(
        LIMIT_S_DEFAULT
    ),
    loose: Annotated[
        bool,
        Option("--loose", help="Group outputs that differ only in numbers and node names."),
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would run where.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    lang: Lang = None,
    json: Json = False,
    state_dir: StateFolder = None,
) -> None:
    """Runs a command on all or some workers of a running job, and groups equal results, the rarest first."""
    chosen = numbers(workers, "--workers", "workers")
    named = _names(nodes)
    limit_s = _limit(timeout)
    language = chosen_language(lang, os.environ, json=json)
    if not command:
        raise BadParameter(
            (
                f"the job or the command is missing; only one word was given: {job!r}: holdfast exec JOB -- "
                "COMMAND"
            ),
            param_hint="COMMAND",
        )
    try:
        line = open_line(named_job(job, state_dir))
    except (RecordUnreadable, NoLine) as error:
        say(str(error))
        raise Exit(FAILED) from error
    try:
        asked = Asked(places(line, chosen, named), tuple(command), limit_s, loose)
        if dry_run:
            _say_plan(asked, language, json=json)
            return
        _confirm(asked, language, yes=yes)
        gathered = _gathered(line, asked)
        code = _show(asked, gathered.answers, language, json=json)
        raise Exit(INTERRUPTED if gathered.is_interrupted else code)
    except (CallNotMade, NoLine) as error:
        say(str(error))
        raise Exit(FAILED) from error
    finally:
        line.close()


class Gathered(NamedTuple):
    """The results of a command on several workers, and whether the user interrupted it."""

    answers: list[Answer]
    is_interrupted: bool


def _gathered(line: JobLine, asked: Asked) -> Gathered:
    """Runs the command, and returns its results, those until Ctrl-C if it was interrupted.

    Raises CallNotMade and NoLine.
    """
    chosen = asked.places.places
    what = Program(
        command=asked.command, limit_s=asked.limit_s, output_bytes_max=output_bytes_max(len(chosen))
    )
    gathering = Gathering(line, chosen, what, who())
    interrupts: list[int] = []
    why_not = "the node did not respond"
    progress = _Progress(gathering, len(chosen))
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        until_s = time.monotonic() + asked.limit_s + ANSWER_S
        gathering.gather(until_s, go_on=lambda: progress.shown() and not interrupts)
        if interrupts:
            why_not = "the node had not responded yet"
            gathering.cancel()
            until_s = time.monotonic() + CANCEL_S
            gathering.gather(until_s, go_on=lambda: progress.shown() and len(interrupts) == 1)
    except NoLine as error:
        progress.clear()
        say(str(error))
        why_not = "the connection to the controller was lost"
    finally:
        signal.signal(signal.SIGINT, before)
        progress.clear()
    return Gathered(gathering.answers(why_not), bool(interrupts))


class _Progress:
    """A line on the terminal that lists pending nodes, shown after a moment."""

    def __init__(self, gathering: Gathering, count: int) -> None:
        self._gathering, self._count = gathering, count
        self._since_s = time.monotonic()
        self._line = ""
        self._is_watched = sys.stderr.isatty()

    def shown(self) -> bool:
        """Updates the line. Always returns True."""
        waiting = self._gathering.waiting
        if self._is_watched and waiting and time.monotonic() - self._since_s >= PROGRESS_S:
            names = ranges(place.worker for place in waiting if place.worker is not None)
            names = names or ", ".join(place.node for place in waiting)
            line = cut(
                shown(f"{self._count - len(waiting)} of {self._count} have responded; waiting for {names}"),
                79,
            )
            if line != self._line:
                sys.stderr.write(f"\r\x1b[K{line}")
                sys.stderr.flush()
                self._line = line
        return True

    def clear(self) -> None:
        if self._line:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._line = ""


def _show(asked: Asked, answers: Sequence[Answer], language: Language, *, json: bool) -> int:
    """Prints the results and returns the exit code."""
    groups = answer_groups(answers, loose=asked.loose)
    if json:
        put_json(document(asked, groups))
    elif len(answers) == 1:
        _show_alone(answers[0])
        if not (groups[0].is_whole and not answers[0].why and not answers[0].cut_bytes):
            say(ending(groups[0], language))
    else:
        for text in report(asked, groups, language):
            put_plain(text)
    return exit_code(groups)


def _show_alone(answer: Answer) -> None:
    """Prints the output of a single worker unchanged, so that it can be piped."""
    sys.stdout.flush()
    sys.stdout.buffer.write(answer.output)
    sys.stdout.buffer.flush()


def _say_plan(asked: Asked, language: Language, *, json: bool) -> None:
    if json:
        put_json(plan_document(asked))
        return
    for text in plan(asked, language):
        put_plain(text)


def _confirm(asked: Asked, language: Language, *, yes: bool) -> None:
    """Asks for confirmation before running on several nodes. Raises Exit and Abort."""
    if yes or len(asked.places.places) == 1:
        return
    if not sys.stdin.isatty():
        say(
            f"this would run on {_many(asked.places)}: without a terminal, confirm with --yes, or try "
            "--dry-run first"
        )
        raise Exit(REFUSED)
    for text in plan(asked, language):
        sys.stderr.write(f"{text}\n")
    sys.stderr.write("run it? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        say("cancelled: no command was run")
        raise Exit(FAILED)


def _many(found: CallPlaces) -> str:
    return f"{counted(len(found.places), 'node')} of job {shown(found.job)}"


def _names(text: str | None) -> tuple[str, ...] | None:
    """Parses a list of nodes. Raises BadParameter."""
    if text is None:
        return None
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(names):
        raise BadParameter(f"{text!r} is not a list of nodes such as A,B", param_hint="--nodes")
    return names


def _limit(text: str) -> float:
    """Parses a time limit into seconds. Raises BadParameter."""
    try:
        limit_s = seconds(text)
    except NotATime as error:
        raise BadParameter(str(error), param_hint="--timeout") from error
    if not 0 < limit_s <= LIMIT_S_MAX:
        raise BadParameter(f"{text!r} is not between 1ms and {length(LIMIT_S_MAX)}", param_hint="--timeout")
    return limit_s
