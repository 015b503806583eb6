"""Flight records and stack dumps of a job, read offline: the input of the search for blocking ranks. No behaviour."""

from msgspec import Struct

from holdfast.model.flight.digests import Digest
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.matches import Skipped
from holdfast.model.signatures import Words


class RecordFile(Struct, frozen=True):
    """The file of a rank's record, among the named files."""

    rank: int
    file: str


class FoundStacks(Struct, frozen=True):
    """A rank's threads in a dump file."""

    file: str
    stacks: RankStacks


class FlightScene(Struct, frozen=True, kw_only=True):
    """One job. By rank, each at most once in `digests` and `records`; `stacks` may have a rank once for each source.

    `notes`: oddities. `skipped`: files that look like records and could not be read, and why.
    """

    digests: tuple[Digest, ...] = ()
    records: tuple[RecordFile, ...] = ()
    stacks: tuple[FoundStacks, ...] = ()
    notes: tuple[Words, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    usual_bytes: frozenset[int] = frozenset()  # sizes of collectives while all was well; live only
    world_size: int | None = None  # live only
    files: int = 0
    size_bytes: int = 0
