"""Reads the logged values of one run by step, for comparisons. Read-only.

The run is given as a file, folder, archive or a job's output. If it contains several trainings, the one with
the most steps counts.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.core.compare.series import RunValues
from holdfast.core.steps.report import LogSteps, trainings
from holdfast.core.steps.watch_settings import StepSettings
from holdfast.model.runs.comparison import Fact
from holdfast.model.step_forms import StepForm
from holdfast.observe.logs.step_logs import FoundLogs, ReadSettings, read_job, read_logs
from holdfast.observe.logs.streams import Unreadable
from holdfast.observe.logs.tree import find, opened
from holdfast.parsers.run_facts import run_facts

HEAD_BYTES = 512 << 10  # in which a training logs its settings
FILES_MAX = 64  # whose heads are read


def read_run(name: str, place: Path, forms: tuple[StepForm, ...]) -> RunValues:
    """Returns the values and the facts of the run in a file or folder."""
    found = read_logs([place], _settings(forms))
    run = _values(name, found, is_one=False)
    run.facts = _facts([place])
    return run


def read_job_run(name: str, folder: Path, forms: tuple[StepForm, ...]) -> RunValues:
    """Returns the values in a job's output over all attempts, and the facts that the output names."""
    run = _values(name, read_job(folder, _settings(forms)), is_one=True)
    run.facts = _facts(sorted(folder.glob("attempt-*/worker-*"))[:FILES_MAX])
    return run


def _settings(forms: tuple[StepForm, ...]) -> ReadSettings:
    return ReadSettings(forms=forms, steps=StepSettings(), details=True)


def _values(name: str, found: FoundLogs, *, is_one: bool) -> RunValues:
    run = RunValues(name)
    run.notes += [f"{name}: {one.name} was not read: {one.why}" for one in found.skipped if one.lost]
    groups = trainings(found.logs, is_one=is_one)
    if not groups:
        return run
    if len(groups) > 1:
        run.notes.append(
            f"{name}: {len(groups)} trainings were found; the one with most steps is compared: {groups[0][0].name}"
        )
    lead = _lead(groups[0])
    run.framework = lead.framework
    run.take(lead.records)
    for log in groups[0]:
        for rank in {record.rank for record in log.records} - {None}:
            assert rank is not None
            run.take_rank(rank, (record for record in log.records if record.rank == rank))
    return run


def _lead(group: Sequence[LogSteps]) -> LogSteps:
    """Returns the log that represents a run: of the logs with losses the one of the lowest rank.

    Two runs are thus compared by the same rank.
    """
    ranked = [
        (log.writer.rank, at)
        for at, log in enumerate(group)
        if log.writer.rank is not None and any(record.loss is not None for record in log.records)
    ]
    has_loss = any(record.loss is not None for record in group[0].records)
    if not ranked or (group[0].writer.rank is None and has_loss):
        return group[0]
    return group[min(ranked)[1]]


def _facts(places: Sequence[Path]) -> tuple[Fact, ...]:
    """Returns facts from the first lines of each log; of equal names the last value counts."""
    found: dict[tuple[str, str], Fact] = {}
    for file in find(list(places), lambda skipped: None)[:FILES_MAX]:
        for log in opened(file, lambda skipped: None):
            if log.kind is not None:
                continue
            with suppress(Unreadable):
                block = log.stream.read(HEAD_BYTES)
                for fact in run_facts(block.decode(errors="replace").splitlines()):
                    found[fact.kind, fact.name] = fact
    return tuple(found.values())
