"""How soon a training on four Slurm nodes goes on after a fault: Slurm alone beside Holdfast, in the same run.

A real Slurm cluster of six nodes, each in namespaces of its own on this machine (for root, with Debian's slurm-wlm);
four ranks train over gloo between them, 20 ms a step, process start included. SlurmdTimeout is 10 s: Slurm's own
default is 300 s. Slurm alone starts its job again by `--requeue`; the fault is the crash of a node that is not the first.
Holdfast is struck once the next attempt's processes stand ready (`--strike early`: 12 s after the first step).
`plain`: the same four torchrun workers from sbatch to their first steps, without Holdfast and without a fault, in the same
run: what a job that is moved whole cannot beat.

    python -m bench.slurm.recovery --runs 3 --wait-quiet 60
"""

import argparse
import os
import random
import shlex
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.job.rows import Row, collected
from bench.job.trial import BIN, Trial, compile_holdfast, end_on_sigterm, holdfast_run, training, wait_quiet
from bench.many_nodes.job import COMMANDS, RANKS, ManyJob
from bench.many_nodes.recovery import FOR_EVER, READY_S, STEPS_AFTER, STEPS_BEFORE, steps
from bench.many_nodes.recovery import _spread as spread

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from slurm.cluster import Cluster
from slurm.machine import can_have_namespaces, missing

START_S, AGAIN_S = 300.0, 480.0  # on a busy machine; Slurm alone waits for 150 s by itself
SLURMD_TIMEOUT_S = 10  # until Slurm itself takes a node for down
RESTARTS = ("--max-restarts", "128", "--unconditional-restart")
REPLACE = (*RESTARTS, "--replace-workers", "128")
ALONE = """#!/bin/sh
#SBATCH --nodes=4 --exclusive --mem=0 --requeue --open-mode=append --output=said-by-slurm
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
exec srun --mem=0 sh -c 'exec {torchrun} --nproc-per-node 1 --nnodes 4 --node-rank "$SLURM_PROCID" \\
  --master-addr '"$head"' --master-port 29500 {training}'
"""


class SlurmJob(ManyJob):
    """The job under Holdfast, or alone; followed until it ends."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        flags: tuple[str, ...],
        *,
        spares: int,
        alone: bool = False,
        kind: str = "torch",
    ) -> None:
        self.folder, self.state, self.cluster, self.alone = folder, folder / "state", cluster, alone
        self._read, self._moments = {}, []
        words = training(folder, steps=FOR_EVER, step_s=0.02)
        torchrun = str(BIN / "torchrun")
        if alone:
            (folder / "alone.sh").write_text(ALONE.format(torchrun=torchrun, training=shlex.join(words)))
            command = ["sbatch", "--wait", "--job-name=bench", "alone.sh"]
        else:
            at = ("--job", "bench", "--engine", "slurm", "--nnodes", str(RANKS), "--spares", str(spares))
            command = [*holdfast_run(self.state, *at, *flags), *COMMANDS[kind], *words[1:]]
        inside = cluster.words("ctl", "env", f"--chdir={folder}", *command)
        self.trial = Trial(inside, folder, cluster.env)

    def victim(self) -> tuple[int, int]:
        """A rank's process, and the number of its node, which is not the first of the job."""
        first = self.cluster.ctl("squeue", "-h", "-n", "bench", "-o", "%B")
        ranks = list(range(RANKS))
        random.shuffle(ranks)
        for rank in ranks:
            pid, node = self.rank(rank)
            if node != first:
                return pid, int(node.removeprefix("n"))
        raise LookupError("all ranks run on the first node")

    def nodes(self) -> list[int]:
        """Their numbers, as Slurm has them: not always its first ones, where some have only just booted."""
        job = self.cluster.ctl("squeue", "-h", "-n", "bench", "-o", "%N")
        return [
            int(name.removeprefix("n"))
            for name in self.cluster.ctl("scontrol", "show", "hostnames", job).split()
        ]

    def end(self) -> int | None:
        self.cluster.ctl("scancel", "-n", "bench", check=False)
        return self.trial.process.returncode if self.trial.wait(60.0) else None

    def clear(self) -> None:
        self.cluster.ctl("scancel", "-n", "bench", check=False)
        self.trial.clear()
        self.cluster.restore()


def kill_rank(job: SlurmJob) -> None:
    os.kill(job.victim()[0], signal.SIGKILL)


def crash_node(job: SlurmJob) -> None:
    job.cluster.crash(job.victim()[1])


def lose_power(job: SlurmJob) -> None:
    job.cluster.lose_power(job.victim()[1])


def requeue(job: SlurmJob) -> None:
    job.cluster.ctl("scontrol", "requeue", job.cluster.ctl("squeue", "-h", "-n", "bench", "-o", "%A"))


def crash_all(job: SlurmJob) -> None:
    """The power of the whole allocation is lost, and comes back: Slurm learns it from the slurmd that begin anew."""
    nodes = job.nodes()
    for number in nodes:
        job.cluster.crash(number)
    for number in nodes:
        job.cluster.boot(number)


def crash_alone(job: SlurmJob) -> None:
    job.cluster.crash(random.choice(job.nodes()[1:]))


# What strikes, flags, spares, without Holdfast
FAULTS: dict[str, tuple[Callable[[SlurmJob], None], tuple[str, ...], int, bool]] = {
    "rank killed": (kill_rank, REPLACE, 1, False),
    "node crashed": (crash_node, REPLACE, 1, False),
    "node without power": (lose_power, REPLACE, 1, False),
    "node crashed, no spare": (crash_node, RESTARTS, 0, False),
    "requeued by Slurm": (requeue, RESTARTS, 0, False),
    "all nodes crashed and booted": (crash_all, RESTARTS, 0, False),
    "node crashed, Slurm alone": (crash_alone, (), 0, True),
}
TARGETS_S = {"rank killed": 8, "node crashed": 12, "node without power": 25, "node crashed, no spare": 20}


def main() -> int:
    options = read_options()
    compile_holdfast()
    if lacking := missing():
        sys.exit(f"this bench needs Slurm (make slurm): {', '.join(lacking)} missing")
    if not can_have_namespaces():
        sys.exit("this bench makes namespaces: it needs root")
    end_on_sigterm()
    random.seed(options.seed)
    cluster = Cluster(timeout_s=SLURMD_TIMEOUT_S)
    try:
        cluster.start()
        rows = collected(all_runs(cluster, options), options.out)
    finally:
        cluster.stop()
    print(table(rows))
    return 0 if all(row["wrong"] == [] for row in rows) else 1


def all_runs(cluster: Cluster, options: argparse.Namespace) -> Iterator[Row]:
    for run in range(options.runs):
        plain_s = plain(cluster, options)
        for fault in options.faults:
            yield measured(cluster, fault, run, options) | {"plain_s": plain_s}


def read_options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--faults", type=lambda text: text.split(";"), default=list(FAULTS))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of ranks")
    parser.add_argument("--strike", choices=["ready", "early"], default="ready", help="as in many_nodes.py")
    parser.add_argument("--out", type=Path, default=Path("out/slurm_recovery.jsonl"))
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="S", help="for an idle machine")
    return parser.parse_args()


def plain(cluster: Cluster, options: argparse.Namespace) -> float | None:
    """From sbatch to the first step of the last rank; None: that took too long."""
    if options.wait_quiet:
        wait_quiet(options.wait_quiet)
    begun_s = time.time()
    with tempfile.TemporaryDirectory(prefix="slurm-plain-") as folder:
        job = SlurmJob(cluster, Path(folder), (), spares=0, alone=True)
        try:
            job.wait_for("the first steps", lambda: len(job.first_steps(begun_s)) == RANKS, START_S)
            return round(max(job.first_steps(begun_s).values()) - begun_s, 3)
        except (TimeoutError, ChildProcessError):
            return None
        finally:
            job.clear()


def measured(cluster: Cluster, fault: str, run: int, options: argparse.Namespace) -> Row:
    quiet = wait_quiet(options.wait_quiet) if options.wait_quiet else None
    folder = Path(tempfile.mkdtemp(prefix="slurm-recovery-"))
    strike, flags, spares, alone = FAULTS[fault]
    row: Row = {
        "fault": fault,
        "run": run,
        "quiet": quiet,
        "found_s": None,
        "stepping_s": None,
        "folder": str(folder),
    }
    wrong: list[str] = []
    job = SlurmJob(cluster, folder, flags, spares=spares, alone=alone)
    try:
        row |= one_fault(job, strike, is_early=alone or options.strike == "early")
        job.end()
        wrong += [f"process {pid} was left" for pid in job.trial.left()]
    except (TimeoutError, ChildProcessError, LookupError) as error:
        wrong.append(str(error))
    finally:
        job.clear()
    row["wrong"] = wrong
    return row


def one_fault(job: SlurmJob, strike: Callable[[SlurmJob], None], *, is_early: bool) -> Row:
    """Seconds from the fault to its incident, and to the first step of the last rank after it."""
    job.wait_for("the first steps", lambda: steps(job, 0.0) >= STEPS_BEFORE, START_S)
    if not is_early:
        job.wait_for("the next attempt to stand ready", job.stands_ready, READY_S)
    struck_s = time.time()
    strike(job)
    job.wait_for("steps after the fault", lambda: len(job.first_steps(struck_s)) == RANKS, AGAIN_S)
    again_s = max(job.first_steps(struck_s).values())
    job.wait_for("more steps", lambda: steps(job, again_s) >= STEPS_AFTER, AGAIN_S)
    found_s = job.found_s(struck_s)
    noted = None if found_s is None else round(found_s - struck_s, 3)
    return {
        "found_s": noted,
        "stepping_s": round(again_s - struck_s, 3),
        "stamps": {} if job.alone else job.stamps(struck_s),
    }


def table(rows: list[Row]) -> str:
    lines = [
        "| fault | runs | found | training again | at most | of a plain start | as it should be |",
        "|---" * 7 + "|",
    ]
    for fault in dict.fromkeys(str(row["fault"]) for row in rows):
        of = [row for row in rows if row["fault"] == fault]
        good = sum(row["wrong"] == [] for row in of)
        limit = f"{TARGETS_S[fault]} s" if fault in TARGETS_S else "–"
        parts = [
            float(str(row["stepping_s"])) / float(str(row["plain_s"]))
            for row in of
            if row.get("stepping_s") and row.get("plain_s")
        ]
        part = f"{statistics.median(parts):.2f}" if parts else "–"
        cells = (fault, str(len(of)), spread(of, "found_s"), spread(of, "stepping_s"), limit, part)
        lines.append(f"| {' | '.join(cells)} | {good} of {len(of)} |")
    lines.append(f"\nplain: {spread(rows, 'plain_s')}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
