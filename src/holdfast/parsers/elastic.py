"""Parses what torchrun reports about failed ranks: its table and its log line. Pure; never raises on its input.

At the end of torchrun's output, in this order, the root cause last:

    train.py FAILED
    ------------------------------------------------------------
    Failures:
    [1]:
      time      : 2026-11-20_21:45:36
      host      : gpu-03
      rank      : 0 (local_rank: 0)
      exitcode  : -15 (pid: 13724)  (SIGTERM)
      error_file: <N/A>
      traceback : Signal 15 (SIGTERM) received by PID 13724
    ------------------------------------------------------------
    Root Cause (first observed failure):
    [0]:
      time      : 2026-11-20_21:45:36
      ...

source: torch, distributed/elastic/multiprocessing/errors/__init__.py
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from holdfast.late_pattern import late

ROWS_MAX = 4096
HEAD = late(r"(?P<root>Root Cause \(first observed failure\):)|(?P<rest>(?:Other )?Failures:\s*$)")
FIELD = late(r"\b(?P<name>time|host|rank|exitcode|error_file|traceback) *: (?P<value>.*)")
RANK = late(r"(?P<rank>\d{1,9}) \(local_rank: (?P<local>\d{1,9})\)")
CODE = late(r"(?P<code>-?\d{1,9}) +\(pid: (?P<pid>\d{1,9})\)")
FAILED = late(
    r"failed \(exitcode: (?P<code>-?\d{1,9})\) local_rank: (?P<local>\d{1,9}) \(pid: (?P<pid>\d{1,9})\)"
)
TABLE_END = late(r"={10,}")


class RankFailure(Struct, frozen=True, kw_only=True):
    """One rank in torchrun's failure table.

    `time`: as written, in the local time of the host. `line`: number of the line of the log with the rank, from 0.
    """

    rank: int
    local_rank: int
    code: int
    pid: int
    is_root: bool
    host: str = ""
    time: str = ""
    error_file: str = ""
    line: int


class FailedLine(Struct, frozen=True, kw_only=True):
    """The launcher's log line on its first failure: "failed (exitcode: -9) local_rank: 2 (pid: 123) of
    binary: python".
    """

    local_rank: int
    pid: int
    code: int
    line: int


class Row(Struct):
    """A row of torchrun's table of failures while it is parsed, with its fields as written."""

    is_root: bool
    fields: dict[str, str]
    line: int = 0


def failure_table(lines: Iterable[bytes]) -> tuple[RankFailure, ...]:
    """Returns the ranks in the last failure table, its root cause first; empty without a table."""
    rows: list[Row] = []
    is_root: bool | None = None  # None: outside of a table
    for number, raw in enumerate(lines):
        if is_root is None and b"Failures:" not in raw and b"Root Cause" not in raw:
            continue
        text = raw.decode("utf-8", "replace").rstrip()
        if head := HEAD.search(text):
            rows = rows if head["root"] else []  # another table: that of the last attempt counts
            is_root = bool(head["root"])
        elif is_root and TABLE_END.search(text):
            is_root = None
        elif is_root is not None and (field := FIELD.search(text)):
            _take(rows, field, is_root=is_root, number=number)
    failures = [failure for row in rows if (failure := _failure(row)) is not None]
    return tuple(sorted(failures, key=lambda failure: not failure.is_root))


def failed_lines(lines: Iterable[bytes]) -> tuple[FailedLine, ...]:
    """Returns every log line in which torchrun reports a failure: one for each node of each attempt."""
    found = [
        (number, match)
        for number, raw in enumerate(lines)
        if b"failed (exitcode" in raw and (match := FAILED.search(raw.decode("utf-8", "replace")))
    ]
    return tuple(
        FailedLine(
            local_rank=int(match["local"]), pid=int(match["pid"]), code=int(match["code"]), line=number
        )
        for number, match in found[:ROWS_MAX]
    )


def _take(rows: list[Row], field: re.Match[str], *, is_root: bool, number: int) -> None:
    """Adds a field to the rows.

    A row begins with its time; text quoted in its traceback is no second field.
    """
    if field["name"] == "time" and len(rows) < ROWS_MAX:
        rows.append(Row(is_root=is_root, fields={}))
    if not rows or field["name"] in rows[-1].fields:
        return
    rows[-1].fields[field["name"]] = field["value"].strip()
    if field["name"] == "rank":
        rows[-1].line = number


def _failure(row: Row) -> RankFailure | None:
    rank = RANK.match(row.fields.get("rank", ""))
    code = CODE.match(row.fields.get("exitcode", ""))
    if not rank or not code:
        return None
    file = row.fields.get("error_file", "")
    return RankFailure(
        rank=int(rank["rank"]),
        local_rank=int(rank["local"]),
        code=int(code["code"]),
        pid=int(code["pid"]),
        is_root=row.is_root,
        host=row.fields.get("host", ""),
        time=row.fields.get("time", ""),
        error_file="" if file == "<N/A>" else file,
        line=row.line,
    )
