"""How soon trainings of the Hugging Face Trainer and of Lightning make a step again after a kill: Holdfast beside torchrun.

    python -m bench.job.warm_frameworks --runs 3 [--python .venv-launchers/bin/python]

Two ranks over gloo with a tiny model and the framework's own checkpoints, under `torchrun`, wrapped by `holdfast run` or with
`--max-restarts`. After some twenty seconds of training the last rank is killed. Given are the seconds from the kill until both
ranks have made a step in a new process. Under Holdfast the script has run once before, so that its imports are known, and which
of them cannot be preloaded. Systems take turns. The frameworks are in `.venv-launchers` (`make launchers`).
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.job.rows import Row, collected
from bench.job.trial import HOLDFAST, Trial, end_on_sigterm
from bench.job.warm_soak import LIGHTNING, TRAINER

FRAMEWORKS = {"Hugging Face Trainer": TRAINER, "Lightning": LIGHTNING}
SYSTEMS = ("holdfast", "torchrun")
RANKS, STEP_S, STRUCK_AT, STEPS_AFTER, STEPS_BEFORE = 2, 0.05, 400, 60, 300
LIMIT_S = 240.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--python", default=".venv-launchers/bin/python", help="of the trainings")
    parser.add_argument("--out", type=Path, default=Path("out/warm_frameworks.jsonl"))
    given = parser.parse_args()
    end_on_sigterm()
    rows = collected(runs(os.path.abspath(given.python), given.runs), given.out)
    print(table(rows))
    return 0 if all(row["stepping_s"] is not None for row in rows) else 1


def runs(python: str, many: int) -> Iterator[Row]:
    for number in range(many):
        for framework, script in FRAMEWORKS.items():
            for system in SYSTEMS:
                root = Path(tempfile.mkdtemp(prefix="warm-frameworks-"))
                try:
                    seconds = measured(system, python, script, root)
                finally:
                    shutil.rmtree(root, ignore_errors=True)
                yield {"framework": framework, "system": system, "run": number, "stepping_s": seconds}


def measured(system: str, python: str, script: Path, root: Path) -> float | None:
    """Returns the seconds from the kill to the next step of all ranks; None if there was none."""
    if system == "holdfast":
        trained(system, python, script, root, "before", STEPS_BEFORE, [])
    folder = trained(system, python, script, root, "run", STRUCK_AT + STEPS_AFTER, [[STRUCK_AT, "kill9"]])
    events = [(folder / f"events.{rank}").read_text().splitlines() for rank in range(RANKS)]
    struck = [float(line.split()[1]) for lines in events for line in lines if line.startswith("struck ")]
    again = [first_again_s(lines) for lines in events]
    known = [one for one in again if one is not None]
    return round(max(known) - struck[0], 3) if struck and len(known) == RANKS else None


def first_again_s(lines: Sequence[str]) -> float | None:
    """Returns when the first step of the second attempt was made; None if there was none."""
    begun = [number for number, line in enumerate(lines) if line.startswith("begun ")]
    steps = [line for line in lines[begun[1] :] if line.startswith("step ")] if len(begun) > 1 else []
    return float(steps[0].split()[2]) if steps else None


def trained(
    system: str, python: str, script: Path, root: Path, name: str, steps: int, faults: list[list[object]]
) -> Path:
    """Runs the training to its end, and returns its folder."""
    folder = root / name
    folder.mkdir()
    (folder / "faults.json").write_text(json.dumps(faults))
    (folder / "steps").write_text(str(steps))
    env = {
        "WARM_FOLDER": str(folder),
        "WARM_STEP_S": str(STEP_S),
        "PATH": f"{os.path.dirname(python)}:{os.environ['PATH']}",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # torchrun's restarts meet stale keys otherwise
    }
    launcher = [f"{os.path.dirname(python)}/torchrun", "--standalone", f"--nproc-per-node={RANKS}"]
    if system == "holdfast":
        held = ["run", "--policy", "holdfast", "--state-dir", str(root / "state"), "--boot-check", "off"]
        command = [*HOLDFAST, *held, "--max-restarts", "3", "--", *launcher, str(script)]
    else:
        command = [*launcher, "--max-restarts", "3", str(script)]
    trial = Trial(command, folder, env)
    try:
        trial.wait(LIMIT_S)
    finally:
        trial.clear()
    return folder


def table(rows: Sequence[Row]) -> str:
    lines = ["| framework | holdfast | torchrun | ratio |", "|---" * 4 + "|"]
    for framework in FRAMEWORKS:
        of = {
            system: [
                float(str(row["stepping_s"]))
                for row in rows
                if (row["framework"], row["system"]) == (framework, system) and row["stepping_s"] is not None
            ]
            for system in SYSTEMS
        }
        cells = [framework, *(_spread(of[system]) for system in SYSTEMS)]
        whole = all(of.values())
        ratio = statistics.median(of["holdfast"]) / statistics.median(of["torchrun"]) if whole else None
        lines.append(f"| {' | '.join(cells)} | {'' if ratio is None else f'{ratio:.2f}'} |")
    return "\n".join(lines)


def _spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return "never"
    return f"{statistics.median(seconds):.2f} s [{min(seconds):.2f}–{max(seconds):.2f}]"


if __name__ == "__main__":
    sys.exit(main())
