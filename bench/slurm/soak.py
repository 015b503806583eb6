"""Many random faults in a row on one job at a real Slurm; it must end well, and with the right result.

    python -m bench.slurm.soak --faults 30 --seed 1 --training lockstep

As many_soak.py, which says what is looked at afterwards, but the scheduler is one of what is struck: slurmd dies or stands
still, slurmctld is away. A node that crashed is booted again and given back to Slurm, as its operator would. Where no
spare is left the job is moved whole. Each node is in namespaces of its own on this machine (for root, with Debian's slurm-wlm).
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.job.trial import end_on_sigterm
from bench.many_nodes.job import COMMANDS, RANKS, refuse_without_root
from bench.many_nodes.soak import FLAGS, LONG_CUT_S, Fault, Soak, ended, said, struck
from bench.slurm.recovery import SLURMD_TIMEOUT_S, SlurmJob

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from slurm.cluster import Cluster
from slurm.machine import missing

AGENT = [b"-P", b"-m", b"holdfast", b"agent"]
CONTROLLER = [b"-P", b"-m", b"holdfast", b"run", b"--engine"]
DAEMON_AWAY_S = (1.0, 20.0)  # less than SLURMD_TIMEOUT_S, and more
SAVED_S = 15.0  # slurmctld writes its jobs down every few seconds


class SoakedJob(SlurmJob):
    """Told apart: its agents and its controller."""

    def agent(self, node: str) -> int | None:
        return self._process(AGENT, HOLDFAST_NODE=node)

    def controller(self) -> int | None:
        return self._process(CONTROLLER)

    def first(self) -> str:
        """The node of its batch script. Empty: it does not run just now."""
        return self.cluster.ctl("squeue", "-h", "-n", "bench", "-t", "R", "-o", "%B", check=False)

    def given(self) -> set[str]:
        """The nodes of its allocation."""
        listing = self.cluster.ctl("squeue", "-h", "-n", "bench", "-t", "R", "-o", "%N", check=False)
        return set(self.cluster.ctl("scontrol", "show", "hostnames", listing).split()) if listing else set()

    def _process(self, words: list[bytes], **wanted: str) -> int | None:
        for pid, env in self._environments():
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if command[1 : 1 + len(words)] == words and "SLURM_JOB_ID" in env:
                    if all(env.get(key) == value for key, value in wanted.items()):
                        return pid
        return None


class SlurmSoak(Soak):
    """The same faults by Slurm's means, and those of Slurm itself."""

    @property
    def cluster(self) -> Cluster:
        return self.job.cluster

    def node(self, *, at_work: bool) -> str:
        """Never the first of the job: with that, the batch script is lost. raises: LookupError"""
        working = {self.job.rank(rank)[1] for rank in range(RANKS)}
        here = self.job.given() - self.away - {self.job.first()}
        return self.dice.choice(sorted(here & working if at_work else here - working))

    def kill_controller(self) -> str:
        pid = self.job.controller()
        if pid is None:
            raise LookupError("no controller runs")
        os.kill(pid, signal.SIGKILL)
        return self.job.first()

    def kill_slurmd(self) -> str:
        number, away_s = self._given(), self.dice.uniform(*DAEMON_AWAY_S)
        self.cluster.kill_slurmd(number)
        self.after(away_s, lambda: self.cluster.start_slurmd(number))
        return f"n{number}, away for {away_s:.0f} s"

    def stop_slurmd(self) -> str:
        number, still_s = self._given(), self.dice.uniform(*DAEMON_AWAY_S)
        self.cluster.stop_slurmd(number)
        self.after(still_s, lambda: self.cluster.stop_slurmd(number, goes_on=True))
        return f"n{number}, for {still_s:.0f} s"

    def _given(self) -> int:
        """A node of the job whose slurmd runs. raises: LookupError, IndexError"""
        names = sorted(self.job.given() - self.away - self.struck_daemons())
        return int(self.dice.choice(names)[1:])

    def struck_daemons(self) -> set[str]:
        """Nodes whose slurmd is to be mended still: `later` holds what undoes it."""
        return {name for name in self.cluster.names if not self.cluster.slurmd_lives(int(name[1:]))}

    def kill_slurmctld(self) -> str:
        if not self.cluster.slurmctld_lives():
            raise LookupError("it is away")
        until_s = time.monotonic() + SAVED_S
        while not self.cluster.has_saved(self.job.folder, RANKS) and time.monotonic() < until_s:
            time.sleep(0.1)
        away_s = self.dice.uniform(*DAEMON_AWAY_S)
        self.cluster.kill_slurmctld()
        self.after(away_s, self.cluster.start_slurmctld)
        return f"away for {away_s:.0f} s"

    def _crash(self, node: str) -> str:
        number = int(node[1:])
        self.befallen.add(node)
        self.away.add(node)
        self.cluster.crash(number)

        def boot() -> None:
            self.cluster.boot(number)
            self.away.discard(node)
            self.after(5.0, lambda: self._give_back(node))

        self.after(self.dice.uniform(2.0, 20.0), boot)
        return node

    def _give_back(self, node: str) -> None:
        """As whoever looks after the cluster does, once a node is well again; later where slurmctld is away."""
        said = self.cluster.ctl("sinfo", "-h", "-N", "-n", node, "-o", "%T", check=False)
        if node in self.away or said.startswith(("idle", "alloc", "mix")):
            return
        self.cluster.ctl("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        self.after(5.0, lambda: self._give_back(node))

    def _cut(self, node: str, for_s: float) -> None:
        number = int(node[1:])
        self.cluster.cut(number)
        self.away.add(node)

        def join() -> None:
            self.cluster.join(number)
            self.away.discard(node)
            self.after(5.0, lambda: self._give_back(node))

        self.after(for_s, join)

    def own(self, node: str) -> Path:
        return Path(self.job.path) / "nodes" / node

    def inside(self, node: str, *words: str) -> None:
        self.cluster.on(node, *words)


FAULTS = {
    "rank": Fault(SlurmSoak.kill_rank, 5, breaks=True),
    "worker": Fault(SlurmSoak.kill_worker, 3, breaks=True),
    "agent": Fault(SlurmSoak.kill_agent, 4),
    "controller": Fault(SlurmSoak.kill_controller, 4),
    "node crash": Fault(SlurmSoak.crash_worker_node, 3, spoils=1, breaks=True),
    "link cut": Fault(SlurmSoak.cut_short, 3),
    "link cut for long": Fault(SlurmSoak.cut_long, 2, spoils=1, lasts_s=LONG_CUT_S),
    "slurmd killed": Fault(SlurmSoak.kill_slurmd, 3),
    "slurmd stands still": Fault(SlurmSoak.stop_slurmd, 2),
    "slurmctld killed": Fault(SlurmSoak.kill_slurmctld, 3),
    "full disk": Fault(SlurmSoak.fill_disk, 2),
}


def main() -> int:
    options = read_options()
    refuse_without_root()
    if lacking := missing():
        sys.exit(f"this bench needs Slurm (make slurm): {', '.join(lacking)} missing")
    end_on_sigterm()
    folder = Path(tempfile.mkdtemp(prefix="slurm-soak-"))
    begun_s = time.monotonic()
    counts: Counter[str] = Counter()
    with slurm_job(folder / "run", options) as job:
        soak = SlurmSoak(job, random.Random(options.seed), FAULTS)
        try:
            struck(soak, options, counts)
            wrong = ended(soak, options.training)
        except (TimeoutError, ChildProcessError, AssertionError) as error:
            wrong = [str(error)]
    return said("bench.slurm.soak", options, counts, wrong, time.monotonic() - begun_s, folder)


@contextmanager
def slurm_job(folder: Path, options: argparse.Namespace) -> Iterator[SoakedJob]:
    """On a cluster of its own; both are gone afterwards."""
    folder.mkdir(parents=True)
    cluster = Cluster(
        RANKS + options.spares + 1, timeout_s=SLURMD_TIMEOUT_S
    )  # one that the job does not have, to be moved to
    try:
        cluster.start()
        job = SoakedJob(cluster, folder, FLAGS, spares=options.in_job, kind=options.training)
        try:
            yield job
        finally:
            job.clear()
    finally:
        cluster.stop()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--spares", type=int, default=4, help="nodes that faults may cost, and one")
    parser.add_argument(
        "--in-job", type=int, default=2, help="how many of them the job is given as its spares"
    )
    parser.add_argument("--training", choices=list(COMMANDS), default="torch")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(FAULTS))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
