"""Computes what jobs cost, from their folders: the journal accounts for every second, the output has step
times.

Read-only.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from holdfast.controller.loop import decisions
from holdfast.core.costs.account import Account, JobCost, with_steps
from holdfast.core.costs.settings import SettingCost, settings_of
from holdfast.core.steps.report import training_of, trainings
from holdfast.core.steps.watch_settings import StepSettings
from holdfast.jobs.record import Record, RecordUnreadable, open_record
from holdfast.journal.jobdir import JobDir
from holdfast.journal.store import JournalUnusable
from holdfast.model.events import NodesChecked
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.model.state import Ended, State
from holdfast.model.steps import StepReport
from holdfast.observe.logs.step_logs import ReadSettings
from holdfast.observe.logs.step_logs import read_job as read_steps
from holdfast.observe.search.step_form_store import all_forms

JOBS_MAX = 10_000  # of a fleet: the newest jobs
NO_STEPS = (
    "its output shows no steps: lost and slow steps cannot be computed, and all time before the first "
    "failure counts as startup"
)


class JobRead(Struct, frozen=True, kw_only=True):
    """The costs of one job.

    `run`: the job's settings; None if this version cannot read them. `nodes`: number of nodes of its workers.
    `ended`: True if the job has ended.
    """

    cost: JobCost
    settings: tuple[SettingCost, ...]
    policy: Policy
    run: RunSettings | None
    report: StepReport | None
    nodes: int = 1
    ended: bool = False


class FleetRead(Struct, frozen=True, kw_only=True):
    """The costs of all jobs in a state folder. `unread`: a sentence for each job that cannot be read.

    `left_out`: number of jobs that ended before the requested period.
    """

    jobs: tuple[JobRead, ...]
    unread: tuple[str, ...] = ()
    left_out: int = 0


def read_cost(job: JobDir, since_s: float | None = None, *, steps: bool = True) -> JobRead:
    """Returns the costs of one job. Raises RecordUnreadable.

    `since_s`: count only the time after this moment. `steps`: also read the output for step times.
    """
    record = open_record(job)
    try:
        cost, state = _of_journal(record, since_s)
        report = _steps(job, cost.gpus) if steps else None
        if cost.has_steps and since_s is None:
            cost = with_steps(cost, report)
        notes = list(record.notes)
        notes += [record.reader.damage] if record.reader.damage else []
        notes += [] if cost.has_steps else [NO_STEPS]
        cost = replace(cost, job=job.name, notes=(*cost.notes, *notes))
        run = record.settings
        return JobRead(
            cost=cost,
            settings=settings_of(cost, record.policy, run),
            policy=record.policy,
            run=run,
            report=report,
            nodes=max(1, len(state.job.workers)),
            ended=isinstance(state.phase, Ended),
        )
    finally:
        record.close()


def read_fleet(
    jobs: Iterable[JobDir],
    since_s: float | None = None,
    *,
    steps: bool = True,
    on_job: Callable[[int], None] = lambda count: None,
) -> FleetRead:
    """Returns the costs of all readable jobs, without those that ended before `since_s`.

    `on_job`: called with the number of jobs read so far.
    """
    found, unread, left_out = list[JobRead](), list[str](), 0
    for count, job in enumerate(jobs):
        if count >= JOBS_MAX:
            unread.append(f"only the newest {JOBS_MAX} jobs are counted")
            break
        on_job(count)
        try:
            one = read_cost(job, since_s, steps=steps)
        except RecordUnreadable as error:
            unread.append(str(error))
            continue
        if one.cost.wall_s > 0.0:
            found.append(one)
        # not even the submission is readable
        elif not one.cost.gpus:
            unread.append(f"{job.name}: {'; '.join(one.cost.notes) or 'its journal is empty'}")
        else:
            left_out += 1
    return FleetRead(jobs=tuple(found), unread=tuple(unread), left_out=left_out)


def _of_journal(record: Record, since_s: float | None) -> tuple[JobCost, State]:
    account, devices, is_checked = Account(since_s), dict[str, int](), False
    try:
        for event, decision in decisions(record.reader.read_raw(), record.policy):
            account.hear(event, decision)
            if isinstance(event, NodesChecked):
                is_checked = is_checked or event.passed > 0
                for device in event.devices:
                    devices[device.node] = sum(one.node == device.node for one in event.devices)
    except JournalUnusable as error:
        raise RecordUnreadable(str(error)) from error
    nodes = {worker.node for worker in account.state.job.workers if worker.node}
    gpus = sum(devices.get(node, 0) for node in nodes)
    found = account.cost(gpus, "devices of the boot check" if gpus else "")
    return replace(found, has_no_gpu=is_checked and not gpus), account.state


def _steps(job: JobDir, ranks: int) -> StepReport | None:
    """Returns the step report of the training with the most steps; None if the output is unreadable or has
    no steps.
    """
    with suppress(OSError):
        found = read_steps(job.path, ReadSettings(forms=all_forms(), steps=StepSettings(ranks=ranks or None)))
        groups = trainings(found.logs, is_one=True)
        if groups:
            return training_of(groups[0], is_local=True).report
    return None
