"""Reads where the ranks of a job are placed: its groups and flight records, its nodes, and its running ranks on this
machine. Read-only.
"""

import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.archive.heard import Heard
from holdfast.core.placement.judge import judged
from holdfast.core.placement.roles import role_groups
from holdfast.jobs.record import RecordUnreadable, open_record
from holdfast.jobs.running_ranks import NotRunning, RunningJob, running_job
from holdfast.journal.jobdir import JobDir
from holdfast.model.flight.records import FlightRecord, Group
from holdfast.model.runs.placement import GpuUse, Placement, RankPlace
from holdfast.observe.host.rank_places import ProcessPlace, process_place
from holdfast.observe.logs.tree import find, opened
from holdfast.observe.processes.flight_files import SceneReader
from holdfast.parsers.topology import switches_of

SLURM_TOPOLOGY = Path("/etc/slurm/topology.conf")
FILE_BYTES_MAX = 16 << 20
JOBS_MAX = 200  # of the state folder, that may share this machine's GPUs


class TopologyUnreadable(Exception):
    """Raised when the file that assigns nodes to switches cannot be read; the message says why."""


def read_placement(
    job: JobDir, others: Sequence[JobDir] = (), topology: Path | None = None, root: Path = Path("/")
) -> Placement:
    """Returns where the ranks of a job's last attempt are placed. `others`: further jobs, which may use the same
    GPUs. `topology`: file that assigns nodes to switches.

    raises: RecordUnreadable, TopologyUnreadable
    """
    heard = Heard(job)
    heard.read_on()
    summary = heard.story.summary()
    nodes = dict(next((one.nodes for one in reversed(summary.attempts) if one.nodes), summary.nodes))
    host = socket.gethostname()
    groups, records = _groups(job.attempt(summary.attempt))
    ranks = {rank.rank: rank.worker for rank in summary.ranks} or _ranks_of_files(job, summary.attempt)
    running, here = _running(job), dict[int, ProcessPlace]()
    for one in running.ranks if running is not None else ():
        found = process_place(one.pid, root) if nodes.get(one.worker, host) == host else None
        if found is not None:
            here[one.rank] = found
    places = [
        RankPlace(
            rank=rank,
            node=nodes.get(worker, f"worker {worker}"),
            worker=worker,
            gpu=here[rank].gpu if rank in here else "",
            cpu_numa=here[rank].cpu_numa if rank in here else (),
            gpu_numa=here[rank].gpu_numa if rank in here else None,
            nics=here[rank].nics if rank in here else (),
        )
        for rank, worker in sorted(ranks.items())
    ]
    switches, unknown = _switches(topology)
    if not topology and not (groups and len(set(nodes.values())) > 1):
        unknown = []  # one node is under one switch
    if not groups:
        unknown.append(
            "groups: no rank has left a list of its groups (they come with torch.distributed and the shim)"
        )
    if not here:
        unknown.append(
            "NUMA nodes, network devices and shared GPUs: no rank of the job runs on this machine now"
        )
    elif not any(place.gpu for place in here.values()):
        unknown.append("NUMA nodes and shared GPUs: this machine has no NVIDIA GPU")
    uses = _uses([job, *others][:JOBS_MAX], host, root) if here else []
    return judged(role_groups(groups, records), places, switches, uses, unknown)


def _groups(folder: Path) -> tuple[dict[str, Group], tuple[FlightRecord, ...]]:
    """The groups of all ranks, from their lists and flight records."""
    reader = SceneReader()
    for file in find([folder] if folder.is_dir() else [], lambda skipped: None):
        if "groups" in file.name or "flight" in file.name or "trace" in file.name:
            for log in opened(file, lambda skipped: None):
                if log.kind in ("record", "groups"):
                    reader.take(log)
    records = reader.whole_records()
    found: dict[str, Group] = {}
    for group in (*reader.groups(), *(group for record in records for group in record.groups.values())):
        if group.ranks:
            found.setdefault(f"{group.name} {group.ranks}", group)
    return found, records


def _ranks_of_files(job: JobDir, attempt: int) -> dict[int, int]:
    """Ranks by the notes that they left in their workers' folders."""
    found: dict[int, int] = {}
    for path in job.attempt(attempt).glob("worker-*/rank-*.shim.json"):
        with suppress(ValueError):
            found[int(path.name.split(".")[0].removeprefix("rank-"))] = int(
                path.parent.name.removeprefix("worker-")
            )
    return found


def _running(job: JobDir) -> RunningJob | None:
    try:
        record = open_record(job)
    except RecordUnreadable:
        return None
    try:
        return running_job(record)
    except (NotRunning, RecordUnreadable):
        return None
    finally:
        record.close()


def _uses(jobs: Sequence[JobDir], host: str, root: Path) -> list[GpuUse]:
    """The GPUs of this machine that running ranks of the jobs take."""
    found = []
    for job in jobs:
        running = _running(job)
        for one in running.ranks if running is not None else ():
            place = process_place(one.pid, root)
            if place is not None and place.gpu:
                found.append(GpuUse(node=host, gpu=place.gpu, job=job.name, rank=one.rank, pid=one.pid))
    return found


def _switches(topology: Path | None) -> tuple[dict[str, str], list[str]]:
    """raises: TopologyUnreadable"""
    path = topology or SLURM_TOPOLOGY
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found, unread = switches_of(file.read(FILE_BYTES_MAX))
    except OSError as error:
        if topology is not None:
            raise TopologyUnreadable(f"{topology} cannot be read: {error.strerror}") from error
        return {}, ["switches: give --topology FILE, Slurm's topology.conf or lines of NODE SWITCH"]
    return found, [f"switches: a line of {path} cannot be read: {line}" for line in unread[:5]]
