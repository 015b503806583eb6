"""Reads the files of one incident: stacks, flight records, kernel log and the lines around its evidence.

It reads the folder of the attempt if it exists, otherwise the evidence bundle. Sizes are limited. If a file is too
large, missing or damaged, only the part of the document that needs it is missing.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from holdfast.archive.lines_around import surroundings
from holdfast.core.flight.gather import gather
from holdfast.core.flight.graph import waits
from holdfast.core.flight.words import team_name
from holdfast.core.hang.stack_groups import grouped
from holdfast.core.job.story import IncidentStory
from holdfast.journal.jobdir import JobDir
from holdfast.model.documents.incidents import EvidenceRow, StackGroup, WaitEdge
from holdfast.model.documents.parts import Who
from holdfast.model.flight.digests import Digest
from holdfast.model.flight.thread_stacks import RankStacks
from holdfast.model.state import HangFault
from holdfast.observe.logs.bundles import read_member
from holdfast.observe.processes.flight_files import read_scene as read_flights
from holdfast.views.jobs.seen import Scene, Surroundings

STACKS, KERNEL = "hang-stacks.json", "kernel.log"
STACKS_BYTES_MAX = 16 << 20
KERNEL_BYTES_MAX = 1 << 20
FLIGHT_BYTES_MAX = 64 << 20  # of all records together
WORKERS_MAX, RECORDS_MAX = 256, 1_024
GROUPS_MAX, FRAMES_MAX, EDGES_MAX, KERNEL_LINES_MAX = 64, 60, 64, 64
WITH_WAITS = frozenset({"communication", "performance"})
FLIGHTS = (
    "rank-*.flight-live.pickle",
    "rank-*.flight.pickle",
    "rank-*.flight-2.pickle",
    "rank-*.groups.json",
)


def bundle_of(job: JobDir, incident: int) -> Path:
    """Returns the path of the incident's evidence bundle, which may not exist."""
    return job.incidents / f"incident-{incident:03d}.tar.zst"


def read_scene(job: JobDir, incident: IncidentStory) -> Scene:
    """Returns what the incident's files contain now."""
    bundle = bundle_of(job, incident.number)
    has_bundle = bundle.is_file()
    folders = _folders(job, incident.attempt)
    collected = [one for folder in folders for one in _stacks(folder)]
    edges: tuple[WaitEdge, ...] = ()
    if _may_have_waits(incident):
        flights = read_flights(_flight_files(folders) or ([bundle] if has_bundle else []))
        edges = wait_edges(flights.digests)
        collected = collected or [one.stacks for one in flights.stacks if one.stacks.threads]
    return Scene(
        stacks=stack_groups(collected),
        waits=edges,
        kernel=tuple(_kernel(folders, bundle if has_bundle else None, incident)),
        has_bundle=has_bundle,
        surroundings=_surroundings(job, incident),
    )


def stack_groups(collected: Sequence[RankStacks]) -> tuple[StackGroup, ...]:
    """Returns groups of ranks with equal stacks, the smallest group first."""
    return tuple(
        StackGroup(ranks=one.ranks, frames=one.frames[:FRAMES_MAX], waits_in=one.wait_channel or one.doing)
        for one in grouped(collected)[:GROUPS_MAX]
    )


def wait_edges(digests: Sequence[Digest]) -> tuple[WaitEdge, ...]:
    """Returns the wait-for graph of the ranks. Ranks that wait in the same operation form one edge."""
    if not digests:
        return ()
    found = waits(gather(digests, None), {})
    edges = []
    for one in found.awaited[:EDGES_MAX]:
        first = found.first.get(one.waiters[0]) if one.waiters else None
        edges.append(
            WaitEdge(
                ranks=tuple(sorted(one.waiters)),
                awaits=tuple(sorted(one.next_ranks)),
                collective=first.kind if first is not None else "",
                sequence=one.sequence or None,
                group=team_name(one.team),
            )
        )
    return tuple(edges)


def _may_have_waits(incident: IncidentStory) -> bool:
    verdict = incident.verdict
    is_hang = any(isinstance(fault, HangFault) for fault in incident.faults)
    return is_hang or (verdict is not None and verdict.class_ in WITH_WAITS)


def _folders(job: JobDir, attempt: int) -> list[Path]:
    try:
        found = [path for path in job.attempt(attempt).iterdir() if path.name.startswith("worker-")]
    except OSError:
        return []
    return sorted(found)[:WORKERS_MAX]


def _stacks(folder: Path) -> Iterator[RankStacks]:
    content = _content(folder / STACKS, STACKS_BYTES_MAX)
    if content is not None:
        with suppress(msgspec.MsgspecError):
            yield from msgspec.json.decode(content, type=tuple[RankStacks, ...])


def _flight_files(folders: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    left_bytes = FLIGHT_BYTES_MAX
    for folder in folders:
        for pattern in FLIGHTS:
            with suppress(OSError):
                for path in sorted(folder.glob(pattern)):
                    left_bytes -= path.stat().st_size
                    if left_bytes < 0 or len(found) >= RECORDS_MAX:
                        return found
                    found.append(path)
    return found


def _kernel(folders: Iterable[Path], bundle: Path | None, incident: IncidentStory) -> Iterator[EvidenceRow]:
    """Yields the kernel log lines that the node's agent or the bundle kept."""
    parts = [
        (folder, content) for folder in folders if (content := _content(folder / KERNEL, KERNEL_BYTES_MAX))
    ]
    lines: list[tuple[str | None, str]] = []
    for folder, content in parts:
        number = folder.name.removeprefix("worker-")
        node = incident.nodes.get(int(number)) if number.isdigit() else None
        lines += [(node, line) for line in _lines(content)]
    if not lines and bundle is not None:
        only = next(iter(incident.nodes.values()), None) if len(incident.nodes) == 1 else None
        content = read_member(bundle, KERNEL, bytes_max=KERNEL_BYTES_MAX)
        lines = [(only, line) for line in _lines(content or b"")]
    for place, (node, line) in enumerate(lines[-KERNEL_LINES_MAX:], 1):
        who = Who(node=node) if node else None
        yield EvidenceRow(id=f"{incident.number}.k{place}", text=line, kind="kernel", who=who)


def _lines(content: bytes) -> list[str]:
    return [line for line in content.decode("utf-8", "replace").splitlines() if line.strip()]


def _surroundings(job: JobDir, incident: IncidentStory) -> dict[tuple[str, str], Surroundings]:
    """Returns the lines around the first error, by file and text of the line; empty if the line is no
    longer there.
    """
    first = incident.verdict.first_error if incident.verdict is not None else None
    if first is None or not first.file:
        return {}
    found = surroundings(job.path, first.file, first.text, first.offset)
    return {} if found is None else {(first.file, first.text): found}


def _content(path: Path, bytes_max: int) -> bytes | None:
    try:
        with path.open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError:
        return None
    return content if len(content) <= bytes_max else None
