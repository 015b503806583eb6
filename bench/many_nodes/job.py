"""A job on several nodes of this machine, seen from outside: what the benches of many nodes start, hit and measure.

Nodes are network namespaces (for root), the training is real DDP over gloo between them (training.py).
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.faults.systems.holdfast import summary_of
from bench.job.trial import BIN, TRAINING, Moment, Trial, holdfast_run, moments, training
from holdfast.agent.environment import free_port
from holdfast.agent.launch import marked
from holdfast.agent.part import LOOPBACK
from holdfast.core.workers.standby import STANDBY
from holdfast.engines.local.hosts import Hosts, clear, folders, found
from holdfast.engines.local.nodes import agent_of
from holdfast.journal.rows import Entry
from holdfast.journal.store import JournalUnusable, open_reader

RANKS = 4
LOOK_S = 0.05
FOR_EVER = 10**6  # steps
END_S = 60.0
SCRIPTS = (b"training.py", b"lockstep.py")
COMMANDS = {
    "torch": (str(BIN / "torchrun"), "--nproc-per-node", "1", str(TRAINING)),
    "lockstep": (sys.executable, "-S", str(Path(__file__).with_name("lockstep.py"))),
}

# Events whose first after a fault is a step on the way. What Slurm takes lies between the finding that the job is moved
# (by the controller that leaves) and the event (by the one that comes).
STAMPED = (
    "rank-exited",
    "node-lost",
    "verdict-reached",
    "attempt-stopped",
    "job-moved",
    "controller-resumed",
    "workers-placed",
    "nodes-checked",
    "attempt-started",
)
MOVED = "job-moved"


class ManyJob:
    """A started job of `RANKS` workers with a rank each. `state`: its state folder.

    `kind`: of training: "torch" (training.py under torchrun), or "lockstep" (lockstep.py, without either).
    """

    def __init__(
        self, folder: Path, *flags: str, spares: int, steps: int, step_s: float = 0.02, kind: str = "torch"
    ) -> None:
        self.folder, self.state = folder, folder / "state"
        self._read: dict[Path, int] = {}
        self._moments: list[Moment] = []
        nodes = ("--job", "bench", "--nnodes", str(RANKS), "--spares", str(spares), "--hosts", "netns")
        command = COMMANDS[kind]
        words = training(folder, steps=steps, step_s=step_s)[1:]
        self.trial = Trial([*holdfast_run(self.state, *nodes, *flags), *command, *words], folder)

    @property
    def path(self) -> Path:
        return self.state / "jobs" / "bench"

    @property
    def hosts(self) -> Hosts:
        return found(self.path)

    def moments(self) -> list[Moment]:
        """All that the ranks have told so far; each file is read on from where it was."""
        for path in self.folder.glob("events.*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(whole) + len(newline)
            for line in whole.splitlines():
                with suppress(msgspec.MsgspecError):  # torn by a kill
                    self._moments.append(msgspec.json.decode(line, type=Moment))
        return self._moments

    def last_step(self) -> int:
        """The last step that a rank has made in any attempt; 0 before the first."""
        return max((moment.step for moment in self.moments() if moment.kind == "step"), default=0)

    def entries(self) -> list[Entry]:
        """The journal so far."""
        try:
            reader = open_reader(self.path / "journal.db")
        except (JournalUnusable, OSError):
            return []
        try:
            return list(reader.read())
        finally:
            reader.close()

    def found_s(self, after_s: float) -> float | None:
        """When the first incident after that moment was opened."""
        summary = summary_of(self.state)
        all_s = [incident.found_at_s for incident in summary.incidents] if summary else []
        return min((at_s for at_s in all_s if at_s > after_s), default=None)

    def first_event_s(self, kind: str, after_s: float) -> float | None:
        """When the journal first had one of that kind after that moment."""
        told = (json.loads(entry.event) for entry in self.entries() if entry.kind == kind)
        return min((one["at_s"] for one in told if one["at_s"] > after_s), default=None)

    def stands_ready(self) -> bool:
        """Whether the present attempt's successor was said to stand ready in all workers."""
        attempt = self.attempt()
        found = (json.loads(entry.event) for entry in self.entries() if entry.kind == "finding-noted")
        return any(one["finding"] == STANDBY and one["attempt"] == attempt for one in found)

    def first_steps(self, after_s: float) -> dict[int, float]:
        """By rank that was begun after that moment: its first step since."""
        begun: dict[int, float] = {}
        steps: dict[int, float] = {}
        for moment in self.moments():
            if moment.at_s <= after_s:
                continue
            if moment.kind == "begun":
                begun.setdefault(moment.rank, moment.at_s)
            elif moment.kind == "step" and moment.rank in begun:
                steps.setdefault(moment.rank, moment.at_s)
        return steps

    def stamps(self, after_s: float) -> dict[str, float]:
        """Seconds after that moment, of each step: by the journal, by what agents have left, and by the ranks themselves."""
        found: dict[str, float] = {}
        for event in (json.loads(entry.event) for entry in self.entries()):
            name = f"said {MOVED}" if event.get("finding") == MOVED else event["kind"]
            if event["at_s"] > after_s and name.removeprefix("said ") in STAMPED:
                found.setdefault(name, event["at_s"])
        last = self.path / f"attempt-{self.attempt():03d}"
        for name in ("gate.held", "beside.held", "gate.ready", "beside.ready", "rank-*.ready"):
            made_s = [path.stat().st_mtime for path in last.glob(f"worker-*/{name}")]
            if made_s and max(made_s) > after_s:
                found[f"last {name}"] = max(made_s)
        for moment in self.moments():
            if moment.at_s > after_s and moment.kind in ("begun", "imported", "met", "resumed"):
                found[f"last {moment.kind}"] = max(moment.at_s, found.get(f"last {moment.kind}", 0.0))
        return {
            name: round(at_s - after_s, 2) for name, at_s in sorted(found.items(), key=lambda one: one[1])
        }

    def rank(self, rank: int) -> tuple[int, str]:
        """The process of a rank that takes part in the present attempt, and its node. raises: LookupError"""
        attempt = self.attempt()
        wanted = (str(rank), str(attempt))
        for pid, env in self._environments():
            if (env.get("RANK"), env.get("HOLDFAST_ATTEMPT")) == wanted and _is_script(pid):
                return pid, env["HOLDFAST_NODE"]
        raise LookupError(f"rank {rank} of attempt {attempt} does not run")

    def attempt(self) -> int:
        """The last that was started in full."""
        told = (json.loads(entry.event) for entry in self.entries())
        return max((one["attempt"] for one in told if one["kind"] == "attempt-started"), default=0)

    def of_worker(self, node: str, attempt: int | None = None) -> list[int]:
        """All processes of the training on a node: the launcher, the ranks, whatever they began.

        `attempt`: of this one alone; None: of all, of one that stands by too.
        """
        return [
            pid
            for pid, env in self._environments()
            if env.get("HOLDFAST_NODE") == node
            and "HOLDFAST_ATTEMPT" in env
            and (attempt is None or env["HOLDFAST_ATTEMPT"] == str(attempt))
        ]

    def agent(self, node: str) -> int | None:
        return agent_of(self.hosts, node)

    def _environments(self) -> Iterator[tuple[int, dict[str, str]]]:
        for pid in marked(self.trial._mark):
            try:
                pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            yield pid, dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)

    def wait_for(self, what: str, is_true: Callable[[], object], limit_s: float) -> None:
        """raises: TimeoutError; ChildProcessError, when the job ends meanwhile"""
        until_s = time.monotonic() + limit_s
        while not is_true():
            if time.monotonic() > until_s:
                raise TimeoutError(f"waited {limit_s:.0f} s for {what}")
            if self.trial.wait(LOOK_S):
                raise ChildProcessError(f"the job ended with {self.trial.process.returncode} before {what}")

    def end(self) -> int | None:
        """Asks it to end, and returns its exit code; None when it did not in time."""
        self.trial.process.send_signal(signal.SIGTERM)
        return self.trial.process.returncode if self.trial.wait(END_S) else None

    def left(self) -> list[str]:
        """What a job that has ended left behind."""
        wrong = [f"process {pid}: {_command(pid).decode(errors='replace')}" for pid in self.trial.left()]
        if self.path in folders():
            wrong.append("nodes")
        return wrong

    def clear(self) -> None:
        clear(self.path)
        self.trial.clear()


def plain_start_s(folder: Path, limit_s: float) -> float | None:
    """How long the same workers take from their start to the last rank's first step, on this machine and by themselves.

    None: longer than the limit.
    """
    place = ("--nnodes", str(RANKS), "--master-addr", LOOPBACK, "--master-port", str(free_port()))
    words = training(folder, steps=FOR_EVER)
    torchrun, *flags = COMMANDS["torch"][:-1]
    trials, begun_s = [], time.time()
    try:
        for node in range(RANKS):
            command = [torchrun, *place, "--node-rank", str(node), *flags, *words]
            trials.append(Trial(command, folder))
        while time.time() < begun_s + limit_s:
            stepped = {one.rank: one.at_s for one in reversed(moments(folder)) if one.kind == "step"}
            if len(stepped) == RANKS:
                return round(max(stepped.values()) - begun_s, 3)
            time.sleep(LOOK_S)
        return None
    finally:
        for trial in trials:
            trial.clear()


@contextmanager
def many_job(folder: Path, *flags: str, **more: Any) -> Iterator[ManyJob]:
    """A job that is gone afterwards, however the block ends."""
    folder.mkdir(parents=True)
    job = ManyJob(folder, *flags, **more)
    try:
        yield job
    finally:
        job.clear()


def refuse_without_root() -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        sys.exit("this bench makes network namespaces: it needs root, iproute2 and util-linux")


def _is_script(pid: int) -> bool:
    return any(script in _command(pid) for script in SCRIPTS)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""
