"""Documents about the training's output: its files, and pages of lines from them."""

from msgspec import Struct

from holdfast.model.documents.parts import LinePlace


class OutputFile(Struct, frozen=True, kw_only=True):
    """`file`: relative to the job's folder. `rank` None: of the launcher and what is no rank."""

    file: str
    attempt: int
    worker: int
    rank: int | None
    size_bytes: int
    from_s: float | None = None
    to_s: float | None = None


class OutputLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line as it was written, colours and all. `cut_bytes`: left out of a line that is too long."""

    place: LinePlace
    text: str
    at_s: float | None = None
    cut_bytes: int = 0
    first_error: bool = False
    matched: bool = False


class OutputPage(Struct, frozen=True, kw_only=True):
    """Lines of one or several files on one time axis. `before`, `after`: cursors of the pages beside; empty: none.

    `scanned_bytes`: looked at for a pattern so far.
    """

    lines: tuple[OutputLine, ...]
    before: str = ""
    after: str = ""
    scanned_bytes: int = 0
    size_bytes: int = 0


class OutputWanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which lines of a job's output are asked for. Empty or None: all of that kind.

    Where: `cursor`, else `offset` (bytes, of the one `file`), else `at_s`, else the end ("before") or the beginning ("after").
    `direction`: before, after or around. `pattern`: only lines that match, searched forwards.
    """

    file: str = ""
    attempt: int | None = None
    workers: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    cursor: str = ""
    offset: int | None = None
    at_s: float | None = None
    direction: str = "before"
    pattern: str = ""
    limit: int = 200
