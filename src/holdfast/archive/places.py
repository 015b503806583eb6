"""Names the jobs of several state folders: an id for addresses, and the folder that an id stands for."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from holdfast.journal.jobdir import NAME, JobDir, NoSuchJob, StateDir

SEPARATOR = "~"  # in no name of a job, and not quoted in an address
KEY_LETTERS = 6


class Place(Struct, frozen=True, kw_only=True):
    """One state folder. `key`: ends the ids of its jobs; empty: of the first folder. `source`: shown beside its jobs."""

    root: Path
    key: str = ""
    source: str = ""

    def id_of(self, name: str) -> str:
        return f"{name}{SEPARATOR}{self.key}" if self.key else name


class Places:
    """All state folders of a server, the first one's jobs under their plain names."""

    def __init__(self, roots: Sequence[Path]) -> None:
        places = list[Place]()
        for root in dict.fromkeys(Path(os.path.abspath(root)) for root in roots):
            places.append(_further(root) if places else Place(root=root))
        self.all = tuple(places)

    def named(self, job_id: str) -> tuple[Place, JobDir]:
        """The folder need not exist. raises: NoSuchJob"""
        name, separator, key = job_id.partition(SEPARATOR)
        place = next((one for one in self.all if one.key == key), None)
        if not NAME.fullmatch(name) or place is None or bool(separator) != bool(key):
            raise NoSuchJob(f"there is no job {job_id[:200]!r}")
        return place, JobDir(place.root / "jobs" / name)

    def job(self, job_id: str) -> JobDir:
        """The folder of an existing job. raises: NoSuchJob"""
        place, job = self.named(job_id)
        return StateDir(place.root).job(job.name)

    @property
    def signature(self) -> str:
        """The same for the same folders in the same order."""
        return "\n".join(str(place.root) for place in self.all)


def _further(root: Path) -> Place:
    key = hashlib.sha256(os.fsencode(root)).hexdigest()[:KEY_LETTERS]
    return Place(root=root, key=key, source=str(root))
