"""Prepares the standard streams of a process whose caller may have closed them."""

import io
import os
import sys


class NotWritten(Exception):
    """Raised when the result of a command cannot be written, usually because a disk is full."""


def fill_standard_streams() -> None:
    """Opens the standard streams that are closed (descriptors 0, 1 and 2), because otherwise the next opened file
    would get their numbers.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(number)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)
    stdout = (
        sys.stdout
    )  # a training's words are quoted, in whatever script: what a terminal lacks is a question mark
    if isinstance(stdout, io.TextIOWrapper) and stdout.errors == "strict":
        stdout.reconfigure(errors="replace")


def flush() -> None:
    """Flushes stdout. Raises NotWritten and BrokenPipeError."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NotWritten(str(error)) from error
