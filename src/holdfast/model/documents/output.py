"""Defines the documents of the training's output: its files, and pages of their lines."""

from msgspec import Struct

from holdfast.model.documents.parts import LinePlace


class OutputFile(Struct, frozen=True, kw_only=True):
    """An output file of the training.

    `file`: relative to the job's folder. `rank`: None for the launcher's or a shared file.
    """

    file: str
    attempt: int
    worker: int
    rank: int | None
    size_bytes: int
    from_s: float | None = None
    to_s: float | None = None


class OutputLine(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of output with its original control characters.

    `cut_bytes`: omitted from a line that is too long.
    """

    place: LinePlace
    text: str
    at_s: float | None = None
    cut_bytes: int = 0
    first_error: bool = False
    matched: bool = False


class OutputPage(Struct, frozen=True, kw_only=True):
    """A page of output lines, of one or several files in order of time.

    `before`, `after`: cursors of the adjacent pages; empty if there are none. `scanned_bytes`: bytes searched
    so far for a pattern.
    """

    lines: tuple[OutputLine, ...]
    before: str = ""
    after: str = ""
    scanned_bytes: int = 0
    size_bytes: int = 0


class OutputWanted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A selection of lines of a job's output. Empty or None: no restriction.

    The first of these that is set applies: `cursor`, `offset` (bytes, of the single `file`), `at_s`; default: the end
    ("before") or the beginning ("after"). `direction`: before, after or around. `pattern`: only matching lines;
    searches forwards.
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
