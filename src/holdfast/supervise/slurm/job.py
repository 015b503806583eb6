"""Supervises a job under Slurm: from a login node it submits and follows it; inside an allocation it runs it.

One Holdfast job belongs to one Slurm job: when Slurm restarts that, the same journal continues.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.core.plurals import counted
from holdfast.engines.nodes import EngineRefused, JobPlace
from holdfast.engines.slurm.engine import SlurmEngine
from holdfast.engines.slurm.probe import Probe
from holdfast.engines.slurm.queries import node_words, nodes_in
from holdfast.engines.slurm.run_command import asked, plain_environment
from holdfast.engines.slurm.slurmd_watch import DEFAULT_PORT
from holdfast.journal.jobdir import JobDir, JobInUse, JobLock, NoSuchJob, StateDir, StateUnwritable
from holdfast.model.settings import RunSettings
from holdfast.slurm_names import Allocation, BadNodeList, allocation
from holdfast.supervise.many_nodes_start import attach_nodes, prepare, run_nodes
from holdfast.supervise.slurm.follow import Follower, ended_code
from holdfast.supervise.slurm.submission import NotSubmitted, submission, submit, submitted_jobs
from holdfast.supervise.start import USAGE, NotTakenUp, taken_up
from holdfast.views.console import Console

ALONE_LOOK_S = 1.0
ALONE_S = 3.0  # where the machine of the controller cannot be reached either
# Where it can: the batch script starts a controller that was killed again, on a busy machine after many seconds.
ALONE_THERE_S = 30.0
REACH_S = 1.5
SLURM_JOB = "slurm-job"  # in the job's folder: the Slurm job that it belongs to


class _Engine(SlurmEngine):
    """Slurm engine that records to which Slurm job the Holdfast job belongs, before anything is started."""

    def begin(self, place: JobPlace) -> None:
        (place.folder / SLURM_JOB).write_text(f"{self.allocation.job} {self.allocation.restarts}\n")
        super().begin(place)


def own_allocation(env: Mapping[str, str]) -> Allocation | None:
    """Returns the allocation that `holdfast run` takes over here; None inside a step and without Slurm."""
    try:
        found = allocation(env)
    except BadNodeList:
        return None
    return None if found is None or found.in_step else found


def run_slurm(settings: RunSettings, env: Mapping[str, str], flags: Sequence[str] = ()) -> int:
    """Runs the job under Slurm to its end. Returns the training's own exit code.

    `flags`: flags for sbatch.
    """
    console = Console(quiet=settings.quiet)
    found = own_allocation(env)
    if found is not None:
        return _take_over(settings, env, found, console)
    if settings.job is not None:
        known = submission(settings.state_dir, settings.job)
        if known.slurm_job and ended_code(StateDir(Path(settings.state_dir)), settings.job) is None:
            console.tell(f"job {known.name} is already Slurm job {known.slurm_job}: following it")
            return Follower(known, settings.state_dir, console, env).follow()
    try:
        one = submit(settings, flags, _own_words(), env, time.time())
    except NotSubmitted as error:
        console.tell(str(error))
        return USAGE
    console.tell(
        f"job {one.name} is Slurm job {one.slurm_job}, on {counted(settings.nnodes, 'node')} and {counted(settings.spares, 'spare')}; "
        f"its output: {one.out}"
    )
    if settings.detach:
        console.tell(f"the job continues without this command; holdfast attach {one.name} shows its progress")
        return 0
    return Follower(one, settings.state_dir, console, env).follow()


def engine_here(env: Mapping[str, str]) -> SlurmEngine:
    """Returns the Slurm engine for a controller that resumes a job in the allocation in which it runs.

    Raises EngineRefused outside of an allocation.
    """
    found = own_allocation(env)
    if found is None:
        raise EngineRefused("a job of --engine slurm can only be resumed inside its allocation")
    return _Engine(found, env)


def follow_submitted(
    state_dir: str, name: str | None, env: Mapping[str, str], *, quiet: bool = False
) -> int | None:
    """Follows a job that was submitted from here, and returns its exit code; None if Slurm has no such
    job.
    """
    if own_allocation(env) is not None:
        return None
    found = submitted_jobs(state_dir)
    one = next((one for one in found if name in (None, one.name)), None)
    if one is None:
        return None
    console = Console(quiet=quiet)
    code = ended_code(StateDir(Path(state_dir)), one.name)
    if code is not None:
        console.tell(f"{one.name} exited with code {code}")
        return code
    console.tell(f"following job {one.name}, Slurm job {one.slurm_job}")
    return Follower(one, state_dir, console, env, from_end=True).follow()


def _own_words() -> list[str]:
    """Returns the arguments of this `holdfast`, from `run` on."""
    return sys.argv[sys.argv.index("run") :]


# Inside the allocation ----------------------------------------------------------------------------------------------


def _take_over(settings: RunSettings, env: Mapping[str, str], found: Allocation, console: Console) -> int:
    settings = _sized(settings, found)
    name = settings.job or f"slurm-{found.job}"
    settings = msgspec.structs.replace(settings, job=name, engine="slurm")
    job = _of_this_slurm_job(settings, name, found)
    if why := _too_few(settings, found, is_again=job is not None):
        console.tell(why)
        return USAGE
    ours = submission(settings.state_dir, name).slurm_job == found.job
    engine = _Engine(found, env, no_kill=ours, standby=_standby_words(settings, name))
    if job is None:
        return run_nodes(settings, engine)
    return _go_on(job, engine, env, console)


def _too_few(settings: RunSettings, found: Allocation, *, is_again: bool) -> str:
    """Returns why the nodes are too few; empty if they are enough.

    `is_again`: the job has run before, and may have been moved to as many nodes as train, without spares.
    """
    nodes = counted(len(found.nodes), "node")
    if settings.nnodes < 1:
        leave = counted(settings.spares, "spare leaves", "spares leave")
        return f"{leave} none of the {nodes} of job {found.job} to train"
    if settings.nnodes + (0 if is_again else settings.spares) <= len(found.nodes):
        return ""
    wanted = f"{counted(settings.nnodes, 'worker')} and {counted(settings.spares, 'spare')}"
    return (
        f"Slurm job {found.job} has {nodes}, too few for {wanted}: request more from Slurm, or give smaller "
        "--nnodes and --spares"
    )


def _sized(settings: RunSettings, found: Allocation) -> RunSettings:
    """Sets the number of nodes: without --nnodes, all nodes but the spares train."""
    if settings.nnodes > 1:
        return settings
    return msgspec.structs.replace(settings, nnodes=len(found.nodes) - settings.spares)


def _of_this_slurm_job(settings: RunSettings, name: str, found: Allocation) -> JobDir | None:
    """Returns the job recorded for this very Slurm job before it was restarted; None if there is none."""
    try:
        job = StateDir(Path(settings.state_dir)).job(name)
        return job if _belongs(job)[0] == found.job else None
    except (NoSuchJob, OSError, ValueError):
        return None


def _belongs(job: JobDir) -> tuple[str, int]:
    """Returns a job's Slurm job id, and how often that had been restarted. Raises OSError and ValueError."""
    slurm_job, restarts = (job.path / SLURM_JOB).read_text().split()
    return slurm_job, int(restarts)


def _go_on(job: JobDir, engine: SlurmEngine, env: Mapping[str, str], console: Console) -> int:
    try:
        lock = _lock(job, console)
    except StateUnwritable as error:
        console.tell(str(error))
        return USAGE
    with lock:
        found = taken_up(job, console)
        if isinstance(found, NotTakenUp):
            return found.code
        try:
            moved = _belongs(job)[1] != engine.allocation.restarts
            return attach_nodes(job, found.settings, found.cwd, env, found.rows, engine, moved=moved)
        except EngineRefused as error:
            console.tell(str(error))
            return USAGE


def _lock(job: JobDir, console: Console) -> JobLock:
    """Locks the job; waits for its previous or standby controller, which may still be ending.

    Raises StateUnwritable.
    """
    is_noted = False
    while True:
        try:
            return job.lock()
        except JobInUse as error:
            if not is_noted:
                console.tell(f"waiting until the current controller of the job has ended: {error}")
            is_noted = True
            time.sleep(0.1)


# The standby ---------------------------------------------------------------------------------------------------------


def _standby_words(settings: RunSettings, name: str) -> list[str]:
    place = str(Path(settings.state_dir).absolute())
    return [sys.executable, "-P", "-m", "holdfast", "attach", name, "--state-dir", place, "--when-alone"]


def stand_by(state_dir: str, name: str, env: Mapping[str, str]) -> int:
    """Waits in a step on another node, and takes over when the controller is gone and is not restarted."""
    console = Console(quiet=True)
    try:
        found = allocation(env)
        job = StateDir(Path(state_dir)).job(name)
        if found is None or _belongs(job)[0] != found.job:
            raise LookupError(f"{name} is not the job of this Slurm allocation")
    except (BadNodeList, LookupError, OSError, ValueError) as error:
        console.tell(str(error))
        return USAGE
    prepare()  # the disk may be lost with the first node
    console.tell(f"{found.node} runs the standby controller of {name}")
    first = found.nodes[0]
    if not _wait_alone(job, console, lambda: _is_there(first, env)):
        return 0
    console.tell(f"the controller of {name} on {first} is gone: the controller on {found.node} takes over")
    code = _go_on(job, _Engine(found, env, no_kill=True, lost_with=first), env, console)
    # The batch script is gone with its node, and nothing but its end would end the Slurm job.
    asked(["scancel", found.target], plain_environment(env))
    return code


def _wait_alone(job: JobDir, console: Console, is_there: Callable[[], bool]) -> bool:
    """Waits until no process has held the job's lock for a while.

    Returns False if the job has ended, or locks are missing.

    `is_there`: returns whether the machine of its controller can be reached.
    """
    free_s: float | None = None
    while True:
        time.sleep(ALONE_LOOK_S)
        if ended_code(StateDir(job.path.parents[1]), job.name) is not None:
            return False
        try:
            with job.lock() as lock:
                held = lock.held
        except (JobInUse, StateUnwritable):
            free_s = None
            continue
        if not held:
            console.tell(
                f"{job.path} is on a file system without locks: no standby controller can take over if "
                "the first node is lost"
            )
            return False
        now_s = time.monotonic()
        free_s = now_s if free_s is None else free_s
        if now_s - free_s > ALONE_THERE_S or (now_s - free_s > ALONE_S and not is_there()):
            return True


def _is_there(node: str, env: Mapping[str, str]) -> bool:
    """Returns whether a node's machine responds; True if Slurm does not know its address."""
    answer = asked(node_words([node]), plain_environment(env), REACH_S)
    one = next((one for one in nodes_in(answer) if one.name == node and one.address), None)
    if one is None:
        return True
    probe = Probe(one.address, one.port or DEFAULT_PORT, time.monotonic(), REACH_S)
    while (found := probe.look(time.monotonic())) is None:
        time.sleep(0.05)
    return found
