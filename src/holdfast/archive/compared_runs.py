"""Reads the runs of a comparison: logs, folders and jobs. Read-only.

Each run has its values by step and its start conditions: command, settings, nodes and environment.
"""

import os
from pathlib import Path

import msgspec

from holdfast.core.compare.series import RunValues
from holdfast.jobs.record import RecordUnreadable, named_job, open_record
from holdfast.journal.jobdir import JobDir
from holdfast.journal.store import JournalUnusable
from holdfast.model.events import AnyEvent, FindingNoted, WorkersPlaced
from holdfast.model.runs.comparison import Fact, FactKind
from holdfast.model.step_forms import StepForm
from holdfast.observe.logs.run_values import read_job_run, read_run
from holdfast.parsers.log_lines.secrets import masked

JOURNAL = "journal.db"
ENVIRONMENT = "environment"  # the kind of a finding that lists what Holdfast set
# Settings of a run that say where it keeps things or how it shows them, and nothing of the training.
NOT_OF_TRAINING = {
    "state_dir",
    "job",
    "page",
    "server",
    "notify",
    "quiet",
    "fleet_dir",
    "metrics_address",
    "command",
}
NOT_OF_TRAINING |= {"metrics_textfile", "prometheus", "detach"}
_EVENTS: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class NoSuchRun(LookupError):
    """Raised when neither a file nor a job has this name. The message says where it was searched."""


def read_compared(word: str, state_dir: str | None, forms: tuple[StepForm, ...]) -> RunValues:
    """Returns the run that a command-line argument names: a file, a folder, or a job.

    Raises NoSuchRun, RecordUnreadable.
    """
    path = Path(word)
    if (path / JOURNAL).is_file():
        return _job(word, JobDir(path), forms)
    if os.path.lexists(path):
        return read_run(word, path, forms)
    try:
        job = named_job(word, state_dir)
    except RecordUnreadable as error:
        raise NoSuchRun(f"there is no file {word!r}, and {error}") from error
    return _job(word, job, forms)


def _job(name: str, job: JobDir, forms: tuple[StepForm, ...]) -> RunValues:
    run = read_job_run(name, job.path, forms)
    facts, notes = _recorded(job)
    run.facts = (*run.facts, *facts)
    run.notes += [f"{name}: {note}" for note in notes]
    return run


def _recorded(job: JobDir) -> tuple[list[Fact], list[str]]:
    """Returns command, settings, nodes and environment of a job from its journal. Raises RecordUnreadable."""
    record = open_record(job)
    try:
        found = [Fact(kind="command", name="command", value=masked(record.command), is_recorded=True)]
        version = record.facts.get("version")
        if isinstance(version, str):
            found.append(Fact(kind="version", name="holdfast", value=version, is_recorded=True))
        found += _settings(record.facts.get("settings"))
        nodes: dict[int, str] = {}
        for row in record.reader.read_raw():
            if row[1] not in ("workers-placed", "finding-noted"):
                continue
            try:
                event = _EVENTS.decode(row[2])
            except msgspec.MsgspecError:
                continue
            if isinstance(event, WorkersPlaced):
                nodes |= {placed.worker: placed.node for placed in event.placed}
            elif isinstance(event, FindingNoted) and event.finding == ENVIRONMENT:
                found += _of_start(event)
        found += [
            Fact(kind="node", name=f"worker {worker}", value=node, is_recorded=True)
            for worker, node in nodes.items()
        ]
        return found, [record.reader.damage] if record.reader.damage else []
    except JournalUnusable as error:
        raise RecordUnreadable(str(error)) from error
    finally:
        record.close()


def _of_start(event: FindingNoted) -> list[Fact]:
    """Returns the environment variables and versions that the agent recorded at the first start."""
    found = []
    for key, value in event.numbers.items():
        kind, _, name = key.partition(" ")
        if kind in ("env", "version"):
            fact_kind: FactKind = "version" if kind == "version" else "environment"
            found.append(Fact(kind=fact_kind, name=name, value=str(value), is_recorded=True))
    return found


def _settings(settings: object) -> list[Fact]:
    if not isinstance(settings, dict):
        return []
    policy = settings.get("policy")
    flat = {**settings, **(policy if isinstance(policy, dict) else {})}
    return [
        Fact(kind="setting", name=f"holdfast {key}", value=str(value), is_recorded=True)
        for key, value in flat.items()
        if key not in NOT_OF_TRAINING and key != "policy"
    ]
