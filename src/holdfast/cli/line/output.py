"""Prints results of commands to stdout and messages to stderr.

Imports little, since every command imports it.
"""

import sys

import msgspec

from holdfast.cli.line.standard_streams import NotWritten, flush


def say(text: str) -> None:
    """Prints a message to stderr."""
    sys.stderr.write(f"holdfast: {text}\n")


def put(text: str, *, now: bool = False) -> None:
    """Prints a line of the result to stdout. `now`: flush at once. Raises NotWritten and BrokenPipeError."""
    try:
        sys.stdout.write(f"{text}\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NotWritten(str(error)) from error
    if now:
        flush()


def put_json(value: object) -> None:
    """Prints a JSON document, indented."""
    put(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def put_json_line(value: object, *, now: bool = False) -> None:
    """Prints a JSON document on one line."""
    put(msgspec.json.encode(value).decode(), now=now)
