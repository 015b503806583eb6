"""The `holdfast` command: finds the module of the command asked for, and turns its end into an exit code.

Each command lives in its own module, which is imported only when that command is asked for: help must not
wait for what a simulation needs. Reads no settings and does nothing itself.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

import typer

from holdfast import __version__
from holdfast.cli.standard_streams import fill_standard_streams

USAGE = 2
INTERRUPTED = 130
_COMPLETE_ENV = "_HOLDFAST_COMPLETE"
_COMPLETED_ENVS = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")  # the line so far: of bash; of zsh, fish and others
# The class of all complaints about the command line. Its module has moved between versions of typer, its place
# above BadParameter has not.
_COMPLAINT: type[Exception] = typer.BadParameter.__mro__[2]


class Place(NamedTuple):
    """Where a command lives, and what it says of itself."""

    module: str
    app: str
    help: str


COMMANDS = {
    "run": Place("holdfast.cli.run_command", "run_app", "Runs a training command and keeps it going."),
    "attach": Place("holdfast.cli.run_command", "attach_app", "Takes up a job whose Holdfast is gone."),
    "status": Place("holdfast.cli.record_commands", "status_app", "What a job does now, on one screen."),
    "log": Place("holdfast.cli.record_commands", "log_app", "The fault-tolerance log of a job."),
    "logs": Place("holdfast.cli.logs_command", "app", "The training's output, of all workers and attempts."),
    "stacks": Place(
        "holdfast.cli.stacks_command", "app", "Where the ranks of a running job are in their code."
    ),
    "exec": Place("holdfast.cli.exec_command", "app", "Runs a command beside a running job, on its workers."),
    "shell": Place("holdfast.cli.shell_command", "app", "A terminal beside the training of one worker."),
    "diagnose": Place(
        "holdfast.cli.diagnose_command", "app", "Why a job stopped, from whatever it left behind."
    ),
    "steps": Place("holdfast.cli.steps_command", "app", "How long steps take, and whether it became slower."),
    "check": Place("holdfast.cli.check_command", "app", "Whether machines are fit for a training."),
    "nodes": Place(
        "holdfast.cli.nodes_command", "app", "The nodes over all jobs: isolated ones, lemons, their history."
    ),
    "signatures": Place("holdfast.cli.signatures_command", "app", "The known failures, and proof of them."),
    "simulate": Place(
        "holdfast.cli.simulate_command", "app", "Runs the real decisions over a virtual cluster."
    ),
    "agent": Place("holdfast.cli.agent_command", "app", "One node's end of a job on many nodes."),
    "config": Place(
        "holdfast.cli.config_command", "app", "Prints each setting and where its value came from."
    ),
    "demo": Place("holdfast.cli.demo_command", "app", "A small training, a fault, and what Holdfast does."),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and leaves with its exit code."""
    fill_standard_streams()
    sys.exit(exit_code(list(sys.argv[1:] if argv is None else argv)))


def exit_code(words: list[str]) -> int:
    """Runs the command line; 2 when it cannot be understood."""
    name = words[0] if words else "--help"
    known = name in COMMANDS and _COMPLETE_ENV not in os.environ
    app, rest, title = (
        (_app(name), words[1:], f"holdfast {name}") if known else (_overview(), words, "holdfast")
    )
    try:
        command = typer.main.get_command(app)
        code = command.main(
            args=rest or ([] if known else ["--help"]), prog_name=title, standalone_mode=False
        )
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except _COMPLAINT as error:
        sys.stderr.write(f"{title}: {_one_line(error)} ({title} --help)\n")
        return USAGE
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the result has enough. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _app(name: str) -> typer.Typer:
    place = COMMANDS[name]
    app: typer.Typer = getattr(importlib.import_module(place.module), place.app)
    return app


def _overview() -> typer.Typer:
    """All commands with their one-line help. When a shell completes a line, the one on it has its flags too."""
    app = typer.Typer(
        rich_markup_mode=None,
        no_args_is_help=False,
        help="Keeps a distributed training run going and says why it stopped.",
    )
    app.callback(invoke_without_command=True)(_version)
    whole = _completed_command()
    for name, place in COMMANDS.items():
        if name == whole:
            _add_whole(app, name)
        else:
            app.command(name, help=place.help, add_help_option=False)(_nothing)
    return app


def _completed_command() -> str:
    """The command on the line that a shell wants completed; empty when it wants nothing."""
    if _COMPLETE_ENV not in os.environ:
        return ""
    line = next((os.environ[name] for name in _COMPLETED_ENVS if name in os.environ), "").split()
    return line[1] if len(line) > 1 else ""


def _add_whole(app: typer.Typer, name: str) -> None:
    """With its flags, or with the commands below it."""
    own = _app(name)
    if own.registered_callback:
        app.add_typer(own, name=name)
        return
    info = own.registered_commands[0]
    info.name = name
    app.registered_commands.append(info)


def _version(
    version: bool = typer.Option(False, "--version", help="Print the version and leave.", is_eager=True),
) -> None:
    if version:
        sys.stdout.write(f"holdfast {__version__}\n")
        raise typer.Exit()


def _nothing() -> None:
    """Stands for a command in the overview; the command itself is in its own module."""


def _one_line(error: Exception) -> str:
    """The complaint in one line, with the nearest flag if there is one."""
    words = getattr(error, "format_message", error.__str__)()
    near = getattr(error, "possibilities", None)
    if near:
        words = f"{words.partition(' (')[0].partition('Did you mean')[0].strip()}; did you mean {near[0]}?"
    text = " ".join(str(words).split()).rstrip(".")
    return text[:1].lower() + text[1:]
