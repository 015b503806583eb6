"""How soon a training on four nodes goes on after a fault, with one spare node beside them.

Nodes are network namespaces on this machine; four ranks train over gloo between them (`--training lockstep`: without
PyTorch, over TCP), 20 ms a step. The wall clock says when the fault struck, when it was noticed, and when all four ranks
had made a step again, process start included. The journal says where the time went.

It strikes once the next attempt's processes stand ready, or after 12 s of training (`--strike early`), when on few cores
they have not made their imports yet. `plain`: four torchrun workers from their start to their first step without
Holdfast, in the same run: what a start cannot beat that finds nothing ready.

    python -m bench.many_nodes.recovery --runs 5 --wait-quiet 60
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.job.rows import Row, collected
from bench.job.trial import compile_holdfast, end_on_sigterm, wait_quiet
from bench.many_nodes.job import (
    COMMANDS,
    FOR_EVER,
    RANKS,
    ManyJob,
    many_job,
    plain_start_s,
    refuse_without_root,
)

START_S, READY_S, AGAIN_S = 180.0, 180.0, 120.0
STEPS_BEFORE, STEPS_AFTER = 600, 20  # 12 s of training
PARTS = {"verdict": "verdict-reached", "stopped": "attempt-stopped", "started": "attempt-started"}

REPLACE = ("--max-restarts", "128", "--unconditional-restart", "--replace-workers", "128")
RESCHEDULE = ("--max-restarts", "128", "--unconditional-restart")
TARGETS_S = {
    "rank killed": 8,
    "launcher and ranks killed": 8,
    "worker killed": 8,
    "node crashed": 12,
    "link cut": 25,
    "job rescheduled": 20,
}


def kill_rank(job: ManyJob) -> None:
    os.kill(job.rank(_victim())[0], signal.SIGKILL)


def kill_worker(job: ManyJob) -> None:
    for pid in job.of_worker(job.rank(_victim())[1]):
        os.kill(pid, signal.SIGKILL)


def kill_attempt(job: ManyJob) -> None:
    """Of one worker, what trains: the launcher and its ranks, as who runs out of memory; what stands by has its own session."""
    attempt = job.attempt()
    for pid in job.of_worker(job.rank(_victim())[1], attempt):
        os.kill(pid, signal.SIGKILL)


def crash_node(job: ManyJob) -> None:
    job.hosts.crash(job.rank(_victim())[1])


def cut_link(job: ManyJob) -> None:
    job.hosts.cut(job.rank(_victim())[1])


FAULTS: dict[str, tuple[Callable[[ManyJob], None], tuple[str, ...]]] = {
    "rank killed": (kill_rank, REPLACE),
    "launcher and ranks killed": (kill_attempt, REPLACE),
    "worker killed": (kill_worker, REPLACE),
    "node crashed": (crash_node, REPLACE),
    "link cut": (cut_link, REPLACE),
    "job rescheduled": (crash_node, RESCHEDULE),
}


def _victim() -> int:
    """Rank 0 too, whose node is where all meet."""
    return random.randrange(RANKS)


def main() -> int:
    options = read_options()
    compile_holdfast()
    refuse_without_root()
    end_on_sigterm()
    random.seed(options.seed)
    if options.training != "torch":
        options.strike = "early"  # nothing stands by
    rows = collected(all_runs(options), options.out)
    print(table(rows))
    return 0 if all(row["wrong"] == [] for row in rows) else 1


def all_runs(options: argparse.Namespace) -> Iterator[Row]:
    for run in range(options.runs):
        plain_s = plain(options) if options.training == "torch" else None
        for fault in options.faults:
            yield measured(fault, run, options) | {"plain_s": plain_s}


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=lambda text: text.split(","), default=list(FAULTS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of ranks")
    parser.add_argument("--out", type=Path, default=Path("out/many_nodes.jsonl"))
    parser.add_argument("--wait-quiet", type=float, default=0.0, metavar="S", help="for an idle machine")
    parser.add_argument("--flag", action="append", default=[], help="one more for holdfast run")
    parser.add_argument("--strike", choices=["ready", "early"], default="ready", help="when; see above")
    parser.add_argument("--training", choices=list(COMMANDS), default="torch")
    parser.add_argument("--keep", action="store_true", help="leave the folders of the runs")
    return parser.parse_args()


def plain(options: argparse.Namespace) -> float | None:
    if options.wait_quiet:
        wait_quiet(options.wait_quiet)
    with tempfile.TemporaryDirectory(prefix="many-plain-") as folder:
        return plain_start_s(Path(folder), START_S)


def measured(fault: str, run: int, options: argparse.Namespace) -> Row:
    quiet = wait_quiet(options.wait_quiet) if options.wait_quiet else None
    folder = Path(tempfile.mkdtemp(prefix="many-nodes-")) / "run"
    strike, flags = FAULTS[fault]
    row: Row = {"fault": fault, "run": run, "quiet": quiet, "strike": options.strike, "wrong": []}
    wrong: list[str] = []
    with many_job(folder, *flags, *options.flag, spares=1, steps=FOR_EVER, kind=options.training) as job:
        try:
            row |= one_fault(job, strike, is_early=options.strike == "early")
            code = job.end()
            if code not in (1, 128 + signal.SIGTERM):  # torchrun ends with 1 when it is told to end
                wrong.append(f"exit code {code} after SIGTERM")
            wrong += job.left()
        except (TimeoutError, ChildProcessError, LookupError) as error:
            wrong.append(str(error))
    row["wrong"] = wrong
    if options.keep or wrong:
        row["folder"] = str(folder)
    else:
        shutil.rmtree(folder.parent, ignore_errors=True)
    return row


def one_fault(job: ManyJob, strike: Callable[[ManyJob], None], *, is_early: bool) -> Row:
    """Seconds from the fault to its incident, to what came then, and to the first step of the last rank after it."""
    job.wait_for("the first steps", lambda: steps(job, 0.0) >= (STEPS_BEFORE if is_early else 1), START_S)
    if not is_early:
        job.wait_for("the next attempt to stand ready", job.stands_ready, READY_S)
    struck_s = time.time()
    strike(job)
    job.wait_for("steps after the fault", lambda: len(job.first_steps(struck_s)) == RANKS, AGAIN_S)
    again_s = max(job.first_steps(struck_s).values())
    job.wait_for("more steps", lambda: steps(job, again_s) >= STEPS_AFTER, AGAIN_S)
    found_s = job.found_s(struck_s)
    parts = {name: job.first_event_s(kind, struck_s) for name, kind in PARTS.items()}
    moments = {"found": found_s, **parts, "stepping": again_s}
    taken = {
        f"{name}_s": None if at_s is None else round(at_s - struck_s, 3) for name, at_s in moments.items()
    }
    return taken | {"stamps": job.stamps(struck_s)}


def steps(job: ManyJob, after_s: float) -> int:
    """Of rank 0."""
    return sum(one.kind == "step" and one.rank == 0 and one.at_s > after_s for one in job.moments())


def table(rows: list[Row]) -> str:
    head = "| fault | struck | runs | found | verdict | stopped | started | training again | at most | as it should be |"
    lines = [head, "|---" * 10 + "|"]
    for fault in dict.fromkeys(str(row["fault"]) for row in rows):
        of = [row for row in rows if row["fault"] == fault]
        good = sum(row["wrong"] == [] for row in of)
        parts = [_middle(of, f"{name}_s") for name in ("found", *PARTS)]
        times = [*parts, _spread(of, "stepping_s"), f"{TARGETS_S[fault]} s", f"{good} of {len(of)}"]
        lines.append(f"| {' | '.join([fault, str(of[0]['strike']), str(len(of)), *times])} |")
    lines.append(f"\nplain: {_spread(rows, 'plain_s')}; all times in seconds since the fault, medians")
    return "\n".join(lines)


def _middle(rows: list[Row], key: str) -> str:
    values = [float(row[key]) for row in rows if row.get(key) is not None]  # type: ignore[arg-type]
    return f"{statistics.median(values):.1f}" if values else "never"


def _spread(rows: list[Row], key: str) -> str:
    values = [float(row[key]) for row in rows if row.get(key) is not None]  # type: ignore[arg-type]
    if not values:
        return "never"
    return f"{statistics.median(values):.2f} s [{min(values):.2f}–{max(values):.2f}]"


if __name__ == "__main__":
    raise SystemExit(main())
