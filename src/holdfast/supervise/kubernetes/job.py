"""Supervises a job on Kubernetes: from outside it submits and follows it; in the controller's pod it runs
it.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.controller.loop import replay
from holdfast.core.kubernetes.annotations import applied
from holdfast.core.plurals import counted
from holdfast.engines.kubernetes import names
from holdfast.engines.kubernetes.connection import Connection, NoCluster, RequestFailed, ServerAway, connect
from holdfast.engines.kubernetes.engine import Identity, KubernetesEngine, isolated_in
from holdfast.engines.kubernetes.kinds import OWNERS
from holdfast.engines.kubernetes.remaking import Between
from holdfast.jobs.agent_place import SECRET
from holdfast.journal.jobdir import JobDir, NoSuchJob, StateDir
from holdfast.link.listening import ListenFailed
from holdfast.model.settings import RunSettings
from holdfast.model.state import Ended
from holdfast.parsers.kubernetes.objects import NotRead, owner_of
from holdfast.supervise.kubernetes.follow import Follower, Outcome
from holdfast.supervise.kubernetes.restoring import restore
from holdfast.supervise.kubernetes.submission import NotSubmitted, PodFlags, submission, submit
from holdfast.supervise.many_nodes_start import attach_nodes, run_nodes
from holdfast.supervise.start import NO_RECORD, USAGE, NotTakenUp, locked, recorded, taken_up
from holdfast.views.console import Console

DONE = 0  # of a controller's container whose job has ended: it is not started again


class _Engine(KubernetesEngine):
    """Kubernetes engine that writes the job's secret, which pods have from the cluster, into the job's
    folder.
    """

    def __init__(
        self,
        connection: Connection,
        identity: Identity,
        secret: Path,
        *,
        has_no_record: bool,
        remakes: bool,
    ) -> None:
        super().__init__(connection, identity, has_no_record=has_no_record, remakes=remakes)
        self._secret, self.owns = secret, identity.owns

    def listen(self, folder: Path) -> Sequence[str]:
        there = folder / SECRET
        if not there.exists():
            descriptor = os.open(there, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(self._secret.read_text())
        return super().listen(folder)


def run_kubernetes(settings: RunSettings, env: Mapping[str, str], given: Mapping[str, object]) -> int:
    """Runs the job on Kubernetes to its end. Returns the training's own exit code.

    `given`: the fields of PodFlags.
    """
    console = Console(quiet=settings.quiet)
    flags = msgspec.convert(given, PodFlags)
    if env.get(names.ROLE_ENV) == names.ROLE_CONTROLLER:
        return _control(settings, flags, env, console)
    try:
        connection = connect(env, flags.context, flags.namespace)
        one = submit(connection, settings, flags, sys.argv[sys.argv.index("run") :], env)
    except (NoCluster, NotSubmitted) as error:
        console.tell(str(error))
        return USAGE
    pods = counted(settings.nnodes, "pod")
    console.tell(
        f"job {one.name} in namespace {one.namespace}: {pods} and {counted(settings.spares, 'spare')}"
    )
    if settings.detach:
        console.tell(f"the job continues without this command; holdfast attach {one.name} shows its progress")
        return 0
    return Follower(connection, one, console).follow()


def follow_job(
    state_dir: str, name: str | None, env: Mapping[str, str], *, quiet: bool = False
) -> int | None:
    """Follows a job that was submitted from here, and returns its exit code; None if there is none of that
    name.
    """
    one = submission(state_dir, name)
    if one is None:
        return None
    console = Console(quiet=quiet)
    try:
        connection = connect(env, one.context, one.namespace)
    except NoCluster as error:
        console.tell(str(error))
        return USAGE
    console.tell(f"following job {one.name} in namespace {one.namespace}")
    return Follower(connection, one, console).follow()


# In the controller's pod --------------------------------------------------------------------------------------------


def _control(settings: RunSettings, flags: PodFlags, env: Mapping[str, str], console: Console) -> int:
    """Runs or resumes the job in the controller's pod.

    The container ends with 0; its termination message has the exit code.
    """
    job = _job_of(settings)
    if job is not None and not job.journal_path.exists():
        job = _without_failed_start(job, console)
    if job is not None and (code := _ended_code(job)) is not None:
        return _say_outcome(settings, env, code)
    try:
        connection = connect(env, namespace=env.get(names.NAMESPACE_ENV, ""))
    except NoCluster as error:
        console.tell(str(error))
        return USAGE
    secret = Path(env[names.SECRET_ENV])
    if job is None and not flags.state_claim:
        try:
            restore(connection, _identity(settings, env), settings.state_dir, secret, env, console)
        except ListenFailed as error:  # to begin anew would cost the pods and the record
            console.tell(f"the controller ends, to try again after its restart: {error}")
            return USAGE
    while True:
        job = _job_of(settings)
        engine = _Engine(
            connection,
            _identity(settings, env),
            secret,
            has_no_record=job is None,
            remakes=flags.reschedule_pods,
        )
        if job is None:
            Between(connection, engine.owns, (), console.tell).wait()
            code = run_nodes(_with_annotations(settings, connection, env, console), engine)
        else:
            Between(connection, engine.owns, isolated_in(job.path), console.tell).wait()
            code = _resume(job, engine, env, console)
        job = _job_of(settings)
        if job is not None and _ended_code(job) is not None:
            return _say_outcome(settings, env, code)
        if job is None or not engine.is_moved:
            return code or USAGE  # the cluster starts it again


def _with_annotations(
    settings: RunSettings, connection: Connection, env: Mapping[str, str], console: Console
) -> RunSettings:
    """Applies settings that a platform wrote to the owner of the pods; unchanged if the API server is
    unreachable.
    """
    one = _identity(settings, env)
    try:
        owner = owner_of(connection.request("GET", one.kind.path(one.namespace, one.owner)).content)
    except (ServerAway, RequestFailed, NotRead):
        return settings
    policy, lines = applied(owner.annotations, settings.policy)
    for line in lines:
        console.tell(f"{owner.kind} {owner.name}: {line}")
    return msgspec.structs.replace(settings, policy=policy)


def _identity(settings: RunSettings, env: Mapping[str, str]) -> Identity:
    name, kind = env.get(names.JOB_ENV) or settings.job or "", OWNERS[env.get(names.KIND_ENV, "job")]
    return Identity(
        job=name,
        namespace=env[names.NAMESPACE_ENV],
        kind=kind,
        owner=name,
        container=env.get(names.CONTAINER_ENV) or kind.container,
        address=env[names.POD_IP_ENV],
        holder=f"{env[names.POD_ENV]}.{env[names.POD_UID_ENV]}/{os.getpid()}",
    )


def _resume(job: JobDir, engine: _Engine, env: Mapping[str, str], console: Console) -> int:
    lock = locked(job, console)
    if lock is None:
        return USAGE
    with lock:
        found = taken_up(job, console)
        if isinstance(found, NotTakenUp):
            return found.code
        return attach_nodes(job, found.settings, found.cwd, env, found.rows, engine)


def _job_of(settings: RunSettings) -> JobDir | None:
    try:
        return StateDir(Path(settings.state_dir)).job(settings.job or "")
    except (NoSuchJob, OSError, ValueError):
        return None


def _without_failed_start(job: JobDir, console: Console) -> JobDir | None:
    """Removes a job's folder without a journal: its start failed before anything ran. Returns what is left of it."""
    try:
        shutil.rmtree(job.path)
    except OSError as error:
        console.tell(f"the folder of an earlier start cannot be removed: {error}")
        return job
    return None


def _ended_code(job: JobDir) -> int | None:
    try:
        found, _, rows = recorded(job)
        phase = replay(rows, found.policy).phase
    except NO_RECORD:
        return None
    return phase.code if isinstance(phase, Ended) else None


def _say_outcome(settings: RunSettings, env: Mapping[str, str], code: int) -> int:
    """Writes the job's exit code to the termination message, for followers that cannot read the journal."""
    said = Outcome(holdfast=settings.job or "", code=code, outcome="failed" if code else "succeeded")
    path = env.get(names.TERMINATION_ENV, names.TERMINATION_LOG)
    with contextlib.suppress(OSError):
        Path(path).write_bytes(msgspec.json.encode(said))
    return DONE
