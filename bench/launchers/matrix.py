"""Every launcher that starts ranks, each with real faults: is the rank named, rightly, soon, and does the run end well?

    make launchers                                                # the training environment, once
    python -m bench.launchers.matrix [--python .venv-launchers/bin/python] [--launcher NAME ...] [--event NAME ...]
                              [--rounds 1] [--jobs 2] [--out FILE]

Two ranks (one where that is the case) over gloo or MPI on this machine; the last rank has the fault at step 30 of 80, in the
first attempt. `slow`: from then on, it takes four times as long for each step. A trial is right where the verdict's category and culprit are those of the fault (of a healthy run: no
incident; of a slow rank: it is said that steps became slower), the run ends with 0 and the result of an undisturbed one, and no process is left. `sigterm` goes to `holdfast
run` itself. `srun`: both ranks are tasks of one step on a node of a real Slurm of this machine (for root, with namespaces), and
`holdfast run` runs on that node. One JSON line for each trial in FILE; the table, in Markdown, on stdout.
"""

import argparse
import functools
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.job.trial import Trial

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from slurm.cluster import Cluster
from slurm.machine import can_have_namespaces, missing

SCRIPTS = Path(__file__).with_name("scripts")
LIMIT_S = 150.0
LOOK_S = 0.05  # between looks whether the fault has happened
EVENTS = ("healthy", "kill", "exception", "exit3", "sigstop", "deadlock", "slow", "sigterm")
MPI = ("--allow-run-as-root", "--oversubscribe", "-n", "2")
# {python}: that of the trainings; {bin}: its folder. Two ranks, but for those of ALONE.
LAUNCHERS = {
    "torchrun": "{bin}/torchrun --nproc-per-node 2 ddp.py",
    "python -m torch.distributed.run": "{python} -m torch.distributed.run --nproc-per-node 2 ddp.py",
    "accelerate launch": "bash accelerate.sh {bin}/accelerate",
    "accelerate notebook_launcher": "{python} notebook.py",
    "Lightning ddp": "{python} lightning_ddp.py ddp",
    "Lightning ddp_spawn": "{python} lightning_ddp.py ddp_spawn",
    "Lightning Fabric": "{python} lightning_ddp.py fabric",
    "mp.spawn, arguments": "{python} spawn.py spawn arguments",
    "mp.spawn, environment": "{python} spawn.py spawn environment",
    "mp.Process": "{python} spawn.py process arguments",
    "Ray Train": "{python} ray_train.py",
    "Open MPI, torch": "mpirun.openmpi {mpi} {python} ddp.py",
    "Open MPI, mpi4py": "mpirun.openmpi {mpi} {python} mpi.py",
    "MPICH, torch": "mpirun.mpich -n 2 {python} ddp.py",
    "JAX": "bash both.sh {python} jax_two.py",
    "bash & wait": "bash both.sh {python} ddp.py",
    "shell wrapper": "bash wrapped.sh {bin}/torchrun --nproc-per-node 2 ddp.py",
    "tini": "tini -s -- {bin}/torchrun --nproc-per-node 2 ddp.py",
    "uv run": "uv run --no-project --python {python} spawn.py spawn arguments",
    "DeepSpeed": "bash deepspeed.sh {bin}/deepspeed ddp.py",
    "HF Trainer": "{bin}/torchrun --nproc-per-node 2 hf_trainer.py",
    "srun": "srun --nodes 1 --ntasks 2 --mem 0 {python} ddp.py",
    "one process": "{python} alone.py",
    "nbconvert": "{bin}/jupyter nbconvert --to markdown --stdout --execute alone.ipynb",
}
NODE = 1  # of the Slurm cluster
ALONE = ("one process", "nbconvert")
# A notebook's output comes when it is done: no step is seen, so there is nothing to judge its pace by.
UNSEEN = {"nbconvert": ("deadlock", "slow")}
WANTED = {
    "kill": ("process_killed",),
    "exception": ("python_exception", "data_error"),
    "exit3": ("python_exception", "unknown"),  # an exit code says no more
    "sigstop": ("process_stopped",),
    "deadlock": ("collective_missing_rank", "unknown"),  # "unknown" of one process: it waits for nobody
}


class Outcome(Struct):
    """What one trial came to. `found_s`: from the fault to the first finding; None: not found, or nothing to find."""

    launcher: str
    event: str
    right: bool
    category: str = ""
    culprits: tuple[int, ...] = ()
    found_s: float | None = None
    code: int | None = None
    result: bool = False
    left: int = 0
    took_s: float = 0.0


def main() -> None:
    given = arguments()
    trials = [
        (launcher, event)
        for _ in range(given.rounds)
        for launcher in given.launcher or LAUNCHERS
        for event in given.event or EVENTS
        if is_there(launcher, given.python) and event not in UNSEEN.get(launcher, ())
    ]
    with open(given.out, "a") as out, ThreadPoolExecutor(given.jobs) as pool:
        outcomes = []
        for one in pool.map(lambda trial: tried(*trial, given.python), trials):
            outcomes.append(one)
            out.write(json.dumps(msgspec.to_builtins(one)) + "\n")
            out.flush()
            print(
                one.launcher,
                one.event,
                "right" if one.right else "WRONG",
                f"{one.took_s:.0f} s",
                file=sys.stderr,
            )
    print(table(outcomes))
    if cluster.cache_info().currsize:
        cluster().stop()


@functools.cache
def cluster() -> Cluster:
    """Started for the first trial that needs it."""
    return Cluster(1).start()


def is_there(launcher: str, python: str) -> bool:
    if launcher == "srun" and (missing() or not can_have_namespaces()):
        return False
    return shutil.which(command(launcher, python)[0], path=path_of(python)) is not None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=".venv-launchers/bin/python", help="of the trainings")
    parser.add_argument("--launcher", action="append", choices=LAUNCHERS)
    parser.add_argument("--event", action="append", choices=EVENTS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", default="launchers.jsonl")
    given = parser.parse_args()
    given.python = os.path.abspath(given.python)
    return given


def path_of(python: str) -> str:
    return f"{os.path.dirname(python)}:{os.environ['PATH']}"


def command(launcher: str, python: str) -> list[str]:
    words = {"python": python, "bin": os.path.dirname(python), "mpi": " ".join(MPI)}
    return LAUNCHERS[launcher].format(**words).split()


def tried(launcher: str, event: str, python: str) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-launchers-"))
    shutil.copytree(SCRIPTS, folder, dirs_exist_ok=True)
    note, state = folder / "note", folder / "state"
    env = {
        "BENCH_EVENT": event,
        "BENCH_NOTE": str(note),
        "PATH": path_of(python),
    }
    run = [sys.executable, "-m", "holdfast", "run", "--policy", "holdfast", "--state-dir", str(state), "--"]
    words = [*run, *command(launcher, python)]
    if launcher == "srun":
        env |= cluster().env | {"PATH": path_of(python)}
        words = cluster().words(NODE, "env", f"--chdir={folder}", *words)
    trial = Trial(words, folder, env)
    try:
        if event == "sigterm":
            while not note.exists() and not trial.wait(LOOK_S):
                pass
            os.kill(holdfast_pid(trial, launcher), signal.SIGTERM)
        is_over = trial.wait(LIMIT_S)
        code = trial.process.returncode if is_over else None
        if not is_over:
            trial.process.kill()
        left = trial.left()
        said = "".join(line for _, line in trial.lines)
        return judged(
            launcher, event, story(trial, state), note, code, said, len(left), time.time() - trial.begun_s
        )
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)


def holdfast_pid(trial: Trial, launcher: str) -> int:
    """On a node of the cluster it is the child of the program that has entered the node."""
    pid = trial.process.pid
    if launcher != "srun":
        return pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def story(trial: Trial, state: Path) -> dict[str, object]:
    asked = Trial(
        [sys.executable, "-m", "holdfast", "status", "--json", "--state-dir", str(state)], trial.folder
    )
    asked.wait(LIMIT_S)
    asked.clear()
    try:
        found = json.loads("".join(line for _, line in asked.lines))["summary"]
    except (ValueError, KeyError):
        return {}
    assert isinstance(found, dict)
    return found


def judged(
    launcher: str,
    event: str,
    summary: dict[str, object],
    note: Path,
    code: int | None,
    said: str,
    left: int,
    took_s: float,
) -> Outcome:
    incidents = list(summary.get("incidents") or ())  # type: ignore[call-overload]
    first = incidents[0] if incidents else {}
    verdict = first.get("verdict") or {}
    culprits = tuple(one["rank"] for one in verdict.get("culprits") or () if one.get("rank") is not None)
    result = "RESULT 0.0125" in said  # 1 / 80
    victim = 0 if launcher in ALONE else 1
    # Of a process that ended before it was known as rank 0 of 1, the command is named.
    named = culprits == (victim,) or launcher in ALONE and not culprits
    if event in WANTED:
        right = verdict.get("category") in WANTED[event] and named and result and code == 0
        right = right and len(incidents) == 1
    elif event == "sigterm":
        # The code is the launcher's own: torchrun has 1, others 143. MPICH's mpirun, alone too, has 15 or 0 by chance.
        right = not incidents and (bool(code) or launcher == "MPICH, torch")
    else:
        right = not incidents and result and code == 0
        right = right and (event != "slow" or "have become slower" in said)
    found_s = first["found_at_s"] - float(note.read_text()) if first and note.exists() else None
    return Outcome(
        launcher,
        event,
        bool(right and not left),
        str(verdict.get("category", "")),
        culprits,
        None if found_s is None else round(found_s, 2),
        code,
        result,
        left,
        round(took_s, 1),
    )


def table(outcomes: Sequence[Outcome]) -> str:
    """Right of all, and the median time to the finding."""
    events = [event for event in EVENTS if any(one.event == event for one in outcomes)]
    rows = ["| launcher | " + " | ".join(events) + " |", "|---" * (len(events) + 1) + "|"]
    for launcher in dict.fromkeys(one.launcher for one in outcomes):
        cells = [
            cell([one for one in outcomes if (one.launcher, one.event) == (launcher, event)])
            for event in events
        ]
        rows.append(f"| {launcher} | " + " | ".join(cells) + " |")
    right = sum(one.right for one in outcomes)
    return "\n".join([*rows, "", f"{right} of {len(outcomes)} right"])


def cell(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "-"
    times = [one.found_s for one in outcomes if one.found_s is not None]
    found = f", {statistics.median(times):.1f} s" if times else ""
    return f"{sum(one.right for one in outcomes)}/{len(outcomes)}{found}"


if __name__ == "__main__":
    main()
