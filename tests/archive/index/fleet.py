"""Writes jobs into a state folder as controllers do: each event is decided, and goes to a real journal."""

import socket
from contextlib import ExitStack
from pathlib import Path

import msgspec

from holdfast.archive.index.queries import JobsWanted, jobs_page
from holdfast.archive.index.service import IndexService
from holdfast.archive.places import Places
from holdfast.controller.loop import row_of
from holdfast.core.job.decide import decide
from holdfast.journal.jobdir import JobDir
from holdfast.journal.store import Store
from holdfast.model import events as ev
from holdfast.model.policy import Policy
from holdfast.model.state import State
from holdfast.model.verdicts import Culprit, Evidence, Verdict

BEGIN_S = 1_767_225_600.0
WAIT_S = 200.0  # only a hung test waits so long
NO_RESTARTS = Policy()


def verdict(
    category: str = "gpu_oom", title: str = "rank 3 ran out of GPU memory", first: str = "CUDA out of memory"
):
    return Verdict(
        category=category,
        class_="memory",
        title=title,
        confidence=0.9,
        culprits=(Culprit(rank=3, worker=0, host="n0"),),
        first_error=Evidence(text=first),
    )


class Job:
    """`tell` writes events at once. `hold`: supervise it, as a running Holdfast does."""

    def __init__(self, root: Path, name: str, at_s: float, policy: Policy, host: str) -> None:
        self.dir = JobDir(root / "jobs" / name)
        self.name, self.at_s, self.policy = name, at_s, policy
        self.state = State()
        self.dir.path.mkdir(parents=True)
        (self.dir.path / "created").write_text(f"{at_s!r}\n")
        self.store = Store.open(self.dir.journal_path)
        self.store.set_meta("policy", msgspec.json.encode(policy))
        labels = [f"team={name.partition('-')[2] or name}"]
        facts = {
            "name": name,
            "command": ["train", f"{name}.py"],
            "host": host,
            "settings": {"labels": labels},
        }
        self.store.set_meta("job", msgspec.json.encode(facts))
        self._held = ExitStack()

    def tell(self, *events: ev.AnyEvent, after_s: float = 1.0) -> "Job":
        rows = []
        for event in events:
            self.at_s += after_s
            event = msgspec.structs.replace(event, at_s=self.at_s)
            decision = decide(self.state, event, self.policy)
            self.state = decision.state
            rows.append(row_of(event, decision))
        self.store.append(rows)
        return self

    def begins(self, *nodes: str) -> "Job":
        attempt = self.state.job.attempt + 1
        return self.tell(
            *([ev.JobSubmitted(at_s=0.0, job=self.name, workers=len(nodes))] if attempt == 1 else []),
            ev.WorkersPlaced(
                at_s=0.0, attempt=attempt, placed=tuple(ev.Placed(n, node) for n, node in enumerate(nodes))
            ),
            ev.AttemptStarted(at_s=0.0, attempt=attempt),
        )

    def steps(self, first: int, last: int) -> "Job":
        attempt = self.state.job.attempt
        return self.tell(*(ev.StepReached(at_s=0.0, attempt=attempt, step=n) for n in range(first, last + 1)))

    def fails(self, found: Verdict | None = None) -> "Job":
        attempt, number = self.state.job.attempt, self.state.job.incidents + 1
        found = found or verdict()
        return self.tell(
            ev.RankExited(at_s=0.0, attempt=attempt, worker=0, rank=3, code=1),
            ev.VerdictReached(at_s=0.0, incident=number, verdict=found),
            ev.AttemptStopped(at_s=0.0, attempt=attempt),
        )

    def succeeds(self) -> "Job":
        attempt, workers = self.state.job.attempt, len(self.state.job.workers)
        exits = [ev.WorkerExited(at_s=0.0, attempt=attempt, worker=n, code=0) for n in range(workers)]
        return self.tell(*exits, ev.AttemptStopped(at_s=0.0, attempt=attempt))

    def hold(self) -> "Job":
        self._held.enter_context(self.dir.lock())
        return self

    def let_go(self) -> "Job":
        """As after a kill of the supervisor: nobody holds the job."""
        self._held.close()
        return self

    def close(self) -> "Job":
        self.let_go()
        self.store.close()
        return self


class Fleet:
    """The jobs of one state folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs: dict[str, Job] = {}
        self._open = ExitStack()

    def job(
        self, name: str, at_s: float = BEGIN_S, policy: Policy = NO_RESTARTS, host: str = socket.gethostname()
    ) -> Job:
        made = self.jobs[name] = Job(self.root, name, at_s, policy, host)
        self._open.callback(made.close)
        return made

    def served(self, url, *more: Path, processes: int = 0, fleet: Path | None = None) -> IndexService:
        """An index of this folder, running until the end of the test."""
        service = IndexService(Places([self.root, *more]), url, processes=processes, fleet=fleet)
        self._open.callback(service.stop)
        service.start()
        return service

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


def listed(service: IndexService, **wanted):
    return jobs_page(service.database, JobsWanted(**wanted), 0.0)


def until(service: IndexService, done, within_s: float = WAIT_S):
    """What `done` returned when it was true."""
    found = []

    def is_done(asked: IndexService) -> bool:
        found[:] = [done(asked)] if asked.is_current else [None]
        return bool(found[0])

    assert service.wait(is_done, within_s), (service.state, found)
    return found[0]
