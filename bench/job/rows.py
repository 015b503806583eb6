"""Collects the rows of a bench that runs for hours: each row is in a file as soon as it is measured."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

Row = dict[str, object]


def collected(rows: Iterable[Row], path: Path) -> list[Row]:
    """Returns the rows. Each is appended to the file, as a line of JSON, and printed to stderr when it arrives."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = []
    for row in rows:
        line = json.dumps(row)
        with path.open("a") as out:
            out.write(f"{line}\n")
        print(line, file=sys.stderr, flush=True)
        found.append(row)
    return found
