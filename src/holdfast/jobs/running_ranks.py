"""Finds the processes of a running job's ranks, from its journal and the records of its reapers.

Only reads.
"""

import socket
from pathlib import Path
from typing import NamedTuple

from holdfast.jobs.record import Record, supervisor
from holdfast.journal.jobdir import JobDir
from holdfast.observe.processes.worker_facts import worker_facts


class NotRunning(Exception):
    """Raised when the job has no running rank. The message is one line: why, and what to do."""


class RunningRank(NamedTuple):
    """A rank of a running job that has not ended, as far as the journal and its reaper's records show."""

    rank: int
    worker: int
    pid: int
    folder: Path


class RunningJob(NamedTuple):
    """The current attempt of a job and its running ranks. `ended`: how other ranks ended, by rank."""

    job: str
    attempt: int
    ranks: tuple[RunningRank, ...]
    ended: dict[int, str]


def running_job(record: Record) -> RunningJob:
    """Returns the running ranks of a job. Raises NotRunning and RecordUnreadable."""
    record.all_lines()
    job, summary = record.job, record.story.summary()
    if record.story.ended:
        raise NotRunning(
            f"job {job.name} is not running; it has ended ({summary.outcome}): see holdfast log {job.name}"
        )
    host = record.facts.get("host")
    if record.is_one_machine and isinstance(host, str) and host and host != socket.gethostname():
        raise NotRunning(f"job {job.name} runs on {host}: its stacks can be collected there only")
    known = _from_facts(job, summary.attempt)
    for rank in summary.ranks:  # a damaged or late file of facts
        folder = job.worker(summary.attempt, rank.worker)
        known.setdefault(
            rank.rank, (RunningRank(rank.rank, rank.worker, rank.pid, folder), rank.code, rank.ended)
        )
    ended = {number: _how(code) for number, (_, code, over) in known.items() if over}
    ranks = tuple(one for number, (one, _, _) in sorted(known.items()) if number not in ended)
    if not ranks:
        # Of a job without a supervisor the journal's last phase is the past.
        phase = summary.phase_words if supervisor(job, record.facts) else "the job has no supervisor now"
        raise NotRunning(_none_of(job.name, summary.attempt, phase, ended))
    return RunningJob(job.name, summary.attempt, ranks, ended)


def _none_of(name: str, attempt: int, phase: str, ended: dict[int, str]) -> str:
    if ended:
        return f"all ranks of job {name}, attempt {attempt}, have ended ({phase}): see holdfast log {name}"
    return f"job {name} has no ranks yet ({phase}): a rank is a process started with RANK set"


def _how(code: int | None) -> str:
    return "the rank has ended" if code is None else f"the rank has ended with {code}"


def _from_facts(job: JobDir, attempt: int) -> dict[int, tuple[RunningRank, int | None, bool]]:
    """Returns for each rank its process, its exit code, and whether it has ended, from the reapers'
    records.
    """
    found: dict[int, tuple[RunningRank, int | None, bool]] = {}
    for folder in sorted(job.attempt(attempt).glob("worker-*")):
        worker = folder.name.removeprefix("worker-")
        if worker.isdigit():
            for one in worker_facts(folder).ranks:
                found[one.rank] = (RunningRank(one.rank, int(worker), one.pid, folder), one.code, one.ended)
    return found
