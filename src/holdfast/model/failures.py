"""Defines the evidence on a failed attempt: ends of ranks, their errors, other evidence. No behaviour."""

from msgspec import Struct

from holdfast.model.samples import Hang


class RankExit(Struct, frozen=True, kw_only=True):
    """The end of one rank. `code`: -N for signal N, 128 + N from a shell; None if unknown."""

    rank: int
    worker: int = 0
    pid: int = 0
    code: int | None = None
    at_s: float


class LauncherWord(Struct, frozen=True, kw_only=True):
    """A log line in which a launcher reports the end of a process that it started.

    `rank`: None if only its `pid` is given (0 if not). `code`: -N for signal N; None if not given. `at_s`:
    when the line was read. `text`, `file`: the line, and its log.
    """

    rank: int | None = None
    worker: int = 0
    pid: int = 0
    code: int | None = None
    at_s: float
    text: str = ""
    file: str = ""


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """An uncaught exception, recorded inside a rank or found in a log. None if unknown.

    `frame`: the innermost line of the user's code, "path/of/train.py:88 step". `file` and `line`: its
    position in the logs.
    """

    rank: int | None = None
    worker: int | None = None
    type: str
    message: str = ""
    frame: str = ""
    file: str = ""
    line: int | None = None
    at_s: float | None = None


class Failure(Struct, frozen=True, kw_only=True):
    """All evidence on a failed attempt. Every field may be empty.

    `elastic`: torchrun's failure table, its root cause first. `oom`: kernel messages on OOM kills, with pids,
    and with "cgroup" if a cgroup's memory was exhausted. `lost_nodes`, `devices`: names, for people. `left`:
    ranks that began an orderly exit, and when. `output_full`: the output folder on a full disk.
    `launcher_words`: launchers' reports on their processes, in the order of the lines.
    """

    exits: tuple[RankExit, ...] = ()  # in order of time
    command_code: int | None = None
    command_error: str = ""  # why the command could not be started
    errors: tuple[ErrorRecord, ...] = ()
    tracebacks: tuple[ErrorRecord, ...] = ()
    elastic: tuple[RankExit, ...] = ()
    oom: tuple[str, ...] = ()
    hang: Hang | None = None
    stop_requested: bool = False
    devices: tuple[str, ...] = ()
    lost_nodes: tuple[str, ...] = ()
    left: tuple[RankExit, ...] = ()
    output_full: str = ""
    launcher_words: tuple[LauncherWord, ...] = ()
