"""Defines the flight records and stack dumps of a job, from files: the input of the search for blocking
ranks.
"""

from msgspec import Struct

from holdfast.model.flight.digests import Digest
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.matches import Skipped
from holdfast.model.signatures import Words


class RecordFile(Struct, frozen=True):
    """The file that holds a rank's flight record."""

    rank: int
    file: str


class FoundStacks(Struct, frozen=True):
    """The stacks of a rank that were found in a dump file."""

    file: str
    stacks: RankStacks


class FlightScene(Struct, frozen=True, kw_only=True):
    """The flight records and stacks of one job. By rank, each at most once in `digests` and `records`.

    `stacks` may contain a rank once for each source. `notes`: irregularities. `skipped`: unreadable files
    that look like records, and why.
    """

    digests: tuple[Digest, ...] = ()
    records: tuple[RecordFile, ...] = ()
    stacks: tuple[FoundStacks, ...] = ()
    notes: tuple[Words, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    usual_bytes: frozenset[int] = frozenset()  # sizes of collectives while the job was healthy; live only
    world_size: int | None = None  # live only
    files: int = 0
    size_bytes: int = 0
