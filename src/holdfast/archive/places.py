"""Maps jobs of several state folders to ids for URLs, and ids to folders."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from holdfast.journal.jobdir import NAME, JobDir, NoSuchJob, StateDir

STREAMED = "streamed"
SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SEPARATOR = "~"  # not valid in a job name, and not quoted in a URL


class Place(Struct, frozen=True, kw_only=True):
    """One state folder. `key`: suffix of its job ids; empty for the first folder.

    `source`: shown beside its jobs.
    """

    root: Path
    key: str = ""
    source: str = ""

    def id_of(self, name: str) -> str:
        return f"{name}{SEPARATOR}{self.key}" if self.key else name


class Places:
    """All state folders of a server.

    Jobs of the first folder have their plain names as ids, those of the second NAME~2. Jobs streamed by an
    uplink are in `streamed/SOURCE` of the first folder and have the ids NAME~SOURCE. Sources can appear and
    disappear.
    """

    def __init__(self, roots: Sequence[Path], only: str = "") -> None:
        """Creates the map. `only`: the id of the single visible job; empty means all jobs."""
        found = dict.fromkeys(Path(os.path.abspath(root)) for root in roots)
        self._fixed = tuple(
            Place(root=root, key=str(number), source=str(root)) if number > 1 else Place(root=root)
            for number, root in enumerate(found, 1)
        )
        self.only = only

    @property
    def all(self) -> tuple[Place, ...]:
        """Returns all state folders that exist now."""
        return (*self._fixed, *self._streamed())

    def named(self, job_id: str) -> tuple[Place, JobDir]:
        """Returns the state folder and the job folder for a job id; the latter may be missing.

        Raises NoSuchJob.
        """
        name, separator, key = job_id.partition(SEPARATOR)
        place = next((one for one in self._fixed if one.key == key), None) or self._source(key)
        is_hidden = bool(self.only) and job_id != self.only
        if not NAME.fullmatch(name) or place is None or bool(separator) != bool(key) or is_hidden:
            raise NoSuchJob(f"there is no job {job_id[:200]!r}")
        return place, JobDir(place.root / "jobs" / name)

    def job(self, job_id: str) -> JobDir:
        """Returns the folder of an existing job. Raises NoSuchJob."""
        place, job = self.named(job_id)
        return StateDir(place.root).job(job.name)

    def shows(self, place: Place, name: str) -> bool:
        return not self.only or place.id_of(name) == self.only

    @property
    def signature(self) -> str:
        """Returns a text that is equal for the same folders in the same order."""
        return "\n".join([*(str(place.root) for place in self._fixed), self.only])

    def _streamed(self) -> list[Place]:
        try:
            names = sorted(os.listdir(self._fixed[0].root / STREAMED))
        except OSError:
            return []
        return [place for name in names if (place := self._source(name)) is not None]

    def _source(self, name: str) -> Place | None:
        """Returns the state folder of a streaming source; None if there is none.

        A number is the key of a local folder.
        """
        if not SOURCE.fullmatch(name) or name.isdigit():
            return None
        root = self._fixed[0].root / STREAMED / name
        return Place(root=root, key=name, source=name) if root.is_dir() else None
