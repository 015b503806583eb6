"""Reads the requested output of a job from its folder on this host."""

from collections.abc import Mapping

from holdfast.archive.output.log_files import Selection, log_files
from holdfast.archive.output.pages import Start, page
from holdfast.archive.output.patterns import compiled
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.output import OutputFile, OutputPage, OutputWanted


def read_files(job: JobDir) -> tuple[OutputFile, ...]:
    return tuple(log.document() for log in log_files(job))


def read_output(job: JobDir, wanted: OutputWanted, marked: Mapping[str, int] | None = None) -> OutputPage:
    """Returns a page of a job's output. `marked`: offsets of first errors by file.

    Raises BadPattern, BadCursor and TooManyFiles; all are ValueErrors with a message for users.
    """
    logs = log_files(
        job,
        Selection(
            file=wanted.file or None,
            attempt=wanted.attempt,
            workers=wanted.workers or None,
            ranks=wanted.ranks or None,
        ),
    )
    if wanted.direction not in ("before", "after", "around"):
        raise ValueError(f"direction must be before, after or around, not {wanted.direction!r}")
    start = Start(
        direction="after" if wanted.pattern and not wanted.cursor else wanted.direction,  # type: ignore[arg-type]
        cursor=wanted.cursor,
        offset=wanted.offset if wanted.file else None,
        at_s=wanted.at_s,
        limit=wanted.limit,
    )
    return page(logs, start, pattern=compiled(wanted.pattern) if wanted.pattern else None, marked=marked)
