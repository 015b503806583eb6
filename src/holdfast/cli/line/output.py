"""Output of commands: results to stdout, messages to stderr. Light, since every command imports it."""

import sys

import msgspec

from holdfast.cli.line.standard_streams import NotWritten, flush


def say(text: str) -> None:
    """To stderr, where our own words go."""
    sys.stderr.write(f"holdfast: {text}\n")


def put(text: str, *, now: bool = False) -> None:
    """A line of the result, to stdout. `now`: somebody waits for it. raises: NotWritten, BrokenPipeError"""
    try:
        sys.stdout.write(f"{text}\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise NotWritten(str(error)) from error
    if now:
        flush()


def put_json(value: object) -> None:
    """One JSON document."""
    put(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def put_json_line(value: object, *, now: bool = False) -> None:
    """One of many JSON documents, each in a line of its own."""
    put(msgspec.json.encode(value).decode(), now=now)
