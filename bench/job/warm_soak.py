"""Random restarts from a zygote: do they end as ordinary starts do, with nothing left and nothing hung?

    python -m bench.job.warm_soak [--restarts 100] [--launcher NAME ...] [--python .venv-launchers/bin/python] [--seed 1]

Each launcher runs one job, two ranks over gloo, whose ranks meet faults at random steps until it has been restarted so often;
then it ends well. The same job runs once without a fault, started as usual (`--no-standby`). Equal: exit code 0, the last loss,
and what the last attempt's ranks print at their start. Left: processes with the trial's mark after its end, and fork servers.
Hung: a step or a start that takes longer than `--hung`, a minute. One JSON line for each launcher in --out; a Markdown table on
stdout. accelerate, DeepSpeed, Lightning and the Hugging Face Trainer are in `.venv-launchers` (`make launchers`).
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from bench.job.trial import HOLDFAST, Trial, end_on_sigterm

SCRIPT = Path(__file__).with_name("warm_training.py")
LIGHTNING, TRAINER = (Path(__file__).with_name(f"warm_{name}.py") for name in ("lightning", "trainer"))
LAUNCHERS = {
    "torchrun": "{bin}/torchrun --standalone --nproc-per-node 2 {script}",
    "python -m torch.distributed.run": "{python} -m torch.distributed.run --standalone --nproc-per-node 2 {script}",
    "accelerate": "{bin}/accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no"
    " --dynamo_backend no --main_process_port 0 {script}",
    "deepspeed": "{bin}/deepspeed --num_gpus 2 --master_port 29653 {script}",
    "shell script": "bash {folder}/train.sh",
    "mp.spawn": "{python} {script} --spawn",
    "plain": "{python} {script} --alone",
    "Lightning": "{python} {lightning}",
    "Hugging Face Trainer": "{bin}/torchrun --standalone --nproc-per-node 2 {trainer}",
}
LOOK_S = 0.2
STEPS_BETWEEN = (1, 30)
KINDS = "kill9", "exit3", "error"
STEPS_LEFT = 40  # after the last fault, of a framework's training


def main() -> int:
    given = arguments()
    end_on_sigterm()
    rows = []
    for launcher in given.launcher or LAUNCHERS:
        row = soaked(launcher, given)
        rows.append(row)
        with given.out.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(json.dumps(row), file=sys.stderr, flush=True)
    print(table(rows))
    return 0 if all(row["is_equal"] and not row["left"] and not row["hung"] for row in rows) else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--restarts", type=int, default=100, help="of one job: 127 at most")
    parser.add_argument("--launcher", action="append", choices=LAUNCHERS)
    parser.add_argument("--python", default=sys.executable, help="of the trainings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hung", type=float, default=60.0, metavar="S", help="without a step or a start")
    parser.add_argument("--out", type=Path, default=Path("warm_soak.jsonl"))
    given = parser.parse_args()
    given.python = os.path.abspath(given.python)
    return given


def soaked(launcher: str, given: argparse.Namespace) -> dict[str, object]:
    dice = random.Random(f"{given.seed} {launcher}")
    faults: list[tuple[int, str]] = []
    for _ in range(given.restarts):
        last = faults[-1][1] if faults else ""
        kinds = [
            kind for kind in KINDS if kind != last
        ]  # the same one again and again is taken for a fault of the code
        faults.append((dice.randint(*STEPS_BETWEEN), dice.choice(kinds)))
    steps = sum(step for step, _ in faults) + STEPS_LEFT
    plain = run(launcher, given, (), ("--no-standby",), steps)
    flags = ("--zygote", "--max-restarts", str(given.restarts + 1), "--unconditional-restart")
    warm = run(launcher, given, faults, flags, steps)
    keys = ("code", "loss", "begun")
    return {
        "launcher": launcher,
        "restarts": warm["attempts"] - 1,  # type: ignore[operator]
        "forked": warm["forked"],
        "is_equal": all(warm[key] == plain[key] for key in keys) and warm["attempts"] == given.restarts + 1,
        "left": warm["left"],
        "hung": warm["hung"],
        "took_s": warm["took_s"],
        "plain": {key: plain[key] for key in keys},
        "warm": {key: warm[key] for key in keys},
    }


def run(
    launcher: str,
    given: argparse.Namespace,
    faults: Sequence[tuple[int, str]],
    flags: Sequence[str],
    steps: int,
) -> dict[str, object]:
    folder = Path(tempfile.mkdtemp(prefix="warm-soak-"))
    (folder / "faults.json").write_text(json.dumps(faults))
    (folder / "steps").write_text(str(steps))
    words = {
        "python": given.python,
        "bin": os.path.dirname(given.python),
        "script": str(SCRIPT),
        "lightning": str(LIGHTNING),
        "trainer": str(TRAINER),
        "folder": str(folder),
    }
    (folder / "train.sh").write_text(LAUNCHERS["torchrun"].format(**words) + "\n")
    command = LAUNCHERS[launcher].format(**words).split()
    state = folder / "state"
    held = [
        *HOLDFAST,
        "run",
        "--policy",
        "holdfast",
        "--state-dir",
        str(state),
        "--boot-check",
        "off",
        *flags,
        "--",
    ]
    env = {
        "WARM_FOLDER": str(folder),
        "PATH": f"{words['bin']}:{os.environ['PATH']}",
        "DS_ACCELERATOR": "cpu",
    }
    trial = Trial([*held, *command], folder, env)
    try:
        hung = not _ended(trial, folder, given.hung)
        left = len(trial.left()) + len(_servers(state))
        attempts = len(list(state.glob("jobs/*/attempt-*")))
        events = [path.read_text().splitlines() for path in folder.glob("events.*")]
        forked = sum(lines.count("forked") for lines in events)
        return {
            "code": None if hung else trial.process.returncode,
            "loss": _read(folder / "loss"),
            "begun": _last_begun(folder),
            "attempts": attempts,
            "forked": forked,
            "left": left,
            "hung": hung,
            "took_s": round(time.time() - trial.begun_s, 1),
        }
    finally:
        trial.clear()
        shutil.rmtree(folder, ignore_errors=True)


def _ended(trial: Trial, folder: Path, hung_s: float) -> bool:
    """False: nothing was written for too long."""
    moved_s, seen = time.monotonic(), -1
    while not trial.wait(LOOK_S):
        size = sum(path.stat().st_size for path in folder.glob("events.*"))
        if size != seen:
            moved_s, seen = time.monotonic(), size
        if time.monotonic() - moved_s > hung_s:
            return False
    return True


def _servers(state: Path) -> list[int]:
    """Zygotes and fork servers of jobs of this state folder."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline"]):
        words = process.info["cmdline"] or []
        if words[:2] == ["holdfast", "zygote"] and str(state) in _environ(process):
            found.append(process.info["pid"])
    return found


def _environ(process: psutil.Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def _last_begun(folder: Path) -> list[str]:
    """What each rank of the last attempt said of its setting."""
    last = {}
    for path in sorted(folder.glob("events.*")):
        begun = [line for line in path.read_text().splitlines() if line.startswith("begun ")]
        last[path.name] = begun[-1] if begun else ""
    return [last[name] for name in sorted(last)]


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def table(rows: Sequence[dict[str, object]]) -> str:
    lines = [
        "| launcher | restarts | ranks forked | equal to an ordinary start | left | hung | time |",
        "|---" * 7 + "|",
    ]
    for row in rows:
        equal = "yes" if row["is_equal"] else "NO"
        cells = (
            row["launcher"],
            row["restarts"],
            row["forked"],
            equal,
            row["left"],
            row["hung"],
            f"{row['took_s']} s",
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
