"""How soon a training on four pods goes on after a fault, with one spare pod beside them.

The API server and kubelets of the tests run pods as processes of this machine; four ranks train in lockstep over TCP
(`--training torch`: DDP over gloo under torchrun), 20 ms a step. The wall clock says when the fault struck and when all four
ranks had made a step again. `writes`: requests that changed something on the cluster until then.

    hang            one rank is stopped (SIGSTOP); `named`: when the verdict is in the journal
    job rescheduled  a rank is killed, and all pods are made anew (--reschedule-pods)
    node frozen     all processes of a pod and its kubelet stop; connections stay open
    … without node rights  the same, without any right to see nodes
    server away     the API server drops all connections, from 2 s before the fault on, for `--away` seconds

    python -m bench.kubernetes.recovery --runs 5 --wait-quiet 60
"""

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.job.rows import Row, collected
from bench.job.trial import compile_holdfast, end_on_sigterm, wait_quiet
from bench.kubernetes.job import KubernetesJob
from bench.many_nodes.job import COMMANDS, FOR_EVER, RANKS

START_S, AGAIN_S = 180.0, 180.0
STEPS_BEFORE = 300
AWAY_BEFORE_S = 2.0
NO_NODE_RIGHTS = [["watch", "nodes"], ["patch", "nodes"]]


def kill_rank(job: KubernetesJob) -> None:
    os.kill(job.rank(_victim())[0], signal.SIGKILL)


def stop_rank(job: KubernetesJob) -> None:
    os.kill(job.rank(_victim())[0], signal.SIGSTOP)


def kill_pod(job: KubernetesJob) -> None:
    job.server.control("kill-pod", pod=job.rank(_victim())[1])


def freeze_node(job: KubernetesJob) -> None:
    job.server.control("freeze", node=job.node_of(job.rank(_victim())[1]))


# The fault, what the issue allows until all ranks step again (None: until it is named), and whether nodes may be seen.
FAULTS: dict[str, tuple[Callable[[KubernetesJob], None], float, bool]] = {
    "rank killed": (kill_rank, 2.5, True),
    "hang": (stop_rank, 10.0, True),
    "job rescheduled": (kill_rank, 20.0, True),
    "pod killed": (kill_pod, 5.0, True),
    "node frozen": (freeze_node, 18.0, True),
    "node frozen without node rights": (freeze_node, 18.0, False),
}


FLAGS = {"job rescheduled": ("--reschedule-pods",)}


def _victim() -> int:
    return random.randrange(RANKS)


def main() -> int:
    options = read_options()
    compile_holdfast()
    end_on_sigterm()
    random.seed(options.seed)
    rows = collected(
        (measured(fault, run, options) for run in range(options.runs) for fault in options.faults),
        options.out,
    )
    print(table(rows))
    return 0 if all(row["wrong"] == [] for row in rows) else 1


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=lambda text: text.split(","), default=list(FAULTS))
    parser.add_argument("--kind", default="job", help="job, jobset, trainjob, volcano")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of ranks")
    parser.add_argument("--out", type=Path, default=Path("out/kubernetes.jsonl"))
    parser.add_argument("--away", type=float, default=0.0, metavar="S", help="of the API server; 0: it stays")
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="S", help="for an idle machine")
    parser.add_argument("--training", choices=list(COMMANDS), default="lockstep")
    parser.add_argument("--flag", action="append", default=[], help="one more for holdfast run")
    return parser.parse_args()


def measured(fault: str, run: int, options: argparse.Namespace) -> Row:
    if options.wait_quiet:
        wait_quiet(options.wait_quiet)
    strike, _, sees_nodes = FAULTS[fault]
    with tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True) as folder:
        job = KubernetesJob(
            Path(folder),
            *options.flag,
            *FLAGS.get(fault, ()),
            steps=FOR_EVER,
            kind=options.kind,
            training_kind=options.training,
        )
        if not sees_nodes:
            job.server.control("deny", denied=NO_NODE_RIGHTS)
        row: Row = {"fault": fault, "run": run, "kind": options.kind, "away_s": options.away, "wrong": []}
        try:
            job.wait_for("steps", lambda: job.last_step() >= STEPS_BEFORE, START_S)
            row |= _struck(job, strike, options.away)
        except (TimeoutError, ChildProcessError, LookupError) as error:
            row["wrong"] = [str(error)]
            row["said"] = [line for _, line in job.trial.lines[-20:]]
        finally:
            job.clear()
    return row


def _struck(job: KubernetesJob, strike: Callable[[KubernetesJob], None], away_s: float) -> Row:
    job.writes()
    job.see_nodes()
    if away_s:
        job.server.control("faults", away=True)
        time.sleep(AWAY_BEFORE_S)  # bench: the server is away for so long before
    struck_s = time.time()
    strike(job)
    back_s = struck_s + away_s

    def again() -> bool:
        if away_s and time.time() >= back_s:
            job.server.control("faults", away=False)
        return len(job.first_steps(struck_s)) == RANKS

    job.wait_for("a step of all ranks", again, AGAIN_S)
    steps = job.first_steps(struck_s)
    found: Row = {"step_s": round(max(steps.values()) - struck_s, 2), "writes": len(job.writes())}
    for name, kind in (
        ("lost_s", "node-lost"),
        ("named_s", "verdict-reached"),
        ("placed_s", "workers-placed"),
    ):
        at_s = job.first_event_s(kind, struck_s)
        found[name] = None if at_s is None else round(at_s - struck_s, 2)
    found["stamps"] = job.stamps(struck_s)
    return found


def table(rows: list[Row]) -> str:
    lines = [
        f"{'fault':<32}{'median s':>10}{'worst s':>10}{'allowed':>10}{'named s':>10}{'writes':>8}{'runs':>6}"
    ]
    for fault, (_, allowed_s, _) in FAULTS.items():
        good = [row for row in rows if row["fault"] == fault and "step_s" in row]
        if not good:
            continue
        times = [float(str(row["step_s"])) for row in good]
        named = [float(str(row["named_s"])) for row in good if row["named_s"] is not None]
        most = max(int(str(row["writes"])) for row in good)
        lines.append(
            f"{fault:<32}{statistics.median(times):>10.2f}{max(times):>10.2f}{allowed_s:>10.1f}"
            f"{statistics.median(named) if named else float('nan'):>10.2f}{most:>8}{len(good):>6}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
