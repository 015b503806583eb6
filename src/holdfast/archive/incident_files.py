"""Reads what files hold of one incident beside the journal: stacks, flight records, kernel lines, the bundle. Bounded.

From the folder of the attempt while it is there, else from the evidence bundle.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.core.hang.stack_groups import grouped
from holdfast.core.job.story import IncidentStory
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.incidents import StackGroup
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.views.jobs.seen import Scene

STACKS = "hang-stacks.json"
STACKS_BYTES_MAX = 16 << 20
WORKERS_MAX, GROUPS_MAX, FRAMES_MAX = 256, 64, 60


def bundle_of(job: JobDir, incident: int) -> Path:
    """Where the evidence of an incident lies, if it was kept."""
    return job.incidents / f"incident-{incident:03d}.tar.zst"


def read_scene(job: JobDir, incident: IncidentStory) -> Scene:
    """What there is. A file that is missing or damaged costs its part and nothing else."""
    collected = list(_stacks(job, incident.attempt))
    return Scene(stacks=_groups(collected), has_bundle=bundle_of(job, incident.number).is_file())


def _groups(collected: Sequence[RankStacks]) -> tuple[StackGroup, ...]:
    return tuple(
        StackGroup(ranks=one.ranks, frames=one.frames[:FRAMES_MAX], waits_in=one.wait_channel or one.doing)
        for one in grouped(collected)[:GROUPS_MAX]
    )


def _stacks(job: JobDir, attempt: int) -> Iterator[RankStacks]:
    with suppress(OSError):
        for folder in sorted(job.attempt(attempt).glob("worker-*"))[:WORKERS_MAX]:
            with suppress(OSError, msgspec.MsgspecError):
                with (folder / STACKS).open("rb") as file:
                    content = file.read(STACKS_BYTES_MAX + 1)
                if len(content) <= STACKS_BYTES_MAX:
                    yield from msgspec.json.decode(content, type=tuple[RankStacks, ...])
