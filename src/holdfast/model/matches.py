"""Defines the results of a search in logs: matches of signatures with position, writer and time, and data on each
log.
"""

from collections.abc import Mapping

from msgspec import Struct

# Dates assigned to time stamps without a year, or without a date: far from each other and from real ones.
YEAR_UNKNOWN = 2000  # a leap year, which has a 29th of February
DAY_UNKNOWN_S = 7305 * 86400.0  # 1990-01-01
ASSUMED_DATES_S = ((DAY_UNKNOWN_S, DAY_UNKNOWN_S + 2 * 86400.0), (10957 * 86400.0, 11323 * 86400.0))


class Writer(Struct, frozen=True, kw_only=True):
    """The writer of a log line, as far as the line and its file's name show. None if unknown.

    `local_rank`: a rank within its worker, if only that is known ("[default3]:"). `device`: a GPU's index as
    NCCL prints it, or a PCI address. `stamp_s`: in seconds since the epoch on the writer's own clock; a time
    stamp without date or zone counts as UTC, one since boot (`[ 12.3]`) is `uptime_s`.
    """

    rank: int | None = None
    local_rank: int | None = None
    worker: int | None = None
    host: str | None = None
    device: str | None = None
    pid: int | None = None
    stamp_s: float | None = None
    uptime_s: float | None = None


NO_WRITER = Writer()


class Source(Struct, frozen=True, kw_only=True):
    """One log that was read.

    `name`: relative to the path that the user named; a member of an archive is
    "logs.tar.gz/worker-0/rank-1.log". `writer`: as the file's name shows. Offsets are in bytes of the text.
    `last_step_offset`: start of the last line of training progress; None if the examined part has none.
    `last_steps_offset`: start of the last few such lines; None if there are fewer, or if unknown.
    `last_three_steps_offset`: the same for the last three. `counts_on_offset`: start of the last four lines
    that count upwards in an unknown form; not computed for logs without matches. `is_finished`: that line
    shows the last step of all ("10/10"). `tail`: its last lines, without colours of prefixes, at most 40.
    """

    name: str
    size_bytes: int = 0
    writer: Writer = NO_WRITER
    last_step_offset: int | None = None
    last_steps_offset: int | None = None
    last_three_steps_offset: int | None = None
    counts_on_offset: int | None = None
    is_finished: bool = False
    tail: tuple[str, ...] = ()


class Likeness(Struct, frozen=True, kw_only=True):
    """The signature that a line would match if the line included its exception's type, and the captures of that
    match.
    """

    signature: str
    captures: Mapping[str, str] = {}


class Match(Struct, frozen=True, kw_only=True):
    """A match of a signature on one log line. `source`: index of the Source. `line` counts from 1.

    `count`: occurrences of the same text (ignoring numbers) in this source; this is the first. `last_offset`:
    of the last one. `frame`: the user's own line in the traceback that this line ends ("train.py:88 main"),
    `error_type`: its exception, `outermost`: its first frame, `innermost`: the frame that raised. `known_as`:
    for a program's last line, the error that it seems to report. `record`: further lines that belong to it.
    """

    signature: str
    category: str
    source: int
    offset: int
    line: int
    text: str
    captures: Mapping[str, str] = {}
    writer: Writer = NO_WRITER
    count: int = 1
    last_offset: int = 0
    frame: str = ""
    error_type: str = ""
    outermost: str = ""
    innermost: str = ""
    known_as: Likeness | None = None
    record: tuple[str, ...] = ()


class Skipped(Struct, frozen=True, kw_only=True):
    """A file that was not read, or not completely, with the reason for people.

    `lost`: information about the job is missing; a file that is no log, or is read under another name, is no
    loss.
    """

    name: str
    why: str
    lost: bool = False


class Search(Struct, frozen=True, kw_only=True):
    """All results of a search in logs. `matches`: ordered by source and offset."""

    sources: tuple[Source, ...] = ()
    matches: tuple[Match, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    bytes_read: int = 0
