"""Journals for the tests of the views: real ones, written by the real controller."""

import msgspec

from holdfast.controller.loop import Controller
from holdfast.journal.jobdir import JobDir, StateDir
from holdfast.journal.rows import Row
from holdfast.journal.store import Store
from holdfast.model.events import (
    AnyEvent,
    AttemptStarted,
    AttemptStopped,
    FindingNoted,
    HangFound,
    JobSubmitted,
    NodeIsolated,
    NodeLost,
    Placed,
    RankExited,
    RankStarted,
    StepReached,
    VerdictReached,
    WorkerExited,
    WorkersPlaced,
)
from holdfast.model.orders import AnyOrder
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import Culprit, Evidence, Verdict

START_S = 1_767_280_798.25  # 2026-01-01 15:19:58 UTC
POLICY = Policy(max_restarts=8, unconditional_restart=True, hang_restart=True)
COMMAND = ("torchrun", "--nproc-per-node", "4", "train.py")
OOM = Verdict(
    category="gpu_oom",
    class_="memory",
    title="rank 2 ran out of GPU memory",
    confidence=0.97,
    action="reduce_memory",
    culprits=(Culprit(rank=2, worker=0, host="gpu-03", device="0000:5d:00.0"),),
    first_error=Evidence(text="CUDA out of memory", file="attempt-001/worker-0/rank-2.log", line=1812),
)


class Kept:
    """The record of a controller, straight into the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def record(self, row: Row) -> None:
        self._store.append([row])

    def flush(self) -> bool:
        return True


class Nobody:
    def carry_out(self, order: AnyOrder) -> None:
        pass


def write_job(
    state: StateDir,
    name: str,
    events: list[AnyEvent],
    *,
    policy: Policy | None = POLICY,
    command: tuple[str, ...] = COMMAND,
    host: str = "gpu-03",
) -> JobDir:
    """A job's folder with the journal of these events. `policy` None: the journal does not name its policy."""
    job = StateDir(state.root).create(name, events[0].at_s)
    store = Store.open(job.journal_path)
    if policy is not None:
        store.set_meta("policy", msgspec.json.encode(policy))
        facts = {
            "name": name,
            "command": command,
            "cwd": "/data",
            "host": host,
            "pid": 4242,
            "detach": False,
        }
        store.set_meta("job", msgspec.json.encode(facts))
    write_events(store, events, policy or Policy())
    store.close()
    return job


def write_events(store: Store, events: list[AnyEvent], policy: Policy, state: State | None = None) -> None:
    controller = Controller(policy, Kept(store), Nobody(), state=state)
    for event in events:
        controller.handle(event)


def started(at_s: float, attempt: int, node: str = "gpu-03", workers: int = 1) -> list[AnyEvent]:
    """An attempt of two ranks a worker, from its places to its ranks."""
    placed = tuple(
        Placed(worker, f"{node}{'' if workers == 1 else f'-{worker}'}") for worker in range(workers)
    )
    ranks = [
        RankStarted(
            at_s=at_s + 2, attempt=attempt, worker=rank // 2, rank=rank, pid=4800 + 10 * attempt + rank
        )
        for rank in range(2 * workers)
    ]
    return [
        WorkersPlaced(at_s=at_s, attempt=attempt, placed=placed),
        AttemptStarted(at_s=at_s + 0.5, attempt=attempt),
        *ranks,
    ]


def steps(at_s: float, attempt: int, first: int, last: int) -> list[AnyEvent]:
    """One a second."""
    return [
        StepReached(at_s=at_s + step - first, attempt=attempt, step=step) for step in range(first, last + 1)
    ]


def submitted(workers: int = 1) -> AnyEvent:
    return JobSubmitted(at_s=START_S, job="llama", workers=workers, command=COMMAND)


def failure(at_s: float, attempt: int, incident: int) -> list[AnyEvent]:
    """Rank 2 dies, is diagnosed, and everything is ended."""
    return [
        RankExited(at_s=at_s, attempt=attempt, worker=0, rank=2, code=1, reason="OutOfMemoryError"),
        WorkerExited(at_s=at_s + 0.4, attempt=attempt, worker=0, code=1),
        VerdictReached(at_s=at_s + 1, incident=incident, verdict=OOM, problem="oom"),
        AttemptStopped(at_s=at_s + 2, attempt=attempt),
    ]


def one_failure_and_on() -> list[AnyEvent]:
    """Fails at step 120, goes on from 101, and trains."""
    return [
        submitted(),
        *started(START_S + 1, 1),
        FindingNoted(
            at_s=START_S + 60,
            finding="slowdown",
            text="Smoothed mean (iters 83-87: 9465.00 ms, baseline: 3101.00 ms), threshold ratio:2.05. Warning",
            attempt=1,
            numbers={"mean_ms": 9465.0, "baseline_ms": 3101.0},
        ),
        *steps(START_S + 10, 1, 1, 120),
        *failure(START_S + 140, 1, 1),
        *started(START_S + 143, 2),
        *steps(START_S + 153, 2, 101, 140),
    ]


def hang_then_lost_node_then_success() -> list[AnyEvent]:
    """Two workers: a hang, restarted in place; then a node is lost and the job moves away from it."""
    hang_s, lost_s = START_S + 200, START_S + 400
    return [
        submitted(workers=2),
        *started(START_S + 1, 1, workers=2),
        *steps(START_S + 10, 1, 1, 50),
        HangFound(at_s=hang_s, attempt=1, hang="quiet", culprits=(1,), reason="rank 1 stands still"),
        VerdictReached(at_s=hang_s + 1, incident=1, verdict=OOM),
        AttemptStopped(at_s=hang_s + 5, attempt=1),
        AttemptStarted(at_s=hang_s + 6, attempt=2),
        *steps(hang_s + 20, 2, 51, 100),
        NodeLost(at_s=lost_s, node="gpu-03-1", reason="no answer for 30 s"),
        VerdictReached(at_s=lost_s + 1, incident=2, verdict=OOM),
        NodeIsolated(at_s=lost_s + 2, node="gpu-03-1"),
        AttemptStopped(at_s=lost_s + 4, attempt=2),
        *started(lost_s + 6, 3, node="gpu-07", workers=2),
        *steps(lost_s + 30, 3, 95, 130),
        WorkerExited(at_s=lost_s + 90, attempt=3, worker=0, code=0),
        WorkerExited(at_s=lost_s + 91, attempt=3, worker=1, code=0),
        AttemptStopped(at_s=lost_s + 92, attempt=3),
    ]
