"""Runs the command line of `holdfast`: finds the module of a command, runs it, and returns its exit code.

Each command's module is imported only when the command is used, so that help is fast. Reads no settings.
"""

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import click

from holdfast import __version__
from holdfast.cli.line import completion
from holdfast.cli.line.flags import App, BadParameter, Exit, Option
from holdfast.cli.line.standard_streams import NotWritten, fill_standard_streams, flush
from holdfast.jobs.elsewhere import JobElsewhere

FAILED = 1
USAGE = 2
INTERRUPTED = 130
_COMPLETED_ENV = "COMP_WORDS"  # the line so far


class Place(NamedTuple):
    """The module that implements a command, and the command's one-line help."""

    module: str
    app: str
    help: str


COMMANDS = {
    "run": Place("holdfast.cli.run", "run_app", "Runs a training command and keeps it going."),
    "attach": Place("holdfast.cli.run", "attach_app", "Reattaches to a job whose supervisor has died."),
    "status": Place("holdfast.cli.job.status", "app", "Shows the state of a job on one screen."),
    "report": Place(
        "holdfast.cli.job.report", "app", "Writes the page of a job as one HTML file, for a ticket."
    ),
    "why": Place("holdfast.cli.job.why", "app", "Says what happened to a job, with evidence."),
    "log": Place("holdfast.cli.job.log", "app", "Shows the fault-tolerance log of a job."),
    "logs": Place(
        "holdfast.cli.job.logs", "app", "Shows the training's output, of all workers and attempts."
    ),
    "stacks": Place("holdfast.cli.job.stacks", "app", "Shows the stacks of a running job's ranks."),
    "exec": Place("holdfast.cli.job.exec", "app", "Runs a command on the workers of a running job."),
    "shell": Place("holdfast.cli.job.shell", "app", "Opens a shell on one worker of a running job."),
    "diagnose": Place(
        "holdfast.cli.diagnose", "app", "Says why a job stopped, from its logs and other files."
    ),
    "explain": Place("holdfast.cli.explain", "app", "Explains a code or a few words of a message."),
    "steps": Place("holdfast.cli.steps", "app", "Reports step times, and since when steps are slower."),
    "compare": Place("holdfast.cli.compare", "app", "Says at which step runs of one training diverge."),
    "bisect": Place("holdfast.cli.bisect", "app", "Finds the commit, node or variable that makes a run bad."),
    "cost": Place("holdfast.cli.job.cost", "app", "Reports a job's time by cause, in GPU-hours and money."),
    "advise": Place(
        "holdfast.cli.advise", "app", "Advises a checkpoint interval, spares and nodes to isolate."
    ),
    "imports": Place(
        "holdfast.cli.job.imports", "app", "Reports how long the imports of a job's script take."
    ),
    "replay": Place("holdfast.cli.job.replay", "app", "Repeats the decisions of a job with other settings."),
    "check": Place("holdfast.cli.check", "app", "Checks whether nodes can be used for training."),
    "nodes": Place("holdfast.cli.nodes", "app", "Lists nodes of all jobs, isolated nodes and lemons."),
    "serve": Place("holdfast.cli.services.serve", "app", "Serves the web page and the API of all jobs."),
    "mcp": Place("holdfast.cli.services.mcp", "app", "Serves jobs to AI agents, read-only (MCP)."),
    "rules": Place("holdfast.cli.services.rules", "app", "Alert rules and dashboards: list, write, lint."),
    "notify": Place(
        "holdfast.cli.services.notify", "app", "Notifications: list channels, test them, explain routing."
    ),
    "signatures": Place(
        "holdfast.cli.signatures", "app", "Lists the known failures, and tests their signatures."
    ),
    "simulate": Place("holdfast.cli.simulate", "app", "Simulates a cluster with the real decision rules."),
    "k8s": Place(
        "holdfast.cli.kubernetes.group", "app", "Kubernetes: wrap manifests, check rights and features."
    ),
    "agent": Place("holdfast.cli.agent", "app", "Runs the agent of one node of a multi-node job."),
    "config": Place("holdfast.cli.config", "app", "Prints each setting and where its value came from."),
    "demo": Place(
        "holdfast.cli.demo", "app", "Runs a small training, injects a fault, and recovers from it."
    ),
}


def exit_code_of(argv: Sequence[str]) -> int:
    """Runs a command line and returns its exit code, also if the caller closed the standard streams."""
    fill_standard_streams()
    return exit_code(list(argv))


def exit_code(words: list[str]) -> int:
    """Runs the command line `words` and returns its exit code; 2 if it cannot be parsed."""
    if len(words) == 1 and words[0] in ("--install-completion", "--show-completion"):
        words = [*words, ""]  # for the user's shell
    name = words[0] if words else "--help"
    known = name in COMMANDS and completion.ENV not in os.environ
    app, rest, title = (
        (_app(name), words[1:], f"holdfast {name}") if known else (_overview(), words, "holdfast")
    )
    gc.freeze()  # what is loaded stays until the end: no collection looks at it, also not the one at exit
    gc.enable()
    try:
        command = app.built(title.rpartition(" ")[2])
        code = command.main(
            args=rest or ([] if known else ["--help"]), prog_name=title, standalone_mode=False
        )
        flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        sys.stderr.write(f"{title}: {_one_line(error)} ({title} --help)\n")
        return USAGE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except JobElsewhere as error:
        return _run_elsewhere(error, words)
    except BrokenPipeError:
        _forget_the_rest()  # the reader closed the pipe
        return 0
    except NotWritten as error:
        sys.stderr.write(f"holdfast: the result cannot be written: {error}\n")
        _forget_the_rest()
        return FAILED


def _run_elsewhere(job: JobElsewhere, words: list[str]) -> int:
    """Runs the same command in the pod of the job's controller."""
    try:
        remote = importlib.import_module("holdfast.supervise.kubernetes.remote")
    except ModuleNotFoundError:
        known = "" if job.name is None else f" job {job.name} may be on a cluster:"
        sys.stderr.write(f"holdfast: {job.why_not_here};{known} pip install 'holdfast[k8s]' to ask there\n")
        return USAGE
    code: int = remote.run_there(job, words, os.environ)
    return code


def _forget_the_rest() -> None:
    """Discards unflushed output after an error, about which Python would otherwise complain once more at
    its exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _app(name: str) -> App:
    place = COMMANDS[name]
    app: App = getattr(importlib.import_module(place.module), place.app)
    return app


def _overview() -> App:
    """Returns the app with all commands and their one-line help; during completion, one command has its
    flags too.
    """
    app = App(help="Keeps a distributed training run going and says why it stopped.")
    app.callback(invoke_without_command=True)(_overall)
    whole = _completed_command()
    for name, place in COMMANDS.items():
        if name == whole:
            app.add(name, _app(name))
        else:
            app.command(name, help=place.help, has_help=False)(_nothing)
    return app


def _completed_command() -> str:
    """Returns the command on the line that a shell asks to complete; empty if there is none."""
    if completion.ENV not in os.environ:
        return ""
    line = os.environ.get(_COMPLETED_ENV, "").split()
    return line[1] if len(line) > 1 else ""


def _overall(
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
    install: Annotated[
        str | None,
        Option("--install-completion", metavar="[SHELL]", help="Install completion for your shell."),
    ] = None,
    show: Annotated[
        str | None,
        Option("--show-completion", metavar="[SHELL]", help="Print the completion script."),
    ] = None,
) -> None:
    if version:
        sys.stdout.write(f"holdfast {__version__}\n")
        raise Exit()
    try:
        if install is not None:
            written = completion.install(install, os.environ, Path.home())
            sys.stdout.write(f"written: {', '.join(map(str, written))}; completion works in new shells\n")
            raise Exit()
        if show is not None:
            sys.stdout.write(completion.script(show, os.environ))
            raise Exit()
    except completion.UnknownShell as error:
        raise BadParameter(str(error), param_hint="the shell") from error
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error


def _nothing() -> None:
    """Stands for a command in the list of commands; the command itself is in its own module."""


def _one_line(error: Exception) -> str:
    """Returns an error of the command line in one line, with the nearest flag if there is one."""
    words = getattr(error, "format_message", error.__str__)()
    near = getattr(error, "possibilities", None)
    if near:
        words = f"{words.partition(' (')[0].partition('Did you mean')[0].strip().rstrip('.')}; did you mean {near[0]}?"
    text = " ".join(str(words).split()).rstrip(".")
    return text[:1].lower() + text[1:]
