"""Where the `holdfast` command begins: imports nothing that takes long, so that Ctrl-C ends it without a word at once."""

import importlib
import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and leaves with its exit code."""
    try:
        command_line = importlib.import_module("holdfast.cli.line.command_line")
        code = command_line.exit_code_of(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:  # before the command was there
        code = INTERRUPTED
    sys.exit(code)
