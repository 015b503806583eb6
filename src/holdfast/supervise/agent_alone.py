"""Runs `holdfast agent -- COMMAND`: supervises one worker that srun or mpirun has started, without a controller.

Nothing is restarted, and the workers do not communicate: each is logged, with a verdict if it fails. All write into
one folder of the job; the journal of worker 0 is that of the job.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.agent.part import Part
from holdfast.journal.jobdir import JobDir, JobExists, JobInUse, JobLock, StateDir, StateUnwritable
from holdfast.model.settings import RunSettings
from holdfast.observe.clock import JobClock
from holdfast.parsers.launched import Launched, launched
from holdfast.supervise.one_machine import Among, Supervisor
from holdfast.supervise.start import USAGE, in_state_folder, job_folder, with_launcher
from holdfast.views.console import Console

NODES = "nodes"
NAMES_MAX = 100  # runs of one job's id that begin anew


def run_alone(settings: RunSettings, env: Mapping[str, str], cwd: str) -> int:
    """Runs the command and returns its exit code; 2 if nothing could be started."""
    me = launched(env)
    console = WorkerConsole(me, quiet=settings.quiet)
    settings = with_launcher(_without_restarts(settings))
    clock = JobClock()
    try:
        among, own, lock, settings = _folders(settings, me, clock(), console)
    except (JobExists, JobInUse, ValueError) as error:
        console.tell(str(error))
        return USAGE
    with lock:
        return Supervisor(settings, own, console, env, cwd, among).submit()


class WorkerConsole(Console):
    """A console that puts the worker's name before each message, because one srun prints the messages of all
    workers.
    """

    def __init__(self, me: Launched, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._me = f"worker {me.worker}: " if me.workers > 1 else ""

    def tell(self, text: str) -> None:
        super().tell(self._me + text)


def _without_restarts(settings: RunSettings) -> RunSettings:
    """Returns the settings without restarts, because the other workers would not join a new attempt."""
    policy = replace(settings.policy, max_restarts=None, hang_restart=False, replace_workers=None)
    return replace(settings, policy=policy, standby=False, detach=False)


def _folders(
    settings: RunSettings, me: Launched, at_s: float, console: Console
) -> tuple[Among | None, JobDir, JobLock, RunSettings]:
    """Returns where this worker is recorded, and what it shares with others.

    Raises ValueError, JobExists and JobInUse.
    """
    name = settings.job or me.job
    if me.workers == 1 and not name:
        job, lock, settings = job_folder(settings, at_s, console)
        return None, job, lock, settings
    if not name:
        raise ValueError(
            f"worker {me.worker} of {me.workers} has no job name: give all workers the same one with --job"
        )
    made, settings = in_state_folder(settings, lambda state: _unused(state, name, me.worker, at_s), console)
    job, own, lock = made
    part = Part(
        worker=me.worker, workers=me.workers, master_address=me.address, master_port=me.port, run_id=job.name
    )
    return Among(part=part, job=job), own, lock, settings


def _unused(state: StateDir, name: str, worker: int, at_s: float) -> tuple[JobDir, JobDir, JobLock]:
    """Returns the job's folder and this worker's, under a name not used yet; every worker finds the same
    name.

    Raises StateUnwritable and JobExists.
    """
    for number in range(1, NAMES_MAX + 1):
        job = state.shared(name if number == 1 else f"{name}-{number}", at_s)
        own = job if worker == 0 else JobDir(job.path / NODES / f"worker-{worker}")
        if own.journal_path.exists() or job.worker(1, worker).exists():
            continue
        try:
            own.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateUnwritable(f"{own.path} cannot be written: {error}") from error
        try:
            return job, own, own.lock()
        except JobInUse:
            continue
    raise JobExists(f"job {name} already has {NAMES_MAX} runs: give this run another name with --job")
