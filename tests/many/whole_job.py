"""A whole job on many nodes, seen from outside: the real command line, real agents, real ranks, and faults for them."""

import json
import os
import signal
import sys
from pathlib import Path

from holdfast.engines.local.hosts import clear, found
from holdfast.engines.local.nodes import agent_of
from run.place import Place, is_over, state, wait_for

TRAINING = Path(__file__).with_name("training.py")
LONG_S = 300.0  # only a hung test waits so long


WORKERS = 3  # the first, one that fails, and one that is neither


class WholeJob(Place):
    """A place to run a job of several workers in; `hosts`: what its nodes are. `workers`: of the job."""

    def __init__(self, path, cache, hosts="processes", workers=WORKERS):
        super().__init__(path, cache)
        self.workers = workers
        # What is compiled once for all: three of these tests begin several Pythons at once on a small machine.
        self.env |= {"HOLDFAST_HOSTS": hosts, "HOLDFAST_STANDBY": "false", "HOLDFAST_GRACE": "3s"}

    def train(self, *flags, workers=None, spares=1, ranks=1, **more):
        """`holdfast run` of the small training, under way."""
        workers = self.workers = workers or self.workers
        words = ("--nnodes", workers, "--spares", spares, *flags, "--", sys.executable, "-S", TRAINING, ranks)
        return self.run(*words, **more)

    def attach(self, **more):
        return self.start("attach", "t", **more)

    @property
    def nodes(self):
        return found(self.job())

    def agent(self, node):
        return wait_for(
            lambda: f"an agent on {node}:\n{self.said()}", lambda: agent_of(self.nodes, node), LONG_S
        )

    def rank(self, rank, attempt=1):
        """The process of a rank, by its number on this machine."""
        return wait_for(
            lambda: f"rank {rank} of attempt {attempt}:\n{self.said()}",
            lambda: self._rank(rank, attempt),
            LONG_S,
        )

    def _rank(self, rank, attempt):
        wanted = {f"RANK={rank}".encode(), f"HOLDFAST_ATTEMPT={attempt}".encode()}
        for pid in self.left():
            words = words_of(pid, "cmdline")
            if (
                len(words) == 4
                and words[-1].endswith(b"many/training.py")
                and wanted <= set(words_of(pid, "environ"))
            ):
                return pid
        return None

    def ranks(self, attempt=1):
        """The processes of its ranks, of which each worker has one."""
        return [self.rank(rank, attempt) for rank in range(self.workers)]

    def given_to(self, attempt=1, count=None):
        """What each rank of the attempt found in its environment. `count`: of ranks, if a worker has several."""
        return [self._given(rank, attempt) for rank in range(count or self.workers)]

    def _given(self, rank, attempt):
        def noted():
            lines = map(json.loads, self.notes(f"given-{rank}"))
            return next((line for line in lines if line["HOLDFAST_ATTEMPT"] == str(attempt)), None)

        return wait_for(lambda: f"rank {rank} of attempt {attempt}:\n{self.said()}", noted, LONG_S)

    def placed(self, attempt=1):
        """By worker: the node it runs on; of a rank each."""
        return [
            one["HOLDFAST_NODE"]
            for one in sorted(self.given_to(attempt), key=lambda one: int(one["NODE_RANK"]))
        ]

    def spare(self):
        """The node that attempt 1 left over."""
        (one,) = set(self.nodes.names) - set(self.placed())
        return one

    def steps(self, attempt):
        """How many steps the attempt has taken."""
        try:
            return int((self.path / f"at-{attempt}-0").read_text())
        except (OSError, ValueError):
            return 0

    def trains(self, attempt=1, more=5):
        """Waits until this attempt has taken some more steps."""
        before = self.steps(attempt)
        wait_for(
            lambda: f"steps of attempt {attempt}, {before} so far:\n{self.said()}",
            lambda: self.steps(attempt) >= before + more,
            LONG_S,
        )
        return self

    def waits_for(self, kind, test=lambda event: True):
        """The first event of the journal that is so."""
        return wait_for(
            lambda: f"{kind} in the journal:\n{self.said()}",
            lambda: next(filter(test, self.events(kind)), None),
            LONG_S,
        )

    def kill(self, pid):
        os.kill(pid, signal.SIGKILL)
        wait_for(f"the end of {pid}", lambda: is_over(pid))

    def kill_rank(self, rank, attempt=1):
        pid = self.rank(rank, attempt)
        self.found(rank, attempt)
        self.kill(pid)

    def ends_well(self):
        self.go()
        run = self.runs[-1]
        assert run.code(LONG_S) == 0, self.said()
        self.nothing_left(LONG_S)
        return run

    def said(self):
        """All that was said so far, for a test that fails."""
        parts = [f"--- {run._err.name}\n{run.err}" for run in self.runs]
        parts += [
            f"--- {log.parent.name}\n{log.read_text()}"
            for log in sorted(self.job().glob("nodes/*/agent.log"))
        ]
        return "\n".join(parts)

    def left(self):
        """Of this user's processes in all namespaces, those that carry our mark."""
        return [pid for pid in super().left() if state(pid)]

    def end(self):
        try:
            clear(self.job())
        finally:
            super().end()


def words_of(pid, name):
    """Of its command line or environment; none where it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return []
