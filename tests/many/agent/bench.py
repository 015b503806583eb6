"""Real agents, and a controller of a few lines: a real hub that notes what they tell, and says what a test wants."""

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

import msgspec

from forked.process import begun
from holdfast.agent import launch
from holdfast.link.arrived import Entry, Joined, Left, Refused, Said
from holdfast.link.hub import Hub
from holdfast.model.events import AttemptStopped, RankStarted
from holdfast.model.nodes.workers import (
    AgentHello,
    AnyCommand,
    AnyReport,
    EventReport,
    SetUp,
    StartWorker,
    StopWorker,
)
from holdfast.model.policy import Policy
from holdfast.model.settings import RunSettings
from holdfast.observe.clock import JobClock
from kernel_log import reader
from many.whole_job import words_of
from run.place import wait_for

HERE = Path(__file__).parent
TRAINING = HERE / "training.py"
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
WAIT_S = 100.0  # only a hung test waits so long
SECRET = "5a" * 32


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_over(pid):
    return state(pid) in ("", "Z", "X")


class Bench:
    """One job, `job`; its folder is shared with its agents unless they are told otherwise."""

    def __init__(self, path, cache, ranks=1):
        reader.begin()
        self.path = path
        self.cache = cache
        self.wait_s = WAIT_S
        self.job = f"job-{os.getpid()}-{path.name[-20:]}"
        self.folder = path / "state" / "jobs" / self.job
        self.folder.mkdir(parents=True)
        self.notes = path / "notes"
        self.notes.mkdir()
        (self.folder / "secret").write_text(SECRET)
        (self.folder / "shared-token").write_text("token-1")
        self.settings = RunSettings(
            command=(sys.executable, "-S", str(TRAINING), str(ranks)),
            state_dir=str(path / "state"),
            job=self.job,
            policy=Policy(boot_check="off", troubleshoot_wait_s=0.0),
            grace_s=2.0,
            quick_check_s=40.0,  # on a busy machine, too, all is looked at
        )
        self.agents = []
        self.hub = None
        self.reports = {}
        self.seqs = []
        self.hellos = {}
        self.left = []
        self.refused = []
        self.said = []
        self.listen()

    # The controller

    def listen(self, seen=None):
        """Begins, or begins again at another port."""
        self.hub = Hub(
            secret=bytes.fromhex(SECRET), listen=[("127.0.0.1", 0)], clock=JobClock(), seen=seen or {}
        )
        addresses = [f"{host}:{port}" for host, port in self.hub.addresses]
        document = {"addresses": addresses, "instance": "test", "protocol": 1}
        (self.folder / "controller.json").write_text(json.dumps(document))
        self.addresses = ",".join(addresses)

    def away(self):
        """The controller's process is gone."""
        self.hub.close()
        self.hub = None

    def turn(self):
        if self.hub is None:
            return
        select.select([self.hub], [], [], 0.02)
        for one in self.hub.turn():
            match one:
                case Joined():
                    self.hellos.setdefault(one.peer, []).append(
                        msgspec.msgpack.decode(one.hello, type=AgentHello)
                    )
                    self.say(one.peer, self.set_up())
                case Entry():
                    report = msgspec.msgpack.decode(one.body, type=AnyReport)
                    self.reports.setdefault(one.peer, []).append(report)
                    self.seqs.append((one.stream, one.seq))
                    self.hub.recorded(one.stream, one.seq)
                case Left():
                    self.left.append(one)
                case Refused():
                    self.refused.append(one)
                case Said():
                    self.said.append(one)

    def set_up(self):
        return SetUp(
            job=self.job,
            folder=str(self.folder),
            cwd=str(self.path),
            settings=self.settings,
            token="token-1",
        )

    def say(self, node, command: AnyCommand):
        return self.hub.say(node, msgspec.msgpack.encode(command))

    def order(self, node, order, command: AnyCommand):
        self.hub.order(node, order, msgspec.msgpack.encode(command))

    def start(self, node, attempt, worker=0, workers=1, port=29500, again=""):
        command = StartWorker(
            attempt=attempt,
            worker=worker,
            workers=workers,
            schedule_cnt=attempt - 1,
            proc_start_cnt=attempt,
            master_address="127.0.0.1",
            master_port=port,
            run_id=f"{self.job}-{attempt}-x",
        )
        self.order(node, f"attempt-{attempt}/start/{worker}{again}", command)

    def stop(self, node, attempt, again="", **how):
        command = StopWorker(attempt=attempt, reason="the test says so", **how)
        self.order(node, f"attempt-{attempt}/stop/{node}{again}", command)

    def stopped(self, node, attempt):
        return self.told(node, AttemptStopped, attempt=attempt)

    # What was told

    def until(self, what, is_true):
        """The first truthy answer of `is_true`, while the controller's wheel turns."""
        until_s = time.monotonic() + self.wait_s
        while not (answer := is_true()):
            words = "\n".join(agent.err for agent in self.agents)
            assert time.monotonic() < until_s, (
                f"waited {self.wait_s:g} s for {what}; {self.all_told()}\n{words}"
            )
            if self.hub is None:
                time.sleep(0.01)
            self.turn()
        return answer

    def events(self, node, kind):
        return [
            one.event
            for one in self.reports.get(node, ())
            if isinstance(one, EventReport) and isinstance(one.event, kind)
        ]

    def all_told(self):
        return {
            node: [str(getattr(one, "event", type(one).__name__))[:160] for one in reports[-30:]]
            for node, reports in self.reports.items()
        }

    def told(self, node, kind, **values):
        """The first event of this kind with these values."""

        def found():
            for one in self.events(node, kind):
                if all(getattr(one, key) == value for key, value in values.items()):
                    return one
            return None

        return self.until(f"{kind.__name__} {values} of {node}", found)

    def report(self, node, kind, fits=lambda one: True):
        def found():
            return next(
                (one for one in self.reports.get(node, ()) if isinstance(one, kind) and fits(one)), None
            )

        return self.until(f"{kind.__name__} of {node}", found)

    def joined(self, node, times=1):
        self.until(f"{node} to join", lambda: len(self.hellos.get(node, ())) >= times)
        return self.hellos[node][-1]

    # The training

    def given(self, rank, times=1):
        """What the rank was given at its `times`-th start."""
        path = self.notes / f"given-{rank}"
        self.until(
            f"start {times} of rank {rank}",
            lambda: path.exists() and path.read_text().count("\n") >= times,
        )
        return json.loads(path.read_text().splitlines()[times - 1])

    def do(self, rank, what):
        """Once the rank was found: of one that is over before the reaper's next look nothing is told."""
        self.until(f"rank {rank} to be found", lambda: self._is_found(rank))
        part = self.notes / f"part-{rank}"
        part.write_text(what)
        part.rename(self.notes / f"do-{rank}")

    def _is_found(self, rank):
        return any(one.rank == rank for node in self.reports for one in self.events(node, RankStarted))

    # Agents

    def agent(self, node="n0", **env):
        one = Agent(self, node, env)
        self.agents.append(one)
        return one

    def end(self):
        """Returns what was left running, which is an error."""
        try:
            for agent in self.agents:
                agent.end()
            wait_for("the end of the zygotes, by themselves", lambda: not self._zygotes())
            left = launch.sweep({"HOLDFAST_JOB": self.job})
            if self.hub is not None:
                self.hub.close()
            return left
        finally:
            reader.end()

    def _zygotes(self):
        pids = launch.marked({"HOLDFAST_JOB": self.job})
        return [pid for pid in pids if words_of(pid, "cmdline")[:2] == [b"holdfast", b"zygote"]]


class Agent:
    """One `holdfast agent`, as an engine starts it."""

    def __init__(self, bench, node, env):
        self.node = node
        self._err = bench.path / f"agent-{node}-{len(bench.agents)}.err"
        given = {
            "PATH": os.environ["PATH"],
            "HOME": str(bench.path),
            "XDG_CACHE_HOME": str(bench.cache),
            "HOLDFAST_JOB_FOLDER": str(bench.folder),
            "HOLDFAST_CONTROLLER": bench.addresses,
            "HOLDFAST_SECRET_FILE": str(bench.folder / "secret"),
            "HOLDFAST_NODE": node,
            "HOLDFAST_ADDRESS": "127.0.0.1",
            "NOTES": str(bench.notes),
        }
        given |= {key: str(value) for key, value in env.items()}
        words = [sys.executable, "-P", "-m", "holdfast", "agent"]
        with open(os.devnull, "r+b") as none, self._err.open("wb") as err:
            self.process = begun(
                words, {key: value for key, value in given.items() if value}, "/", (none, none, err)
            )

    @property
    def pid(self):
        return self.process.pid

    @property
    def err(self):
        return f"{self.node}: " + self._err.read_text(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
