"""Defines the entry point of the `holdfast` command. Imports nothing slow, so that Ctrl-C works at once."""

import gc
import importlib
import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and exits with its exit code.

    Imports create hundreds of thousands of objects that all stay. To search them for garbage again and again takes a
    quarter of the start, so collection begins once the command is loaded (`command_line`).

    An agent on a node starts without the command line: it runs beside the training, and is to be small.
    """
    words = sys.argv[1:] if argv is None else argv
    gc.disable()
    try:
        if list(words) == ["agent"]:
            importlib.import_module("holdfast.cli.agent_main").main()
        command_line = importlib.import_module("holdfast.cli.line.command_line")
        code = command_line.exit_code_of(words)
    except KeyboardInterrupt:  # before the command was there
        code = INTERRUPTED
    sys.exit(code)
