"""Runs a Holdfast command in the pod of a job's controller, where the job's journal is, through the API server.

`holdfast status JOB` from outside the cluster thus runs `holdfast status JOB` there, with the same arguments, input,
output, terminal and exit code. It needs the permission to get and create pods/exec.
"""

import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import FrameType
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.engines.kubernetes.connection import Connection, NoCluster, RequestFailed, ServerAway, connect
from holdfast.engines.kubernetes.exec_channel import STDERR, ExecChannel, open_exec
from holdfast.engines.kubernetes.kinds import OWNERS
from holdfast.engines.kubernetes.names import KIND_ENV, ROLE_CONTROLLER, selector
from holdfast.jobs.elsewhere import JobElsewhere
from holdfast.model.kubernetes import PodState
from holdfast.parsers.kubernetes.objects import NotRead, command_of, page, pod_of, variable_of
from holdfast.supervise.kubernetes.follow import Follower
from holdfast.supervise.kubernetes.submission import Submission, submission
from holdfast.views.console import Console

FAILED, REFUSED = 1, 2
THERE = ("status", "why", "log", "logs", "stacks", "exec", "shell", "steps", "cost", "nodes")
BLOCK_BYTES = 1 << 14
SIZE = (24, 80)


class NotThere(Exception):
    """Raised when the command cannot be run in the cluster. The message says why and what to do."""


class _Place(NamedTuple):
    pod: str
    program: str  # `holdfast` in the controller's container


def run_there(job: JobElsewhere, words: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs `holdfast WORDS` in the controller's pod. Returns its exit code."""
    try:
        if words[0] == "attach":
            return _attach(job, words, env)
        if words[0] not in THERE:
            raise NotThere(f"holdfast {words[0]} needs the job's record here: {job.why_not_here}")
        one = submission(str(job.root), job.name)
        connection = _connected(job, one, env)
        try:
            one = one or Submission(name=job.name or "", namespace=connection.namespace)
            place = _place(connection, one, job)
            return _run(connection, one, place, words_there(words))
        finally:
            connection.close()
    except NotThere as error:
        sys.stderr.write(f"holdfast: {error}\n")
        return FAILED


def _attach(job: JobElsewhere, words: Sequence[str], env: Mapping[str, str]) -> int:
    """Follows a job that was submitted from another machine, or wrapped; returns its exit code. Raises NotThere."""
    connection = _connected(job, None, env)
    try:
        one = Submission(name=job.name or "", namespace=connection.namespace)
        _, raw = _controllers(connection, one, job)[-1]
        kind = variable_of(raw, ROLE_CONTROLLER, KIND_ENV)
        if kind not in OWNERS:
            raise NotThere(
                f"the controller's pod of job {one.name} has no {KIND_ENV}: it was not made by Holdfast"
            )
        console = Console(quiet="--quiet" in words)
        console.tell(f"following job {one.name} in namespace {one.namespace}")
        return Follower(connection, replace(one, kind=kind), console).follow()
    finally:
        connection.close()


def words_there(words: Sequence[str]) -> list[str]:
    """Returns the arguments without the state folder of this machine."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            kept += [word, *rest]
        elif word == "--state-dir":
            next(rest, None)
        elif not word.startswith("--state-dir="):
            kept.append(word)
    return kept


def _connected(job: JobElsewhere, one: Submission | None, env: Mapping[str, str]) -> Connection:
    try:
        return connect(env, one.context, one.namespace) if one is not None else connect(env)
    except NoCluster as error:
        raise NotThere(str(error) if one is not None else job.why_not_here) from error


def _controllers(connection: Connection, one: Submission, job: JobElsewhere) -> list[tuple[PodState, bytes]]:
    """Returns the pods of the job's controller, at least one. Raises NotThere."""
    path = f"/api/v1/namespaces/{one.namespace}/pods"
    params = {"labelSelector": selector(one.name, ROLE_CONTROLLER)}
    try:
        items = page(connection.request("GET", path, params=params).content).items or ()
        pods = [(pod_of(bytes(raw), ROLE_CONTROLLER), bytes(raw)) for raw in items]
    except (ServerAway, NotRead) as error:
        raise NotThere(f"job {one.name} may be on the cluster, and {error}") from error
    except RequestFailed as error:
        raise NotThere(f"the pods of namespace {one.namespace} cannot be listed: {error}") from error
    if not pods:
        raise NotThere(f"{job.why_not_here}; nor is there one of that name in namespace {one.namespace}")
    return pods


def _place(connection: Connection, one: Submission, job: JobElsewhere) -> _Place:
    """Returns the running pod of the controller. Raises NotThere."""
    pods = _controllers(connection, one, job)
    running = [(pod, raw) for pod, raw in pods if pod.running and not pod.deleting]
    if running:
        pod, raw = running[-1]
        return _Place(pod.name, command_of(raw, ROLE_CONTROLLER) or "holdfast")
    raise NotThere(
        f"the controller of job {one.name} does not run now (pod {pods[-1][0].name}: {pods[-1][0].phase}); "
        f"its last lines: kubectl -n {one.namespace} logs {pods[-1][0].name}"
    )


def _run(connection: Connection, one: Submission, place: _Place, words: Sequence[str]) -> int:
    """Runs the command in the pod and returns its exit code. Raises NotThere."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    term = os.environ.get("TERM", "")
    command = (
        ["env", f"TERM={term}", place.program, *words] if is_terminal and term else [place.program, *words]
    )
    try:
        channel = open_exec(connection, one.namespace, place.pod, ROLE_CONTROLLER, command, tty=is_terminal)
    except RequestFailed as error:
        advice = "; ask for the rights get and create on pods/exec" if error.is_forbidden else ""
        raise NotThere(f"running a command in pod {place.pod} is not permitted: {error}{advice}") from error
    except ServerAway as error:
        raise NotThere(str(error)) from error
    threading.Thread(target=_pass_input, args=(channel,), daemon=True).start()
    with closing(channel), _raw(is_terminal), _watched_size(channel, is_terminal):
        while (piece := channel.receive()) is not None:
            out = sys.stderr if piece.channel == STDERR else sys.stdout
            out.buffer.write(piece.data)
            out.buffer.flush()
    if channel.why:
        raise NotThere(f"{place.pod}: {channel.why}")
    return channel.code


def _pass_input(channel: ExecChannel) -> None:
    while True:
        try:
            data = os.read(sys.stdin.fileno(), BLOCK_BYTES)
        except (OSError, ValueError):
            data = b""
        if not data:
            channel.end_of_input()
            return
        channel.write(data)


@contextmanager
def _raw(is_terminal: bool) -> Iterator[None]:
    """Context manager that sets the terminal to raw mode, so that keys are sent as they are typed."""
    if not is_terminal:
        yield
        return
    stdin = sys.stdin.fileno()
    before = termios.tcgetattr(stdin)
    try:
        tty.setraw(stdin)
        yield
    finally:
        termios.tcsetattr(stdin, termios.TCSADRAIN, before)


@contextmanager
def _watched_size(channel: ExecChannel, is_terminal: bool) -> Iterator[None]:
    def resized(number: int = 0, frame: FrameType | None = None) -> None:
        try:
            columns, rows = os.get_terminal_size(sys.stdout.fileno())
        except OSError:
            rows, columns = SIZE
        channel.resize(rows, columns)

    if not is_terminal:
        yield
        return
    before = signal.signal(signal.SIGWINCH, resized)
    try:
        resized()
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)
