"""Parses files of environment variables: one NAME=VALUE per line, with `export`, quotes and # comments.

Pure.
"""

import re
import shlex

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadEnvFile(ValueError):
    """Raised for a line of an environment file that is no variable; the message names the line."""


def env_file(text: str) -> dict[str, str]:
    """Parses a file of environment variables; the last value of a name counts. raises: BadEnvFile"""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip().removeprefix("export ").strip()
        if not words or words.startswith("#"):
            continue
        name, equals, value = words.partition("=")
        if not equals or not NAME.fullmatch(name.strip()):
            raise BadEnvFile(f"line {number} is not NAME=VALUE: {line.strip()[:80]!r}")
        try:
            parts = shlex.split(value, comments=True)
        except ValueError as error:
            raise BadEnvFile(f"line {number}: {error}") from error
        found[name.strip()] = " ".join(parts)
    return found
